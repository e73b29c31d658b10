// KL divergence of a model on a text: the base model writes its distributions to a file for later
// comparisons, or both models run side by side.
#pragma once

#include <cstdint>
#include <filesystem>

#include "eval/divergence.h"
#include "eval/divergence_base.h"
#include "eval/perplexity.h"

namespace leq {

struct WrittenBase {
  PerplexityResult result;  // of the base model
  std::uint64_t file_bytes = 0;
};

// Measures the perplexity as measure_perplexity does and writes the distribution of every scored
// position. `key` describes the run; its counts must be those of `run`.
WrittenBase write_divergence_base(Session& session, ThreadPool& pool, const PerplexityRun& run,
                                  const std::filesystem::path& path, const DivergenceKey& key);

// Compares the model of `session` with a base file. `key` is this run's; throws Error naming what
// differs from the file's. run.progress is called with the mean KL so far.
Divergence measure_divergence(Session& session, ThreadPool& pool, const PerplexityRun& run,
                              const DivergenceBaseReader& base, const DivergenceKey& key);

// Compares the model of `session` with that of `base`, window by window in one process, without
// quantizing the distributions. Both sessions have contexts of at least the window and output rows.
// run.progress is called with the mean KL so far.
Divergence measure_divergence(Session& base, Session& session, ThreadPool& pool,
                              const PerplexityRun& run);

}  // namespace leq

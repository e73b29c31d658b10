// KL divergence of a model on a text. Either the base model writes its distributions to a file for
// later comparisons, or both models run side by side.
#pragma once

#include <cstdint>
#include <filesystem>

#include "eval/divergence.h"
#include "eval/divergence_base.h"
#include "eval/perplexity.h"

namespace leq {

struct WrittenBase {
  PerplexityResult result;  // perplexity of the base model
  std::uint64_t file_bytes = 0;
};

// Measures the perplexity as measure_perplexity does and writes the distribution of every scored
// position. `key` describes the run and must have the counts of `run`.
WrittenBase write_divergence_base(Session& session, ThreadPool& pool, const PerplexityRun& run,
                                  const std::filesystem::path& path, const DivergenceKey& key);

// Compares the model of `session` with a base file. `key` describes this run; throws Error naming
// what differs from the file. Calls run.progress with the mean KL so far.
Divergence measure_divergence(Session& session, ThreadPool& pool, const PerplexityRun& run,
                              const DivergenceBaseReader& base, const DivergenceKey& key);

// Compares the model of `session` with that of `base`, window by window in one process, without
// quantizing the distributions. Both sessions need a context and output rows for at least one
// window. Calls run.progress with the mean KL so far.
Divergence measure_divergence(Session& base, Session& session, ThreadPool& pool,
                              const PerplexityRun& run);

}  // namespace leq

// KL divergence of a model on a text: the base model writes its distributions to a file that others
// are compared with, or both models run side by side.
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

// Measures the perplexity as measure_perplexity does and writes every distribution that it saw.
// `key` says what the run is; its counts must be those of `run`.
WrittenBase write_divergence_base(Session& session, ThreadPool& pool, const PerplexityRun& run,
                                  const std::filesystem::path& path, const DivergenceKey& key);

// The model of `session` against a base file. `key` is this run's; throws Error naming what differs
// from the file's. run.progress gets the mean KL so far.
Divergence measure_divergence(Session& session, ThreadPool& pool, const PerplexityRun& run,
                              const DivergenceBaseReader& base, const DivergenceKey& key);

// The model of `session` against that of `base`, window by window in one process, without loss.
// Both sessions have contexts of at least the window and output rows. run.progress gets the mean KL
// so far.
Divergence measure_divergence(Session& base, Session& session, ThreadPool& pool,
                              const PerplexityRun& run);

}  // namespace leq

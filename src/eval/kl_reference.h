// A text divided into windows, with the distributions of a search's base model for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/workers.h"
#include "eval/measure_divergence.h"
#include "eval/mixed_search.h"
#include "model/session.h"

namespace leq {

class KlReference {
 public:
  // Runs the base model `model` on the text. `workers` must outlive the object.
  KlReference(const MixedSearch& request, const Model& model, Workers& workers);

  // Identity of the measurement other than the models: tokens and windows.
  std::string identity() const;

  // Divergence of a mixed model that uses a KV cache of the given types.
  Divergence measure(const MixedModel& mixed, const Assignment& assignment, KvType keys,
                     KvType values) const;

 private:
  PerplexityRun run() const { return {.tokens = tokens_, .windows = windows_}; }

  Workers& workers_;
  RunLimits limits_;  // with an unquantized KV cache
  std::vector<Token> tokens_;
  std::vector<Window> windows_;
  DivergenceKey key_;
  std::unique_ptr<DivergenceBaseReader> base_;
};

}  // namespace leq

// A text cut into windows, and how the base model of a search sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "eval/measure_divergence.h"
#include "eval/mixed_search.h"
#include "model/session.h"
#include "platform/workers.h"

namespace leq {

class KlReference {
 public:
  // Runs `model`, the base, over the text. `workers` must outlive the object.
  KlReference(const MixedSearch& request, const Model& model, Workers& workers);

  // What KL depends on beside the models.
  std::string identity() const;

  // A mixed model with keys and values stored as told.
  Divergence measure(const MixedModel& mixed, const Assignment& assignment, KvType keys,
                     KvType values) const;

 private:
  PerplexityRun run() const { return {.tokens = tokens_, .windows = windows_}; }

  Workers& workers_;
  RunLimits limits_;  // with a cache that rounds nothing
  std::vector<Token> tokens_;
  std::vector<Window> windows_;
  DivergenceKey key_;
  std::unique_ptr<DivergenceBaseReader> base_;
};

}  // namespace leq

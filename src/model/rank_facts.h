// What ranks that share a model compare before the first step.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/agreement.h"
#include "model/memory_plan.h"
#include "model/model_config.h"

namespace leq {

// `fingerprint`: LeqReader::fingerprint(), 0 where the weights are no file's.
std::vector<RankFact> rank_facts(const ModelConfig& config, const RunLimits& limits,
                                 std::uint64_t fingerprint);

}  // namespace leq

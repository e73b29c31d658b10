// Facts that ranks which share a model compare before the first step.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/agreement.h"
#include "model/memory_plan.h"
#include "model/model_config.h"

namespace leq {

// `fingerprint`: LeqReader::fingerprint(), or 0 if the weights are not from a file.
std::vector<RankFact> rank_facts(const ModelConfig& config, const RunLimits& limits,
                                 std::uint64_t fingerprint);

}  // namespace leq

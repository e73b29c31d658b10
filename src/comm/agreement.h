// Checks that all ranks start with equal facts: program, model, settings.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"

namespace leq {

struct RankFact {
  std::string name;   // shown in errors: "the model file"
  std::string value;  // compared, and shown in errors
};

// Throws Error on every rank if a rank's facts differ from the leader's. The error names the rank,
// the first such fact, and both values. All ranks must pass the same names in the same order.
void require_agreement(Communicator& ranks, const std::vector<RankFact>& facts);

}  // namespace leq

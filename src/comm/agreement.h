// What all ranks must have alike before they begin: program, model, settings.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"

namespace leq {

struct RankFact {
  std::string name;   // "the model file"
  std::string value;  // for comparing and for people
};

// Throws Error on every rank where one has other facts than the leader: it names the rank, the
// first such fact, and both values. Names and their order are the same on all ranks.
void require_agreement(Communicator& ranks, const std::vector<RankFact>& facts);

}  // namespace leq

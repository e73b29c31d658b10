#include "faults/known_faults.h"

#include <vector>

namespace leq::faults {

std::span<const KnownFault> known_faults() {
  static const std::vector<KnownFault> kKnown = {
      {"", "litter", "cannot be removed", "what cannot be removed stays, and is named"},
      {"/kill", "litter", "", "OUTPUT.tmpPID of a run killed between naming and placing it"}};
  return kKnown;
}

}  // namespace leq::faults

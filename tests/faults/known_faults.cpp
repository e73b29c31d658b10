#include "faults/known_faults.h"

#include <vector>

namespace leq::faults {

std::span<const KnownFault> known_faults() {
  static const std::vector<KnownFault> kKnown = {
      {"", "litter", "cannot lock this folder", "the new folder stays where it cannot be locked"},
      {"", "litter", "cannot open this folder", "the new folder stays where it cannot be opened"},
      {"", "litter", "cannot be removed", "what cannot be removed stays without a word"},
      {"", "litter", "kept.bin", "finished blocks stay without a word if statistics are not kept"},
      {"", "litter", "out of memory", "finished blocks stay without a word if memory is out"},
      {"/allocate_site/", "signal", "without an active exception",
       "the standard library's directory iterator cannot tell that memory is out"},
      {"/kill", "litter", "", "OUTPUT.tmpPID of a run killed between naming and placing it"}};
  return kKnown;
}

}  // namespace leq::faults

#include "faults/known_faults.h"

#include <vector>

namespace leq::faults {

std::span<const KnownFault> known_faults() {
  static const std::vector<KnownFault> kKnown = {
      {"two_writers", "writers", "", "two writers of one output do not know of each other"},
      {"", "litter", "", "finished blocks of a run that failed stay without a word"},
      {"", "internal", "filesystem error", "a library's own words"},
      {"chat/", "lost", "", "a piped chat ends with status 0 after errors"},
      {"/thread/", "signal", "", "a thread that cannot start ends the tool"},
      {"/allocate_site/", "signal", "bad_alloc", "memory is out before or after the tool's shell"},
      {"/kill", "resume", "is no folder of an interrupted run", "killed while it removes its own"}};
  return kKnown;
}

}  // namespace leq::faults

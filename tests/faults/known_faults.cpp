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
      {"/allocate_site/", "signal", "without an active exception",
       "the standard library's directory iterator cannot tell that memory is out"},
      {"/kill", "resume", "is no folder of an interrupted run", "killed while it removes its own"},
      {"/kill", "litter", "",
       "OUTPUT.tmpPID of a run killed between naming it and putting it in place"}};
  return kKnown;
}

}  // namespace leq::faults

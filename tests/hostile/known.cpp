#include "hostile/known.h"

#include <vector>

namespace leq::hostile {

std::span<const KnownFailure> known_failures() {
  static const std::vector<KnownFailure> kKnown = {
      {"place pipe", "", "hang", "", "a pipe in the place of a file is opened and waited for"},
      {"chat/", "leq-run", "passed", "", "a piped chat ends with status 0 after errors"},
      {"place link to itself", "", "internal", "filesystem error", "a library's own words"},
      {"index.json", "", "internal", "filesystem error", "a library's own words"},
      {"words/", "", "internal", "filesystem error", "a library's own words"},
      {"json malformed", "", "internal", "json.exception", "a library's own words"},
      {"json malformed", "", "passed", "NUL behind", "JSON with NUL and more behind its end"},
      {"config.json/json duplicate", "", "passed", "", "keys that are there twice"},
      {"words/", "", "control", "", "file names are printed as they are"},
      {"no UTF-8", "leq-quantize", "name", "out.leq", "a template is refused in the output's name"},
      {"garbage", "leq-quantize", "name", "out.leq", "a template is refused in the output's name"},
      {"text/text", "leq-quantize", "litter", "", "a short held-out text is refused at the end"},
      {"", "leq-quantize", "litter", "out.leq.partial", "finished blocks stay without a word"},
      {"words/", "", "signal", "terminate called", "a thread that cannot start"}};
  return kKnown;
}

}  // namespace leq::hostile

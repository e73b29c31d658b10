#include "tools/common/option_rows.h"

namespace leq {

std::vector<Option> window_rows(const std::string& group) {
  Option protocol = text_row("protocol", "P", "which windows are fed and which tokens count", group,
                             {"hf", "hf-stride", "llamacpp-512"});
  protocol.fallback = "hf";
  Option window = number_row(OptionKind::integer, "window", "N", "",
                             "tokens in a window (default: the model's context, at most 2048)",
                             group, 2, 16777216);
  window.spellings = "-c --ctx-size";
  return {protocol, window,
          number_row(OptionKind::integer, "chunks", "N", "0",
                     "measure the first N windows only; 0: all", group, 0),
          text_row("join", "RULE", "how rows become one text (default hf; none for llamacpp-512)",
                   group, {"hf", "none"})};
}

}  // namespace leq

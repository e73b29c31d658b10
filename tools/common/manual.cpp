#include "tools/common/manual.h"

#include <algorithm>

#include "base/text.h"
#include "base/version.h"
#include "tools/common/option_help.h"

namespace leq {
namespace {

// Escapes text for roff, so that a line that begins with a dot is not a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";  // a minus, so that options can be copied
    } else {
      out += c;
    }
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }

std::string option_entry(const Option& option) {
  std::string words;
  for (const std::string& word : shown_words(option)) {
    words += (words.empty() ? "" : ", ") + bold(word);
  }
  if (!option.value_name.empty()) words += " \\fI" + roff(option.value_name) + "\\fR";
  return ".TP\n" + words + "\n" + roff(explanation(option)) + "\n";
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text;
}

}  // namespace

std::string manual_page(const ToolSpec& tool) {
  std::string out = ".TH " + roff(upper(tool.name)) + " 1 \"\" \"leq " + kVersion + "\" \"leq\"\n";
  out += ".SH NAME\n" + roff(tool.name) + " \\- " + roff(tool.summary) + "\n";
  out += ".SH SYNOPSIS\n.nf\n";
  for (const std::string& line : tool.usage) out += bold(tool.name) + " " + roff(line) + "\n";
  out += ".fi\n.SH OPTIONS\n";
  for (const OptionGroup& group : shown_groups(tool)) {
    out += ".SS \"" + roff(group.name) + "\"\n";
    for (const Option& option : group.options) out += option_entry(option);
  }
  out += ".SH ENVIRONMENT\n" + roff(kVariablesText) + "\n";
  out +=
      ".SH EXIT STATUS\n0, 1 after an error, which standard error tells in one line, 130 after "
      "Ctrl\\-C.\n";
  out += ".SH SEE ALSO\n";
  std::string others;
  for (const char* other :
       {"leq-bench", "leq-inspect", "leq-perplexity", "leq-quantize", "leq-run"}) {
    if (tool.name == other) continue;
    others += (others.empty() ? "" : ",\n") + bold(other) + "(1)";
  }
  return out + others + "\n";
}

}  // namespace leq

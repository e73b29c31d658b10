#include "tools/server/presets.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace leq::server_tool {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1 << 20;
constexpr const char* kAllModels = "*";

// "ctx-size" and "c" as words of the command line: with two dashes, or one if only that is known.
std::string word_of(const ToolSpec& spec, std::string_view key) {
  const std::string one = "-" + std::string(key);
  const bool is_short = std::ranges::any_of(spec.options, [&](const Option& option) {
    const auto words = option_words(option);
    return std::ranges::find(words, one) != words.end();
  });
  return is_short ? one : "-" + one;
}

using Words = std::map<std::string, std::vector<std::string>, std::less<>>;

// The words of each section.
Words read_words(const std::filesystem::path& file, const ToolSpec& spec) {
  const std::string text = read_text_file(file, kMaxFileBytes);
  Words sections;
  std::optional<std::string> section;
  int number = 0;
  for (const std::string_view whole : split(text, "\n")) {
    ++number;
    const std::string_view line = trim(whole);
    if (line.empty() || line.front() == ';' || line.front() == '#') continue;
    const auto require_line = [&](bool good, std::string_view expected) {
      require(good, file.string(), ":", number, ": expected ", expected, ", found '",
              printable(line), "'");
    };
    if (line.front() == '[') {
      require_line(line.back() == ']' && line.size() > 2, "[NAME] or [*]");
      section = trim(line.substr(1, line.size() - 2));
      sections[*section];
      continue;
    }
    const std::size_t equals = line.find('=');
    require_line(equals != std::string_view::npos && equals > 0, "a section or NAME = VALUE");
    const std::string_view key = trim(line.substr(0, equals));
    if (!section && key == "version") continue;
    require_line(section.has_value(), "a section, as [*], before the options");
    sections[*section].push_back(word_of(spec, key) + "=" +
                                 std::string(trim(line.substr(equals + 1))));
  }
  return sections;
}

}  // namespace

Presets::Presets(const std::filesystem::path& file, const ToolSpec& spec, const Say& say) {
  Words words = read_words(file, spec);
  const std::vector<std::string> of_all = words[kAllModels];
  for (auto& [model, own] : words) {
    if (model != kAllModels) own.insert(own.begin(), of_all.begin(), of_all.end());
    const std::string where = file.string() + " [" + printable(model) + "]: ";
    try {
      sections_[model] = parse_options(spec, own, [](const std::string&) { return std::nullopt; });
    } catch (const Error& error) {
      throw Error(where + error.marked(), error.kind());
    }
    const std::vector<std::string>& notes = sections_[model].notes();
    const std::size_t said = model == kAllModels ? 0 : sections_[kAllModels].notes().size();
    for (std::size_t i = said; i < notes.size(); ++i) say(where + notes[i]);
  }
}

std::vector<std::string> Presets::models() const {
  std::vector<std::string> names;
  for (const auto& [model, options] : sections_) {
    if (model != kAllModels) names.push_back(model);
  }
  return names;
}

Options Presets::with(const Options& options, std::string_view model) const {
  auto found = sections_.find(model);
  if (found == sections_.end()) found = sections_.find(kAllModels);
  Options result = options;
  if (found != sections_.end()) result.add_missing(found->second);
  return result;
}

}  // namespace leq::server_tool

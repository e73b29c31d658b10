// --models-preset: an INI file with options of single models of --models-dir, in llama-server's
// form.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/common/options.h"

namespace leq::server_tool {

class Presets {
 public:
  using Say = std::function<void(const std::string& line)>;

  Presets() = default;  // of no file
  // `spec`: the options that a section may set. `say` receives notes about options without effect.
  // Throws Error naming the file and the line or the section.
  Presets(const std::filesystem::path& file, const ToolSpec& spec, const Say& say);

  // The models that have a section.
  std::vector<std::string> models() const;
  // The options with those of the model's section, or of [*] if it has none, that neither the
  // command line nor a variable gives.
  Options with(const Options& options, std::string_view model) const;

 private:
  std::map<std::string, Options, std::less<>> sections_;  // those of models include [*]
};

}  // namespace leq::server_tool

#include "tools/run/grammar.h"

#include <array>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace leq::run {
namespace {

constexpr std::uint64_t kMostBytes = 4u << 20;

struct Source {
  std::string_view name;  // the option's name
  bool is_file = false;
  bool is_schema = false;
};
constexpr std::array<Source, 4> kSources = {{{"grammar", false, false},
                                             {"grammar-file", true, false},
                                             {"json-schema", false, true},
                                             {"json-schema-file", true, true}}};

std::shared_ptr<const Grammar> read_from(const Source& source, const Options& options) {
  const std::string& given = options.text(source.name);
  const std::string text = source.is_file ? read_file(given, kMostBytes) : given;
  const std::string name = source.is_file ? given : "--" + std::string(source.name);
  return source.is_schema ? Grammar::from_json_schema(text, name) : Grammar::from_gbnf(text, name);
}

}  // namespace

std::vector<Option> grammar_options() {
  return {
      {.name = "grammar",
       .kind = OptionKind::text,
       .value_name = "GBNF",
       .help = "let the reply be what this grammar allows, in llama.cpp's notation",
       .group = "Text"},
      {.name = "grammar-file",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "read the grammar from a file",
       .group = "Text"},
      {.name = "json-schema",
       .spellings = "-j",
       .kind = OptionKind::text,
       .value_name = "SCHEMA",
       .help = "let the reply be JSON that this schema accepts; {} for any",
       .group = "Text"},
      {.name = "json-schema-file",
       .spellings = "-jf",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "read the schema from a file",
       .group = "Text"},
  };
}

std::shared_ptr<const Grammar> read_grammar(const Options& options) {
  const Source* chosen = nullptr;
  for (const Source& source : kSources) {
    if (!options.given(source.name)) continue;
    require(chosen == nullptr, "--", chosen == nullptr ? "" : chosen->name, " and --", source.name,
            " contradict each other: leave one out");
    chosen = &source;
  }
  return chosen == nullptr ? nullptr : read_from(*chosen, options);
}

}  // namespace leq::run

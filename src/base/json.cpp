#include "base/json.h"

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

// Checks nesting before the parser recurses or allocates.
void check_depth(std::string_view text, std::string_view source) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      require(++depth <= kMaxJsonDepth, source, ": JSON nested deeper than ", kMaxJsonDepth,
              " at offset ", i);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
}

}  // namespace

Json parse_json(std::string_view text, std::string_view source) {
  require(text.size() <= kMaxJsonBytes, source, ": JSON of ", text.size(), " bytes, at most ",
          kMaxJsonBytes, " are accepted");
  check_depth(text, source);
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& error) {
    fail(source, ": invalid JSON at offset ", error.byte, " of ", text.size(), " bytes");
  } catch (const Json::exception& error) {
    fail(source, ": invalid JSON: ", printable(error.what()));
  }
}

void json_type_error(const Json& object, const char* key, std::string_view source) {
  if (!object.is_object()) fail(source, ": expected a JSON object, found ", object.type_name());
  const auto found = object.find(key);
  if (found == object.end()) fail(source, ": key \"", key, "\" is missing");
  if (found->is_number())
    fail(source, ": key \"", key, "\" has an unexpected value, ", found->dump());
  fail(source, ": key \"", key, "\" has an unexpected type, found ", found->type_name());
}

}  // namespace leq

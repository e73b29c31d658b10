// Reads members of a request's JSON object, each with a type and a range: anything else is an error
// that names the member. null counts as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_tree.h"

namespace leq {

// Limits on a body's JSON: beside HTTP's limits they bound the memory that it takes.
inline constexpr JsonLimits kBodyLimits = {.bytes = 64 << 20, .values = 300'000};

// Parses a request's body. Throws Error where it is not JSON.
JsonTree parse_request_body(std::string_view body);
// The same; throws Error also where it is not an object.
JsonTree parse_request_object(std::string_view body);

// Throw Error where the member is present but not such a value.
std::optional<double> number_field(JsonNode object, std::string_view name);
std::optional<std::int64_t> whole_field(JsonNode object, std::string_view name, std::int64_t least,
                                        std::int64_t most);
bool flag_field(JsonNode object, std::string_view name);  // false where it is absent
std::optional<std::string> text_field(JsonNode object, std::string_view name);
// A text, or an array of at most `most` texts.
std::vector<std::string> texts_field(JsonNode object, std::string_view name, std::size_t most);
// The member, or nothing where it is absent or null.
JsonNode given_field(JsonNode object, std::string_view name);
// An object or nothing.
JsonNode object_field(JsonNode object, std::string_view name);

// Marks a member's name at the start of an error's text, so that the error names that member.
std::string marked_field(std::string_view name);

// Throws the error of a member: "max_tokens: expected ..., found ...".
[[noreturn]] void field_error(std::string_view name, std::string_view expected, JsonNode found);
[[noreturn]] void field_error(std::string_view name, std::string_view what);

}  // namespace leq

// Reads members of a request's JSON object and checks their types and ranges; an error names the
// member. null counts as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace leq {

// Limits on a body's JSON, which together with the limits on HTTP bound its memory.
inline constexpr JsonLimits kBodyLimits = {.bytes = 64 << 20, .values = 300'000};

// Parses a request's body. Throws Error if it is not JSON.
Json parse_request_body(std::string_view body);
// Like parse_request_body; also throws Error if the body is not an object.
Json parse_request_object(std::string_view body);

// These throw Error if the member is present but has another type.
std::optional<double> number_field(JsonNode object, std::string_view name);
std::optional<std::int64_t> whole_field(JsonNode object, std::string_view name, std::int64_t least,
                                        std::int64_t most);
bool flag_field(JsonNode object, std::string_view name);  // false if absent
std::optional<std::string> text_field(JsonNode object, std::string_view name);
// Reads one text, or an array of at most `most` texts.
std::vector<std::string> texts_field(JsonNode object, std::string_view name, std::size_t most);
// The member, or nothing if it is absent or null.
JsonNode given_field(JsonNode object, std::string_view name);
// The member, which must be an object, or nothing if it is absent.
JsonNode object_field(JsonNode object, std::string_view name);

// Marks a member's name at the start of an error message, so that the error refers to it.
std::string marked_field(std::string_view name);

// Throws an error about a member: "max_tokens: expected ..., found ...".
[[noreturn]] void field_error(std::string_view name, std::string_view expected, JsonNode found);
[[noreturn]] void field_error(std::string_view name, std::string_view what);

}  // namespace leq

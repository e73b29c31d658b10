// JSON from untrusted text: nlohmann-json behind limits on size and depth, with errors that name
// the source and the offset. Include this in .cpp files only; headers use <nlohmann/json_fwd.hpp>.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>
#include <utility>

namespace leq {

using Json = nlohmann::json;

inline constexpr std::uint64_t kMaxJsonBytes = 256ull << 20;
inline constexpr int kMaxJsonDepth = 64;

// Parses exactly one JSON value. Duplicate keys: the last wins. Throws Error naming `source`.
Json parse_json(std::string_view text, std::string_view source);

// object[key] as T; throws Error naming `source` and the key where it is absent, of another type,
// or does not fit.
template <class T>
T json_get(const Json& object, const char* key, std::string_view source);
// The same, or `fallback` where the key is absent or null.
template <class T>
T json_get_or(const Json& object, const char* key, T fallback, std::string_view source);

[[noreturn]] void json_type_error(const Json& object, const char* key, std::string_view source);

template <class T>
T json_get(const Json& object, const char* key, std::string_view source) {
  if (object.is_object()) {
    const auto found = object.find(key);
    if (found != object.end()) {
      if constexpr (std::is_same_v<T, bool>) {
        if (found->is_boolean()) return found->template get<T>();
      } else if constexpr (std::is_integral_v<T>) {
        if (found->is_number_unsigned()) {
          if (std::in_range<T>(found->template get<std::uint64_t>()))
            return found->template get<T>();
        } else if (found->is_number_integer()) {
          if (std::in_range<T>(found->template get<std::int64_t>()))
            return found->template get<T>();
        }
      } else if constexpr (std::is_floating_point_v<T>) {
        if (found->is_number()) return found->template get<T>();
      } else {
        if (found->is_string()) return found->template get<T>();
      }
    }
  }
  json_type_error(object, key, source);
}

template <class T>
T json_get_or(const Json& object, const char* key, T fallback, std::string_view source) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  return json_get<T>(object, key, source);
}

}  // namespace leq

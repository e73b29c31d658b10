// The common frame of all C functions: option structs with checked sizes, handles with checked
// kinds, and translation of exceptions to a status and a message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "capi/leq.h"

namespace leq::capi {

// An error with a status that no ErrorKind maps to.
class StatusError : public Error {
 public:
  StatusError(leq_status status, const std::string& text)
      : Error(text, ErrorKind::internal), status_(status) {}
  leq_status status() const { return status_; }

 private:
  leq_status status_;
};

[[noreturn]] void misuse(const std::string& text);
inline void require_use(bool good, const char* text) {
  if (!good) [[unlikely]]
    misuse(text);
}

// Converts the current exception.
leq_status report(leq_error* error);

// Calls `work`; an exception is converted to a status and fills `error`, which may be null.
template <class Work>
leq_status guarded(leq_error* error, Work work) noexcept {
  try {
    work();
    return LEQ_OK;
  } catch (...) {
    return report(error);
  }
}

inline constexpr std::uint32_t kMostStructBytes = 4096;
void check_struct_size(std::uint32_t size, const char* name);
// The bytes beyond the known options must be 0: other values request a feature of a newer version.
void check_rest(const void* given, std::size_t known, std::size_t size, const char* name);

// Copies the caller's options into this version's struct; members beyond their size become 0.
template <class Options>
Options options_of(const Options* given, const char* name) {
  static_assert(std::is_trivially_copyable_v<Options>);
  Options options = {};
  if (given == nullptr) return options;
  check_struct_size(given->size, name);
  check_rest(given, sizeof(Options), given->size, name);
  std::memcpy(&options, given, std::min<std::size_t>(sizeof(Options), given->size));
  return options;
}

// Copies `result` into the caller's struct, up to its size.
template <class Result>
void give(Result result, Result* out, const char* name) {
  check_struct_size(out->size, name);
  result.size = out->size;
  std::memcpy(out, &result, std::min<std::size_t>(sizeof(Result), out->size));
}

// Memory that the caller frees with leq_free. These throw std::bad_alloc.
char* new_text(std::string_view text);  // zero-terminated
leq_token* new_tokens(std::span<const leq_token> tokens);

// Check text and list arguments: a null pointer with a size is an error.
std::string_view text_argument(const char* text, std::size_t bytes, const char* name);
std::span<const leq_token> tokens_argument(const leq_token* tokens, std::size_t count);
inline std::string or_empty(const char* text) { return text == nullptr ? "" : text; }

// The first member of every handle. Identifies its kind, and detects most uses after close.
enum class HandleKind : std::uint32_t {
  closed = 0x6c657100,
  model,
  session,
  grammar,
  replies,
  logits,
  cancel
};
struct Handle {
  explicit Handle(HandleKind handle_kind) : kind(handle_kind) {}
  ~Handle() { const_cast<volatile HandleKind&>(kind) = HandleKind::closed; }
  Handle(const Handle&) = delete;
  HandleKind kind;
};

void check_handle(const Handle* handle, HandleKind kind, const char* name);

}  // namespace leq::capi

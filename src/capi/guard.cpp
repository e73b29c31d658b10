#include "capi/guard.h"

#include <cstdlib>
#include <new>

#include "server/api_error.h"

namespace leq::capi {
namespace {

leq_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::bad_input:
      return LEQ_BAD_INPUT;
    case ErrorKind::bad_setting:
      return LEQ_BAD_SETTING;
    case ErrorKind::no_memory:
      return LEQ_NO_MEMORY;
    case ErrorKind::no_device:
      return LEQ_NO_DEVICE;
    case ErrorKind::io:
      return LEQ_IO;
    case ErrorKind::interrupted:
      return LEQ_INTERRUPTED;
    case ErrorKind::internal:
      break;
  }
  return LEQ_INTERNAL;
}

leq_status status_of(const Error& error) {
  if (const auto* own = dynamic_cast<const StatusError*>(&error)) return own->status();
  const auto* api = dynamic_cast<const ApiError*>(&error);
  if (api != nullptr && api->code() == "context_length_exceeded") return LEQ_CONTEXT_FULL;
  return status_of(error.kind());
}

// Copies as many whole characters as fit, followed by a terminating zero.
void copy_text(std::string_view text, char* to, std::size_t capacity) {
  if (capacity == 0) return;
  std::size_t bytes = std::min(text.size(), capacity - 1);
  while (bytes > 0 && bytes < text.size() && (static_cast<unsigned char>(text[bytes]) >> 6) == 2) {
    --bytes;
  }
  std::memcpy(to, text.data(), bytes);
  to[bytes] = '\0';
}

leq_status fill(leq_error* error, leq_status status, std::string_view setting,
                std::string_view text) {
  if (error == nullptr || error->size < offsetof(leq_error, setting)) return status;
  error->status = status;
  const auto capacity = [&](std::size_t offset, std::size_t most) {
    return error->size > offset ? std::min<std::size_t>(error->size - offset, most) : 0;
  };
  copy_text(setting, error->setting, capacity(offsetof(leq_error, setting), sizeof error->setting));
  copy_text(text, error->text, capacity(offsetof(leq_error, text), sizeof error->text));
  return status;
}

}  // namespace

void misuse(const std::string& text) { throw StatusError(LEQ_MISUSE, text); }

leq_status report(leq_error* error) {
  try {
    throw;
  } catch (const Error& known) {
    try {
      return fill(error, status_of(known), known.setting(), known.what());
    } catch (...) {
      return fill(error, LEQ_NO_MEMORY, "", "out of memory");
    }
  } catch (const std::bad_alloc&) {
    return fill(error, LEQ_NO_MEMORY, "", "out of memory");
  } catch (const std::length_error& error_of_size) {
    return fill(error, LEQ_NO_MEMORY, "", error_of_size.what());
  } catch (const std::exception& other) {
    return fill(error, LEQ_INTERNAL, "", other.what());
  } catch (...) {
    return fill(error, LEQ_INTERNAL, "", "an exception of no known type");
  }
}

void check_struct_size(std::uint32_t size, const char* name) {
  if (size >= sizeof size && size <= kMostStructBytes) return;
  misuse(std::string(name) + ".size " + std::to_string(size) + ": set it to sizeof(" + name + ")");
}

void check_rest(const void* given, std::size_t known, std::size_t size, const char* name) {
  const auto* bytes = static_cast<const unsigned char*>(given);
  for (std::size_t i = known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    misuse(std::string(name) + ": a member at byte " + std::to_string(i) +
           " is set, which this version does not know");
  }
}

char* new_text(std::string_view text) {
  auto* block = static_cast<char*>(std::malloc(text.size() + 1));
  if (block == nullptr) throw std::bad_alloc();
  if (!text.empty()) std::memcpy(block, text.data(), text.size());
  block[text.size()] = '\0';
  return block;
}

leq_token* new_tokens(std::span<const leq_token> tokens) {
  auto* block = static_cast<leq_token*>(std::malloc(std::max<std::size_t>(tokens.size_bytes(), 1)));
  if (block == nullptr) throw std::bad_alloc();
  if (!tokens.empty()) std::memcpy(block, tokens.data(), tokens.size_bytes());
  return block;
}

constexpr std::size_t kMostBytes = std::size_t{1} << 40;

std::string_view text_argument(const char* text, std::size_t bytes, const char* name) {
  if (text == nullptr && bytes > 0) misuse(std::string(name) + " is NULL");
  if (bytes > kMostBytes) misuse(std::string(name) + ": " + std::to_string(bytes) + " bytes");
  return text == nullptr ? std::string_view("") : std::string_view(text, bytes);
}

std::span<const leq_token> tokens_argument(const leq_token* tokens, std::size_t count) {
  require_use(tokens != nullptr || count == 0, "tokens is NULL");
  if (count > kMostBytes / sizeof(leq_token)) misuse("count " + std::to_string(count));
  return {tokens, count};
}

void check_handle(const Handle* handle, HandleKind kind, const char* name) {
  if (handle == nullptr) misuse(std::string(name) + " is NULL");
  if (handle->kind == kind) return;
  misuse(std::string(name) + (handle->kind == HandleKind::closed
                                  ? " was closed"
                                  : " is a handle of another kind, or none"));
}

}  // namespace leq::capi

extern "C" {

uint32_t leq_abi_version(void) { return LEQ_ABI_VERSION; }

void leq_free(void* block) { std::free(block); }

const char* leq_status_name(leq_status status) {
  constexpr const char* kNames[] = {"ok",        "bad_input",   "bad_setting", "no_memory",
                                    "no_device", "io",          "interrupted", "internal",
                                    "misuse",    "context_full"};
  return status >= 0 && status < static_cast<leq_status>(std::size(kNames)) ? kNames[status]
                                                                            : "unknown";
}

}  // extern "C"

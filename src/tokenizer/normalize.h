// Normalizes text before it is split: NFC, and the literal rules of a tokenizer's normalizers.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "tokenizer/spec.h"

namespace leq {

// The maximum length after normalization of a text of `bytes` bytes. Needed because a file's steps
// are untrusted: thirty steps that each double a letter would make a gigabyte of it.
constexpr std::size_t longest_normalized(std::size_t bytes) { return 16 * bytes + (64u << 10); }

struct NormalizeOptions {
  bool prepend = true;        // apply prepend steps: the stretch begins its segment
  std::size_t max_bytes = 0;  // limit of the result and of intermediate texts
  std::string_view source;    // file of the steps, for errors
};

// `text` must be well-formed UTF-8. The result is `text` itself if nothing changes, otherwise a
// view of `buffer`. Throws Error naming source and step if a text would exceed max_bytes, before
// allocating more memory than that.
std::string_view normalize(std::span<const Normalizer> steps, std::string_view text,
                           const NormalizeOptions& options, std::string& buffer);

// Throws Error like normalize if the steps lengthen a text made of their own patterns beyond
// longest_normalized, because such a file could not be used for any text.
void check_normalizers(std::span<const Normalizer> steps, std::string_view source);

// Unicode normalization form C; linear in the length except for sorting runs of combining marks.
std::string nfc(std::string_view text);

}  // namespace leq

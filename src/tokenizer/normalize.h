// Changes text before it is split: NFC and the literal rules of a tokenizer's normalizers.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "tokenizer/spec.h"

namespace leq {

// How long a text of so many bytes may become. Steps come from files: thirty of them that double a
// letter would make a gigabyte of it.
constexpr std::size_t longest_normalized(std::size_t bytes) { return 16 * bytes + (64u << 10); }

struct NormalizeOptions {
  bool prepend = true;        // whether steps of kind prepend apply: the stretch begins its segment
  std::size_t max_bytes = 0;  // of the result and of what lies between two steps
  std::string_view source;    // whose steps they are, for errors
};

// `text` is well-formed UTF-8. The result is `text` itself where nothing changes, else a view of
// `buffer`. Throws Error naming source and step where it becomes longer than max_bytes; no more
// memory than that is taken.
std::string_view normalize(std::span<const Normalizer> steps, std::string_view text,
                           const NormalizeOptions& options, std::string& buffer);

// Throws Error as normalize does where the steps lengthen a text of their own patterns beyond
// longest_normalized: a file that no text should be given to.
void check_normalizers(std::span<const Normalizer> steps, std::string_view source);

// Unicode normalization form C; linear in the length apart from sorting runs of combining marks.
std::string nfc(std::string_view text);

}  // namespace leq

// Changes text before it is split: NFC and the literal rules of a tokenizer's normalizers.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tokenizer/spec.h"

namespace leq {

// `text` is well-formed UTF-8. The result is `text` itself where nothing changes, else a view of
// `buffer`. `prepend`: whether rules of kind prepend apply (the stretch begins its segment).
std::string_view normalize(std::span<const Normalizer> steps, std::string_view text, bool prepend,
                           std::string& buffer);

// Unicode normalization form C; linear in the length apart from sorting runs of combining marks.
std::string nfc(std::string_view text);

}  // namespace leq

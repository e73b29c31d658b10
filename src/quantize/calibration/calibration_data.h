// The text that calibration runs on, as windows of tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace leq {

struct CalibrationRequest {
  std::string text;    // empty: the built-in one
  std::string source;  // its name for people: a path, "built-in"
  std::int64_t samples = 128;
  std::int64_t length = 512;
  std::uint64_t seed = 0;
};

struct CalibrationData {
  std::vector<std::vector<Token>> windows;  // all of one length, in the order of the text
  std::int64_t length = 0;
  std::uint64_t seed = 0;
  std::string source;
  std::string text_sha256;
  std::string note;  // where the text was too short for what was asked; else empty

  std::int64_t tokens() const { return std::ssize(windows) * length; }
};

// Windows that begin at random tokens of the text; where the tokenizer adds a BOS, each begins with
// it. A text shorter than one window gives smaller ones, said in `note`. `context` is the longest
// window that the model takes. Throws Error where the text has fewer than 16 tokens.
CalibrationData calibration_data(const CalibrationRequest& request, const Tokenizer& tokenizer,
                                 std::int64_t context);

// 54 KB of English for this project: prose, dialogue, lists, numbers and code, articles, and
// stories that the storyteller of examples/ told.
std::string_view built_in_calibration_text();
// Two pages more, to judge by what was calibrated on the first; no sentence stands in both.
std::string_view built_in_heldout_text();

}  // namespace leq

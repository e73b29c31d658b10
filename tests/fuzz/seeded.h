// Valid examples for a fuzz target, written in code, and mutations of whole parts of a text. Runs
// without a corpus mutate these examples.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {
std::vector<std::string> examples();  // for the target
}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace leq::fuzz {

// Strings, numbers and all between two brackets: the parts of JSON, GBNF, templates and headers.
// The loop calls nothing and is not instrumented, which took half the time of long inputs.
[[clang::no_sanitize("coverage", "address", "undefined")]] inline std::vector<std::string_view>
parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  std::array<const char*, 64> open;
  std::size_t depth = 0;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end; ++at) {
    const char c = *at;
    const char* begin = at;
    if (c == '{' || c == '[' || c == '(') {
      open.data()[depth++ % 64] = at;
      continue;
    }
    if (c == '}' || c == ']' || c == ')') {
      if (depth == 0) continue;
      begin = open.data()[--depth % 64];
    } else if (c == '"') {
      while (++at < end && *at != '"') at += *at == '\\';
      if (at >= end) break;
    } else if (c >= '0' && c <= '9') {
      while (at + 1 < end && at[1] >= '0' && at[1] <= '9') ++at;
    } else {
      continue;
    }
    parts.emplace_back(begin, static_cast<std::size_t>(at + 1 - begin));
  }
  return parts;
}

inline constexpr std::array<std::string_view, 12> kValues = {"null",
                                                             "true",
                                                             "-1",
                                                             "0",
                                                             "1e308",
                                                             "9223372036854775807",
                                                             "\"\"",
                                                             "[]",
                                                             "{}",
                                                             "\"\\ud800\"",
                                                             "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]",
                                                             "\"\xff\""};

// Removes, repeats or replaces one part of `text`; the replacement is another part of it, a part of
// `other`, or one of kValues.
inline std::string with_part_changed(const std::string& text, const std::string& other,
                                     unsigned seed) {
  std::minstd_rand random(seed);
  const auto any = [&](const auto& all) { return all[random() % all.size()]; };
  const auto parts = parts_of(text);
  if (parts.empty()) return text;
  const std::string_view part = any(parts);
  std::string replacement;
  switch (random() % 5) {
    case 0:
      break;
    case 1:
      replacement = std::string(part) + "," + std::string(part);
      break;
    case 2:
      replacement = any(parts);
      break;
    case 3:
      if (const auto others = parts_of(other); !others.empty()) replacement = any(others);
      break;
    default:
      replacement = any(kValues);
  }
  std::string changed = text;
  return changed.replace(static_cast<std::size_t>(part.data() - text.data()), part.size(),
                         replacement);
}

}  // namespace leq::fuzz

// Replaces an (almost) empty input by one of the examples, and changes a part of every second
// other; libFuzzer mutates the rest as usual.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  static const std::vector<std::string> kExamples = examples();
  const std::string& example = kExamples[seed / 2 % kExamples.size()];
  std::string text;
  if (size <= 2) {
    text = example;
  } else if (seed % 2 == 0) {
    text = leq::fuzz::with_part_changed(std::string(data, data + size), example, seed);
  } else {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const std::size_t count = std::min(text.size(), max_size);
  std::copy_n(text.begin(), count, data);
  return count;
}

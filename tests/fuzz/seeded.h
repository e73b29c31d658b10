// Valid examples for a fuzz target, written in code. Runs without a corpus mutate these examples.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {
std::vector<std::string> examples();  // for the target
}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

// Replaces an (almost) empty input by one of the examples; libFuzzer mutates any other input as
// usual.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  static const std::vector<std::string> kExamples = examples();
  if (size > 2) return LLVMFuzzerMutate(data, size, max_size);
  const std::string& example = kExamples[seed % kExamples.size()];
  const std::size_t count = std::min(example.size(), max_size);
  std::copy_n(example.begin(), count, data);
  return count;
}

// The parts into which the time of a step is divided, and what a backend reports for each part.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace leq {

enum class StepPart : std::uint8_t {
  load,       // rows of the embedding
  quant,      // norms with their codes, codes of outputs that are not fused
  gemm,       // linears, with operations fused into them
  attention,  // rotary embedding, stores to the cache, attention
  comm,       // exchange between devices
  sync,       // everything else: waits, download of logits, the host's own work
  sample,     // sampling of the next token
  delta,      // Gated DeltaNet between its linears
};
inline constexpr std::array<std::string_view, 8> kStepPartNames = {
    "load", "quant", "gemm", "attention", "comm", "sync", "sample", "delta"};

struct PartTimes {
  double seconds = 0;
  std::uint64_t bytes = 0;  // bytes that the operations must move at least
  std::int64_t operations = 0;
};
struct StepTimes {
  std::array<PartTimes, kStepPartNames.size()> parts;

  PartTimes& operator[](StepPart part) { return parts[static_cast<std::size_t>(part)]; }
  const PartTimes& operator[](StepPart part) const { return parts[static_cast<std::size_t>(part)]; }
};

}  // namespace leq

// The parts that the time of a step is divided into, and what a backend says of each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace leq {

enum class StepPart : std::uint8_t {
  load,       // rows of the embedding
  quant,      // norms with the codes they write, rotations, codes of outputs where nothing is fused
  gemm,       // linears with what is fused into them
  attention,  // rotary embedding, keys and values into the cache, attention
  comm,       // exchange between devices
  sync,       // all else: waits, logits on their way to the host, the host's own work
  sample,     // the next token
  delta,      // Gated DeltaNet between its linears
};
inline constexpr std::array<std::string_view, 8> kStepPartNames = {
    "load", "quant", "gemm", "attention", "comm", "sync", "sample", "delta"};

struct PartTimes {
  double seconds = 0;
  std::uint64_t bytes = 0;  // that must be read and written, not those that were
  std::int64_t operations = 0;
};
struct StepTimes {
  std::array<PartTimes, kStepPartNames.size()> parts;

  PartTimes& operator[](StepPart part) { return parts[static_cast<std::size_t>(part)]; }
  const PartTimes& operator[](StepPart part) const { return parts[static_cast<std::size_t>(part)]; }
};

}  // namespace leq

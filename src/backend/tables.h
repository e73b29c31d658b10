// Tables that a model keeps in device memory in addition to its weights.
#pragma once

#include <cstdint>
#include <span>

#include "backend/decoder_parts.h"
#include "backend/memory.h"

namespace leq {

// Rotary embedding: pairs (i, i + d/2) are rotated by position * inv_freq[i]. Operations fill the
// table of cosines and sines as positions are first used.
struct RopeTable {
  std::span<const float> inv_freq;  // [d/2], scaled; empty without rotary embedding
  float attention_factor = 1.0f;
  std::int64_t context = 0;  // largest position + 1
  std::int64_t filled = 0;
  Buffer memory;  // [context][2][d/2] f32: cosines, then sines
  // q of position p is multiplied by query_factors[p / query_period], which is 1/sqrt(d) times a
  // temperature. If the period is 0, it is multiplied by 1/sqrt(d) at every position.
  std::int64_t query_period = 0;
  Buffer query_factors = {};  // [(context - 1) / period + 1] f32
};
RopeTable make_rope(DeviceMemory& memory, std::span<const float> inv_freq, float attention_factor,
                    std::int64_t context);
// Sets the factors of all positions up to rope.context; throws Error if there are too few.
void set_query_factors(DeviceMemory& memory, RopeTable& rope, std::int64_t period,
                       std::span<const float> factors);
// Computes `count` rows [2][d/2] of the table from position `first` on, for devices to copy:
// angle = float(pos) * inv; c, s = float(cos(double(angle))), float(sin(double(angle))), each times
// the attention factor
void fill_rope_rows(const RopeTable& rope, std::int64_t first, std::int64_t count, float* rows);

}  // namespace leq

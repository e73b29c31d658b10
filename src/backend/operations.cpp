#include "backend/operations.h"

#include <cmath>

#include "backend/backend.h"
#include "backend/layout.h"
#include "base/error.h"
#include "tensor/quant_scheme.h"

namespace leq {

RopeTable make_rope(DeviceMemory& memory, std::span<const float> inv_freq, float attention_factor,
                    std::int64_t context) {
  const auto numbers = inv_freq.size() * 2 * static_cast<std::size_t>(context);
  return {inv_freq, attention_factor, context, 0, Buffer(memory, numbers * sizeof(float))};
}

void set_query_factors(DeviceMemory& memory, RopeTable& rope, std::int64_t period,
                       std::span<const float> factors) {
  ensure(period > 0 && std::ssize(factors) * period >= rope.context,
         "factors of queries: ", factors.size(), " of ", period, " positions for a context of ",
         rope.context);
  rope.query_period = period;
  rope.query_factors = Buffer(memory, factors.size_bytes());
  memory.write(rope.query_factors.data(), std::as_bytes(factors));
}

void fill_rope_rows(const RopeTable& rope, std::int64_t first, std::int64_t count, float* rows) {
  const auto half = std::ssize(rope.inv_freq);
  for (std::int64_t position = first; position < first + count; ++position, rows += 2 * half) {
    for (std::int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * rope.inv_freq[static_cast<std::size_t>(i)];
      rows[i] = static_cast<float>(std::cos(double{angle})) * rope.attention_factor;
      rows[half + i] = static_cast<float>(std::sin(double{angle})) * rope.attention_factor;
    }
  }
}

DeltaShape DeltaShape::whole() const {
  DeltaShape all = *this;
  if (all_key_heads == 0) return all;
  all.key_heads = all_key_heads;
  all.value_heads = all_value_heads;
  all.first_key_head = 0;
  return all;
}

int DeltaShape::group() const {
  const DeltaShape all = whole();
  return all.value_heads / all.key_heads;
}

int DeltaShape::first_value_head() const { return first_key_head * group(); }

std::int64_t delta_state_numbers(const DeltaShape& shape) {
  return shape.key_dim * shape.values() + (shape.taps - 1) * shape.channels();
}

std::int64_t short_conv_state_numbers(const ShortConvShape& shape) {
  return (shape.taps - 1) * shape.channels;
}

std::string linear_text(const Linear& linear, std::string_view kernel) {
  std::string text = scheme_name(linear.segments[0].weight.scheme) + " x ";
  text += act_inputs(linear.act);
  text += linear.inv_smooth == nullptr ? ", " : " smoothed, ";
  return text.append(kernel);
}

}  // namespace leq

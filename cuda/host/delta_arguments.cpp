#include "cuda/host/delta_arguments.h"

#include <cmath>

namespace leq::LEQ_GPU {

DeltaArguments delta_arguments(const DeltaShape& shape) {
  constexpr float kL2Eps = 1e-6f;
  // l2(x) is expressed as an RMS norm: x / sqrt(mean + eps / d) / sqrt(d); queries have another
  // factor 1 / sqrt(d).
  const auto gain = [&](int roots) {
    return static_cast<float>(std::pow(static_cast<double>(shape.key_dim), -0.5 * roots));
  };
  DeltaArguments a;
  a.key_heads = shape.key_heads;
  a.value_heads = shape.value_heads;
  a.key_dim = shape.key_dim;
  a.value_dim = shape.value_dim;
  a.taps = shape.taps;
  const DeltaShape all = shape.whole();
  const std::int64_t first_key = std::int64_t{shape.first_key_head} * shape.key_dim;
  const int first_value = shape.first_value_head();
  a.gate_stride = all.value_heads;
  a.conv[0] = shape.conv + first_key;
  a.conv[1] = a.conv[0] + all.keys();
  a.conv[2] = shape.conv + 2 * all.keys() + std::int64_t{first_value} * shape.value_dim;
  a.conv_stride = all.channels();
  a.a_log = shape.a_log + first_value;
  a.dt_bias = shape.dt_bias + first_value;
  a.norm_gain = shape.norm.gain;
  a.norm_eps = shape.norm.eps;
  a.l2_eps = kL2Eps / static_cast<float>(shape.key_dim);
  a.query_gain = gain(2);
  a.key_gain = gain(1);
  a.state_at = static_cast<std::int64_t>(shape.state_at);
  return a;
}

ShortConvArguments short_conv_arguments(const ShortConvShape& shape) {
  ShortConvArguments a;
  a.channels = shape.channels;
  a.taps = shape.taps;
  a.conv = shape.conv;
  a.conv_stride = shape.conv_stride;
  a.state_at = static_cast<std::int64_t>(shape.state_at);
  return a;
}

}  // namespace leq::LEQ_GPU

#include "model/workspace.h"

#include <algorithm>

#include "base/error.h"
#include "model/rotation.h"

namespace leq {
namespace {

struct BlockSpec {
  Reader reader;
  std::int64_t capacity;
  std::int64_t width;
  RowsFormat format;
};

// One block for each reader and format that the model's linears call for.
std::vector<BlockSpec> input_blocks(const Weights& weights, const Layout& layout,
                                    const ForwardLimits& limits) {
  std::vector<BlockSpec> specs;
  const auto want = [&](Reader reader, const Linear& linear, std::int64_t capacity) {
    const RowsFormat format = layout.format_for(linear);
    const auto same = [&](const BlockSpec& spec) {
      return spec.reader == reader && spec.format == format;
    };
    if (std::none_of(specs.begin(), specs.end(), same)) {
      specs.push_back({reader, capacity, linear.inputs, format});
    }
  };
  for (const Block& block : weights.blocks) {
    want(Reader::qkv, block.qkv, limits.batch_tokens);
    want(Reader::o, block.o, limits.batch_tokens);
    want(Reader::gate_up, block.gate_up, limits.batch_tokens);
    want(Reader::down, block.down, limits.batch_tokens);
  }
  want(Reader::head, weights.head, limits.output_tokens);
  return specs;
}

std::vector<OnlineInput> online_inputs(const Weights& weights) {
  std::vector<OnlineInput> inputs;
  const auto add = [&](const Linear& linear) {
    if (!has_moving_scale(linear.act)) return;
    inputs.push_back({&linear, OnlineScale(OnlineOptions{.mode = linear.online_mode})});
  };
  for (const Block& block : weights.blocks) {
    for (const Linear* linear : {&block.qkv, &block.o, &block.gate_up, &block.down}) add(*linear);
  }
  add(weights.head);
  return inputs;
}

constexpr RowsFormat kPlain = {};

std::int64_t qkv_width(const ModelConfig& config) {
  return (config.heads + 2 * config.kv_heads) * config.head_dim;
}

RotationTable residual_rotation(const ModelConfig& config, DeviceMemory& memory) {
  if (config.rotation.block == 0) return {};
  return make_rotation(memory, rotation_factors(config), config.rotation.block, config.norm);
}

}  // namespace

AttentionShape attention_shape(const ModelConfig& config, const Block& block, std::int64_t layer) {
  AttentionShape shape;
  shape.heads = static_cast<int>(config.heads);
  shape.kv_heads = static_cast<int>(config.kv_heads);
  shape.head_dim = static_cast<int>(config.head_dim);
  shape.window = config.window(layer);
  shape.q_norm = block.q_norm ? &*block.q_norm : nullptr;
  shape.k_norm = block.k_norm ? &*block.k_norm : nullptr;
  shape.rotary = config.rotary;
  return shape;
}

Workspace::Workspace(const ModelConfig& config, const Weights& weights, DeviceMemory& memory,
                     const Layout& layout, const ForwardLimits& limits)
    : frequencies(rope_frequencies(config, limits.context)),
      rope(make_rope(memory, frequencies.inv_freq, frequencies.attention_factor, limits.context)),
      rotation(residual_rotation(config, memory)),
      x(allocate_rows(memory, layout, limits.batch_tokens, config.width, kPlain)),
      qkv(allocate_rows(memory, layout, limits.batch_tokens, qkv_width(config), kPlain)),
      last(allocate_rows(memory, layout, limits.output_tokens, config.width, kPlain)),
      logits(allocate_rows(memory, layout, limits.output_tokens, config.vocab, kPlain)),
      layout_(layout),
      online_(online_inputs(weights)) {
  for (const BlockSpec& spec : input_blocks(weights, layout, limits)) {
    inputs_.push_back({spec.reader, spec.format,
                       allocate_rows(memory, layout, spec.capacity, spec.width, spec.format)});
  }
  const AttentionShape shape = attention_shape(config, weights.blocks[0], 0);
  memory.scratch(layout.scratch_bytes(limits.batch_tokens, shape, limits.context));
}

RowsFor Workspace::input_of(Reader reader, const Linear& linear) {
  const RowsFormat format = layout_.format_for(linear);
  for (Input& input : inputs_) {
    if (input.reader != reader || input.format != format) continue;
    RowsConsumer consumer = {linear.act_scale, nullptr, linear.inv_smooth};
    for (OnlineInput& online : online_) {
      if (online.linear == &linear) consumer.online = &online.scale;
    }
    return {input.rows, consumer};
  }
  fail(ErrorKind::internal, linear.name, ": no block of activations in its format");
}

}  // namespace leq

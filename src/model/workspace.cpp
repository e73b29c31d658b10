#include "model/workspace.h"

#include <algorithm>

#include "base/error.h"

namespace leq {
namespace {

struct BlockSpec {
  Reader reader;
  std::int64_t capacity;
  std::int64_t width;
  RowsFormat format;
};

// One block for each reader and format that the model's linears call for.
std::vector<BlockSpec> input_blocks(const Weights& weights, const Backend& backend,
                                    const ForwardLimits& limits) {
  std::vector<BlockSpec> specs;
  const auto want = [&](Reader reader, const Linear& linear, std::int64_t capacity) {
    const RowsFormat format = backend.format_for(linear);
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
    if (linear.act != ActKind::online) return;
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

}  // namespace

Workspace::Workspace(const ModelConfig& config, const Weights& weights, Backend& backend,
                     const ForwardLimits& limits)
    : x(backend.allocate_rows(limits.batch_tokens, config.width, kPlain)),
      qkv(backend.allocate_rows(limits.batch_tokens, qkv_width(config), kPlain)),
      last(backend.allocate_rows(limits.output_tokens, config.width, kPlain)),
      logits(backend.allocate_rows(limits.output_tokens, config.vocab, kPlain)),
      backend_(backend),
      online_(online_inputs(weights)) {
  for (const BlockSpec& spec : input_blocks(weights, backend, limits)) {
    inputs_.push_back(
        {spec.reader, spec.format, backend.allocate_rows(spec.capacity, spec.width, spec.format)});
  }
}

Rows& Workspace::input_of(Reader reader, const Linear& linear) {
  const RowsFormat format = backend_.format_for(linear);
  for (Input& input : inputs_) {
    if (input.reader != reader || input.format != format) continue;
    input.rows.consumer = {linear.act_scale, nullptr, linear.inv_smooth};
    for (OnlineInput& online : online_) {
      if (online.linear == &linear) input.rows.consumer.online = &online.scale;
    }
    return input.rows;
  }
  fail(ErrorKind::internal, linear.name, ": no block of activations in its format");
}

std::size_t Workspace::bytes(const ModelConfig& config, const Weights& weights,
                             const Backend& backend, const ForwardLimits& limits) {
  std::size_t bytes = backend.rows_bytes(limits.batch_tokens, config.width, kPlain) +
                      backend.rows_bytes(limits.batch_tokens, qkv_width(config), kPlain) +
                      backend.rows_bytes(limits.output_tokens, config.width, kPlain) +
                      backend.rows_bytes(limits.output_tokens, config.vocab, kPlain);
  for (const BlockSpec& spec : input_blocks(weights, backend, limits)) {
    bytes += backend.rows_bytes(spec.capacity, spec.width, spec.format);
  }
  return bytes;
}

}  // namespace leq

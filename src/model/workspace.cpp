#include "model/workspace.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/rows_slice.h"
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

// Codes with their scales and sums are fewer bytes than f32 rows.
std::size_t exchange_bytes(const ModelConfig& config, const Layout& layout,
                           const ForwardLimits& limits) {
  const std::int64_t attention = config.heads * config.head_dim;
  const std::int64_t inner = std::max({config.width, attention, config.hidden});
  constexpr std::int64_t kFloat = sizeof(float);
  return std::max(layout.exchange_bytes(limits.batch_tokens, inner * kFloat),
                  layout.exchange_bytes(limits.output_tokens, config.vocab * kFloat));
}

std::int64_t qkv_width(const ModelConfig& config, const RankShare& share) {
  return (share.heads.count() + 2 * share.kv_heads.count()) * config.head_dim;
}

template <class Of>
std::vector<Slice> slices(const RankPlace& place, Of of) {
  std::vector<Slice> all;
  for (const RankShare& share : place.shares) all.push_back(of(share));
  return all;
}

RotationTable residual_rotation(const ModelConfig& config, DeviceMemory& memory) {
  if (config.rotation.block == 0) return {};
  return make_rotation(memory, rotation_factors(config), config.rotation.block, config.norm);
}

}  // namespace

AttentionShape attention_shape(const ModelConfig& config, const Block& block, std::int64_t layer,
                               const RankShare& share) {
  AttentionShape shape;
  shape.heads = static_cast<int>(share.heads.count());
  shape.kv_heads = static_cast<int>(share.kv_heads.count());
  if (shape.heads != config.heads) {
    shape.group = static_cast<int>(config.heads / config.kv_heads);
    const std::int64_t first_query = share.kv_heads.first * shape.group;
    if (shape.heads > 0) shape.first_head = static_cast<int>(share.heads.first - first_query);
  }
  shape.head_dim = static_cast<int>(config.head_dim);
  shape.window = config.window(layer);
  shape.q_norm = block.q_norm ? &*block.q_norm : nullptr;
  shape.k_norm = block.k_norm ? &*block.k_norm : nullptr;
  shape.rotary = config.rotary;
  if (block.key_offset != nullptr) {
    shape.key_offset = block.key_offset + share.kv_heads.first * config.head_dim;
  }
  return shape;
}

Workspace::Workspace(const ModelConfig& config, const Weights& weights, DeviceMemory& memory,
                     const Layout& layout, const ForwardLimits& limits, const RankPlace& place)
    : frequencies(rope_frequencies(config, limits.context)),
      rope(make_rope(memory, frequencies.inv_freq, frequencies.attention_factor, limits.context)),
      rotation(residual_rotation(config, memory)),
      x(allocate_rows(memory, layout, limits.batch_tokens, config.width, kPlain)),
      qkv(allocate_rows(memory, layout, limits.batch_tokens, qkv_width(config, place.own()),
                        kPlain)),
      last(allocate_rows(memory, layout, limits.output_tokens, config.width, kPlain)),
      logits(allocate_rows(memory, layout, limits.output_tokens,
                           place.leads() ? config.vocab : place.own().vocabulary.count(), kPlain)),
      exchange(memory, place.alone() ? 0 : exchange_bytes(config, layout, limits)),
      alone_(place.alone()),
      rank_(place.rank),
      attention_(
          slices(place, [&](const RankShare& share) { return share.attention_columns(config); })),
      mlp_(slices(place, [](const RankShare& share) { return share.mlp; })),
      stream_(slices(place, [](const RankShare& share) { return share.stream; })),
      vocabulary_(slices(place, [](const RankShare& share) { return share.vocabulary; })),
      own_x_(slice_columns(x, stream_[rank_])),
      own_logits_(
          slice_columns(logits, place.leads() ? vocabulary_[rank_] : Slice{0, logits.width})),
      layout_(layout),
      online_(online_inputs(weights)) {
  for (const BlockSpec& spec : input_blocks(weights, layout, limits)) {
    Input input = {spec.reader, spec.format,
                   allocate_rows(memory, layout, spec.capacity, spec.width, spec.format)};
    if (spec.reader == Reader::o || spec.reader == Reader::down) {
      input.own = slice_columns(input.rows, columns_of(spec.reader)[rank_]);
    }
    inputs_.push_back(std::move(input));
  }
  if (limits.keys_turn_when_read) reserve_block_turns(memory, rope);
  const AttentionShape shape = attention_shape(config, weights.blocks[0], 0, place.own());
  memory.scratch(layout.scratch_bytes(limits.batch_tokens, shape, limits.context));
}

namespace {

// Where the planes of a block lie.
struct RowsAt {
  float* values;
  std::uint8_t* codes;
  float* scales;
  std::int32_t* sums;
};

void move_to(const RowsAt& at, Rows& rows) {
  rows.values = at.values;
  rows.codes = at.codes;
  rows.scales = at.scales;
  rows.sums = at.sums;
}

}  // namespace

void Workspace::share(Communicator& ranks) {
  std::vector<RowsAt> at = {{x.values, nullptr, nullptr, nullptr}};
  for (const Input& input : inputs_) {
    const Rows& rows = input.rows;
    at.push_back({rows.values, rows.codes, rows.scales, rows.sums});
  }
  std::vector<std::byte> bytes(at.size() * sizeof(RowsAt));
  std::memcpy(bytes.data(), at.data(), bytes.size());
  ranks.broadcast(bytes, "the blocks that ranks share");
  ensure(bytes.size() == at.size() * sizeof(RowsAt), "ranks share ", bytes.size(), " bytes");
  std::memcpy(at.data(), bytes.data(), bytes.size());
  move_to(at[0], x);
  own_x_ = slice_columns(x, stream_[rank_]);
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    Input& input = inputs_[i];
    const bool by_columns = input.reader == Reader::o || input.reader == Reader::down;
    if (by_columns && (!is_coded(input.format.act) || coded_by_columns(input.format))) {
      move_to(at[i + 1], input.rows);
      input.own = slice_columns(input.rows, columns_of(input.reader)[rank_]);
    } else if (!by_columns && !has_moving_scale(input.format.act)) {
      input.common = slice_tokens(input.rows, {0, input.rows.capacity});
      move_to(at[i + 1], input.common);
    }
  }
}

std::optional<RowsFor> Workspace::common_input_of(Reader reader, const Linear& linear) {
  Input& input = find(reader, linear);
  if (input.common.capacity == 0) return std::nullopt;
  return RowsFor(input.common, consumer_of(linear));
}

Workspace::Input& Workspace::find(Reader reader, const Linear& linear) {
  const RowsFormat format = layout_.format_for(linear);
  for (Input& input : inputs_) {
    if (input.reader == reader && input.format == format) return input;
  }
  fail(ErrorKind::internal, linear.name, ": no block of activations in its format");
}

RowsConsumer Workspace::consumer_of(const Linear& linear) {
  RowsConsumer consumer = {linear.act_scale, nullptr, linear.inv_smooth};
  for (OnlineInput& online : online_) {
    if (online.linear == &linear) consumer.online = &online.scale;
  }
  return consumer;
}

const std::vector<Slice>& Workspace::columns_of(Reader reader) const {
  return reader == Reader::o ? attention_ : mlp_;
}

RowsFor Workspace::input_of(Reader reader, const Linear& linear) {
  return {find(reader, linear).rows, consumer_of(linear)};
}

SharedBlock Workspace::shared_input_of(Reader reader, const Linear& linear) {
  Input& input = find(reader, linear);
  const RowsFor whole = {input.rows, consumer_of(linear)};
  const std::vector<Slice>& columns = columns_of(reader);
  if (alone_) return {whole, whole, columns};
  return {whole, {input.own, slice_consumer(whole.consumer, input.rows, columns[rank_])}, columns};
}

SharedBlock Workspace::shared_stream() { return {x, alone_ ? x : own_x_, stream_}; }

SharedBlock Workspace::shared_logits() {
  return {logits, alone_ ? logits : own_logits_, vocabulary_};
}

}  // namespace leq

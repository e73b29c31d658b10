#include "model/workspace.h"

#include <algorithm>
#include <utility>

#include "backend/rows_slice.h"
#include "base/error.h"

namespace leq {
namespace {

struct InputSpec {
  const LayerLinear* linear;  // the first linear that reads it
  std::int64_t capacity;
  RowsFormat format;
};

// If a router reads the same site as experts that read codes, adds f32 rows for the router.
RowsFormat input_format(const LayerLinear& linear, const Layout& layout) {
  RowsFormat format = layout.format_for(linear);
  format.values = format.values || linear.values_too;
  return format;
}

std::int64_t most_of(const ModelConfig& config, std::int64_t ExpertsMlpConfig::*count) {
  std::int64_t most = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.experts_mlp() != nullptr) most = std::max(most, layer.experts_mlp()->*count);
  }
  return most;
}

// One block for each combination of site, width and format among the model's linears.
std::vector<InputSpec> input_specs(const Weights& weights, const Layout& layout,
                                   const ForwardLimits& limits) {
  std::vector<InputSpec> specs;
  const auto want = [&](const LayerLinear& linear, std::int64_t tokens) {
    const RowsFormat format = input_format(linear, layout);
    const std::int64_t capacity = tokens * linear.rows_per_token;
    const auto same = [&](const InputSpec& spec) {
      return spec.linear->site_name == linear.site_name && spec.linear->inputs == linear.inputs &&
             spec.format == format;
    };
    const auto known = std::ranges::find_if(specs, same);
    if (known == specs.end()) {
      specs.push_back({&linear, capacity, format});
    } else {
      known->capacity = std::max(known->capacity, capacity);
    }
  };
  for (const LayerWeights& layer : weights.layers) {
    for (const LayerLinear* linear : layer.linears()) want(*linear, limits.batch_tokens);
    if (const ExpertsMlpWeights* mlp = layer.experts_mlp(); mlp != nullptr && mlp->beside) {
      want(mlp->router, limits.batch_tokens);
    }
  }
  if (weights.mtp_input) {
    want(weights.mtp_input->fc_embedding, limits.batch_tokens);
    want(weights.mtp_input->fc_hidden, limits.batch_tokens);
  }
  want(weights.head, limits.output_tokens);
  return specs;
}

std::vector<OnlineInput> online_inputs(const Weights& weights) {
  std::vector<OnlineInput> inputs;
  const auto add = [&](const Linear& linear) {
    if (!has_moving_scale(linear.act)) return;
    inputs.push_back({&linear, OnlineScale(OnlineOptions{.mode = linear.online_mode})});
  };
  for (const LayerWeights& layer : weights.layers) {
    for (const LayerLinear* linear : layer.linears()) add(*linear);
  }
  if (weights.mtp_input) {
    add(weights.mtp_input->fc_embedding);
    add(weights.mtp_input->fc_hidden);
  }
  add(weights.head);
  return inputs;
}

constexpr RowsFormat kPlain = {};

// A model that makes embeddings alone has no logits.
std::int64_t logit_rows(const ModelConfig& config, const ForwardLimits& limits) {
  return config.both_ways() ? 1 : limits.output_tokens;
}

// Sized for f32 rows, because codes with their scales and sums take fewer bytes.
std::size_t exchange_bytes(const ModelConfig& config, const Weights& weights, const Layout& layout,
                           const ForwardLimits& limits) {
  std::int64_t inner = config.width;
  for (const LayerWeights& layer : weights.layers) {
    for (const LayerLinear* linear : layer.linears()) {
      inner = std::max(inner, linear->inputs * linear->rows_per_token);
    }
  }
  constexpr std::int64_t kFloat = sizeof(float);
  return std::max(layout.exchange_bytes(limits.batch_tokens, inner * kFloat),
                  layout.exchange_bytes(logit_rows(config, limits), config.vocab * kFloat));
}

// Width of the qkv rows; 0 if no layer has attention.
std::int64_t qkv_width_of(const ModelConfig& config, const Weights& weights,
                          const RankShare& share) {
  std::int64_t widest = 0;
  for (const std::int64_t layer : config.attention_layers()) {
    const auto& attention = weights.layers[static_cast<std::size_t>(layer)].attention();
    widest = std::max(widest, qkv_width(attention_shape(config, attention, share)));
  }
  return widest;
}

// A rank without heads gets rows without columns, so that it can run the same operations.
Rows delta_rows(const ModelConfig& config, DeviceMemory& memory, const Layout& layout,
                std::int64_t tokens, std::int64_t width) {
  return config.delta_net() == nullptr ? Rows()
                                       : allocate_rows(memory, layout, tokens, width, kPlain);
}

// Allocates nothing if the rows have no columns.
Rows rows_of(DeviceMemory& memory, const Layout& layout, std::int64_t tokens, std::int64_t width) {
  return width == 0 ? Rows() : allocate_rows(memory, layout, tokens, width, kPlain);
}

std::size_t scratch_bytes(const ModelConfig& config, const Weights& weights, const Layout& layout,
                          const ForwardLimits& limits, const RankShare& share) {
  std::size_t bytes = 0;
  for (const std::int64_t layer : config.attention_layers()) {
    const auto& attention = weights.layers[static_cast<std::size_t>(layer)].attention();
    const AttentionShape shape = attention_shape(config, attention, share);
    bytes = std::max(bytes, layout.scratch_bytes(limits.batch_tokens, shape, limits.context));
  }
  for (const std::int64_t layer : config.state_layers()) {
    const auto* delta =
        std::get_if<DeltaNetWeights>(&weights.layers[static_cast<std::size_t>(layer)].mixer);
    if (delta == nullptr) continue;
    const DeltaShape shape = delta_shape(config, *delta, layer, share);
    return std::max(bytes, layout.delta_scratch_bytes(limits.batch_tokens, shape));
  }
  return bytes;
}

// A rank without channels gets rows without columns.
Rows conv_rows(const ModelConfig& config, DeviceMemory& memory, const Layout& layout,
               std::int64_t tokens, const RankShare& share) {
  const bool any = std::ranges::any_of(
      config.layers, [](const LayerConfig& layer) { return layer.short_conv() != nullptr; });
  const std::int64_t width = 3 * share.mlp(config.width).count();
  return any ? allocate_rows(memory, layout, tokens, width, kPlain) : Rows();
}

// Shapes without weights and without their place in a state.
DeltaShape delta_sizes(const RankShare& share) {
  const DeltaNetConfig &delta = share.own_delta(), &all = share.delta;
  DeltaShape shape;
  shape.key_heads = static_cast<int>(delta.key_heads);
  shape.value_heads = static_cast<int>(delta.value_heads);
  shape.key_dim = static_cast<int>(delta.key_dim);
  shape.value_dim = static_cast<int>(delta.value_dim);
  shape.taps = static_cast<int>(delta.conv_taps);
  shape.all_key_heads = static_cast<int>(all.key_heads);
  shape.all_value_heads = static_cast<int>(all.value_heads);
  shape.first_key_head = static_cast<int>(share.delta_heads.first);
  return shape;
}
ShortConvShape conv_sizes(const ModelConfig& config, const ShortConvConfig& conv,
                          const RankShare& share) {
  ShortConvShape shape;
  shape.channels = share.mlp(config.width).count();
  shape.taps = static_cast<int>(conv.taps);
  shape.conv_stride = config.width;
  return shape;
}

// Bytes of the parts of a fixed state that belong to the layers before `end`.
std::size_t state_bytes(const ModelConfig& config, const RankShare& share, std::int64_t end) {
  std::int64_t numbers = 0;
  for (std::int64_t layer = 0; layer < end; ++layer) {
    const ShortConvConfig* conv = config.layer(layer).short_conv();
    if (conv != nullptr) numbers += short_conv_state_numbers(conv_sizes(config, *conv, share));
    if (config.layer(layer).delta_net()) numbers += delta_state_numbers(delta_sizes(share));
  }
  return static_cast<std::size_t>(numbers) * sizeof(float);
}

template <class Of>
std::vector<Slice> slices(const RankPlace& place, Of of) {
  std::vector<Slice> all;
  for (const RankShare& share : place.shares) all.push_back(of(share));
  return all;
}

}  // namespace

AttentionShape attention_shape(const ModelConfig& config, const AttentionWeights& weights,
                               const RankShare& share) {
  AttentionShape shape;
  shape.heads = static_cast<int>(share.heads.count());
  const KvHeads all = config.kv_heads_of(weights.config);
  const Slice kv_heads = share.kv_heads(all);
  shape.kv_heads = static_cast<int>(kv_heads.count());
  if (shape.heads != config.heads) {
    shape.group = static_cast<int>(config.heads / all.count);
    const std::int64_t first_query = kv_heads.first * shape.group;
    if (shape.heads > 0) shape.first_head = static_cast<int>(share.heads.first - first_query);
  }
  shape.head_dim = static_cast<int>(all.dims);
  shape.window = weights.config.window;
  shape.q_norm = weights.q_norm ? &*weights.q_norm : nullptr;
  shape.k_norm = weights.k_norm ? &*weights.k_norm : nullptr;
  shape.v_norm = weights.v_norm ? &*weights.v_norm : nullptr;
  shape.queries_only = weights.config.kv_of >= 0;
  shape.rotary = weights.config.rope.has_value();
  shape.rotary_dims = weights.config.rope.value_or(RopeConfig()).dims;
  shape.query_scale = static_cast<float>(weights.config.query_scale);
  shape.output_gate = weights.config.output_gate;
  shape.both_ways = weights.config.both_ways;
  shape.tempered = weights.config.temperature.period != 0;
  if (weights.sinks != nullptr) shape.sink_logits = weights.sinks + share.heads.first;
  if (weights.key_offset != nullptr) {
    shape.key_offset = weights.key_offset + kv_heads.first * all.dims;
  }
  return shape;
}

DeltaShape delta_shape(const ModelConfig& config, const DeltaNetWeights& weights,
                       std::int64_t layer, const RankShare& share) {
  DeltaShape shape = delta_sizes(share);
  shape.conv = weights.conv;
  shape.a_log = weights.a_log;
  shape.dt_bias = weights.dt_bias;
  shape.norm = weights.head_norm;
  shape.state_at = state_bytes(config, share, layer);
  return shape;
}

ShortConvShape short_conv_shape(const ModelConfig& config, const ShortConvWeights& weights,
                                std::int64_t layer, const RankShare& share) {
  ShortConvShape shape = conv_sizes(config, weights.config, share);
  shape.conv = weights.conv + share.mlp(config.width).first;
  shape.state_at = state_bytes(config, share, layer);
  return shape;
}

std::size_t fixed_state_bytes(const ModelConfig& config, const RankShare& share) {
  return state_bytes(config, share, config.layer_count());
}

std::vector<std::size_t> state_bytes_of_ranks(const ModelConfig& config, const RankPlace& place) {
  std::vector<std::size_t> bytes;
  for (const RankShare& share : place.shares) bytes.push_back(fixed_state_bytes(config, share));
  return bytes;
}

Workspace::Workspace(const ModelConfig& config, const Weights& weights, DeviceMemory& memory,
                     const Layout& layout, const ForwardLimits& limits, const RankPlace& place)
    : x(allocate_rows(memory, layout, limits.batch_tokens, config.width, kPlain)),
      branch(rows_of(memory, layout, limits.batch_tokens,
                     config.post_norm_eps > 0 ? config.width : 0)),
      experts_branch(
          rows_of(memory, layout, limits.batch_tokens,
                  most_of(config, &ExpertsMlpConfig::dense_hidden) > 0 ? config.width : 0)),
      router_logits(rows_of(memory, layout, limits.batch_tokens,
                            most_of(config, &ExpertsMlpConfig::experts) +
                                (most_of(config, &ExpertsMlpConfig::shared_hidden) > 0 ? 1 : 0))),
      // A rank without heads gets rows without columns, so that it can run the same operations.
      qkv(config.attention_layers().empty()
              ? Rows()
              : allocate_rows(memory, layout, limits.batch_tokens,
                              qkv_width_of(config, weights, place.own()), kPlain)),
      delta(delta_rows(config, memory, layout, limits.batch_tokens,
                       place.own().own_delta().channels() + place.own().own_delta().values())),
      conv(conv_rows(config, memory, layout, limits.batch_tokens, place.own())),
      hidden(rows_of(memory, layout, limits.batch_tokens, config.reads_hidden ? config.width : 0)),
      delta_gates(delta_rows(config, memory, layout, limits.batch_tokens,
                             2 * place.own().delta.value_heads)),
      layer_inputs(
          rows_of(memory, layout, limits.batch_tokens, config.layer_count() * config.layer_input)),
      token_inputs(
          rows_of(memory, layout, limits.batch_tokens, config.layer_count() * config.layer_input)),
      gated_input(rows_of(memory, layout, limits.batch_tokens, config.layer_input)),
      last(allocate_rows(memory, layout, limits.output_tokens, config.width, kPlain)),
      logits(allocate_rows(memory, layout, logit_rows(config, limits),
                           place.leads() ? config.vocab : place.own().vocabulary.count(), kPlain)),
      exchange(memory, place.alone() ? 0 : exchange_bytes(config, weights, layout, limits)),
      alone_(place.alone()),
      rank_(place.rank),
      stream_(slices(place, [](const RankShare& share) { return share.stream; })),
      vocabulary_(slices(place, [](const RankShare& share) { return share.vocabulary; })),
      own_x_(slice_columns(x, stream_[rank_])),
      own_branch_(branch.width == 0 ? Rows() : slice_columns(branch, stream_[rank_])),
      own_experts_branch_(
          experts_branch.width == 0 ? Rows() : slice_columns(experts_branch, stream_[rank_])),
      own_logits_(
          slice_columns(logits, place.leads() ? vocabulary_[rank_] : Slice{0, logits.width})),
      layout_(layout),
      online_(online_inputs(weights)) {
  for (const auto& [linear, capacity, format] : input_specs(weights, layout, limits)) {
    Input input = {linear->site_name, format,
                   allocate_rows(memory, layout, capacity, linear->inputs, format)};
    if (!linear->reads_norm()) {
      input.columns = slices(
          place, [&of = *linear](const RankShare& share) { return share.of(of.axis, of.inputs); });
      input.own = slice_columns(input.rows, input.columns[rank_]);
    }
    inputs_.push_back(std::move(input));
  }
  allocate_grouped(weights, memory, limits);
  allocate_ropes(config, memory, limits.context);
  memory.scratch(scratch_bytes(config, weights, layout, limits, place.own()));
}

void Workspace::allocate_ropes(const ModelConfig& config, DeviceMemory& memory,
                               std::int64_t context) {
  for (const std::int64_t layer : config.attention_layers()) {
    const AttentionConfig& attention = *config.layer(layer).attention();
    const RopeRule rule = rule_of(attention);
    if (std::ranges::find(rope_rules_, rule) != rope_rules_.end()) continue;
    rope_rules_.push_back(rule);
    frequencies_.push_back(rule.rope ? rope_frequencies(config, *rule.rope, context)
                                     : RopeFrequencies());
    // Moving a RopeFrequencies keeps the numbers in place that the table refers to.
    const RopeFrequencies& of = frequencies_.back();
    ropes.push_back(make_rope(memory, of.inv_freq, of.attention_factor, context));
    const std::vector<float> factors = query_factors(config, attention, context);
    if (factors.empty()) continue;
    set_query_factors(memory, ropes.back(), rule.temperature.period, factors);
  }
}

Workspace::RopeRule Workspace::rule_of(const AttentionConfig& attention) {
  const bool tempered = attention.temperature.period != 0;
  return {attention.rope, attention.temperature, tempered ? attention.query_scale : 0};
}

RopeTable& Workspace::rope_of(const AttentionConfig& attention) {
  const auto found = std::ranges::find(rope_rules_, rule_of(attention));
  ensure(found != rope_rules_.end(), "no table for the positions of a layer");
  return ropes[static_cast<std::size_t>(found - rope_rules_.begin())];
}

std::string Workspace::rope_note() const {
  for (const RopeFrequencies& of : frequencies_) {
    if (!of.note.empty()) return of.note;
  }
  return "";
}

void Workspace::allocate_grouped(const Weights& weights, DeviceMemory& memory,
                                 const ForwardLimits& limits) {
  for (const LayerWeights& layer : weights.layers) {
    const ExpertsMlpWeights* mlp = layer.experts_mlp();
    if (mlp == nullptr) continue;
    const LayerLinear& linear = mlp->gate_up.front();
    const RowsFormat format = layout_.format_for(linear);
    // Its memory has the outputs of all experts, too.
    const std::int64_t rows =
        limits.batch_tokens * (mlp->config.active + (mlp->shared.has_value() ? 1 : 0));
    const auto found = std::ranges::find(grouped_, format, &Grouped::format);
    if (found == grouped_.end()) {
      grouped_.push_back({format, allocate_rows(memory, layout_, rows, linear.inputs, format)});
    } else if (found->rows.capacity < rows) {
      found->rows = allocate_rows(memory, layout_, rows, linear.inputs, format);
    }
  }
}

Rows& Workspace::grouped_input_of(const LayerLinear& linear) {
  const auto found = std::ranges::find(grouped_, layout_.format_for(linear), &Grouped::format);
  ensure(found != grouped_.end(), linear.name, ": no block for rows in groups");
  return found->rows;
}

Rows Workspace::qkv_of(const AttentionShape& shape) {
  return slice_columns(qkv, {0, qkv_width(shape)});
}

Rows Workspace::router_logits_of(const ExpertsMlpConfig& config) {
  return slice_columns(router_logits, {0, config.experts + (config.shared_hidden > 0 ? 1 : 0)});
}

Workspace::Input& Workspace::find(const LayerLinear& linear) {
  const RowsFormat format = input_format(linear, layout_);
  for (Input& input : inputs_) {
    if (input.format == format && input.rows.width == linear.inputs &&
        input.site == linear.site_name) {
      return input;
    }
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

RowsFor Workspace::input_of(const LayerLinear& linear) {
  return {find(linear).rows, consumer_of(linear)};
}

SharedBlock Workspace::shared_input_of(const LayerLinear& linear) {
  Input& input = find(linear);
  const RowsFor whole = {input.rows, consumer_of(linear)};
  if (alone_) return {whole, whole, input.columns};
  const RowsConsumer own = slice_consumer(whole.consumer, input.rows, input.columns[rank_]);
  return {whole, {input.own, own}, input.columns};
}

SharedBlock Workspace::shared_stream() { return {x, alone_ ? x : own_x_, stream_}; }

SharedBlock Workspace::shared_branch() { return {branch, alone_ ? branch : own_branch_, stream_}; }

SharedBlock Workspace::shared_experts_branch() {
  return {experts_branch, alone_ ? experts_branch : own_experts_branch_, stream_};
}

SharedBlock Workspace::shared_logits() {
  return {logits, alone_ ? logits : own_logits_, vocabulary_};
}

}  // namespace leq

// Positions, masks and attention of the exported graph. No tensor has more than four axes, which is
// the limit of some targets.
#include <limits>

#include "export/decoder_graph.h"
#include "model/rope.h"

#include <cmath>

namespace leq {
namespace {

const OnnxAttributes kHeadsFirst = {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}};
const OnnxAttributes kColumnsFirst = {{"perm", std::vector<std::int64_t>{0, 1, 3, 2}}};
constexpr float kHidden = std::numeric_limits<float>::lowest();  // added to hidden scores

OnnxAttributes to_type(OnnxType type) { return {{"to", static_cast<std::int64_t>(type)}}; }

std::string past_name(std::int64_t layer, const char* part) {
  return "past_key_values." + std::to_string(layer) + "." + part;
}
std::string present_name(std::int64_t layer, const char* part) {
  return "present." + std::to_string(layer) + "." + part;
}

}  // namespace

void DecoderGraph::add_rotary() {
  const RopeFrequencies rope = rope_frequencies(config_, options_.context);
  if (options_.tokens > 0 || target_.contrib) {
    add_fixed_rotary(rope.inv_freq, rope.attention_factor,
                     options_.tokens > 0 ? options_.tokens : options_.context);
    return;
  }
  const Value inv = graph_.floats("rotary.inv_freq", {std::ssize(rope.inv_freq)}, rope.inv_freq);
  const Value positions = graph_.add("Cast", {shared_.positions}, to_type(OnnxType::f32));
  const Value column = graph_.add("Unsqueeze", {positions, graph_.integers({1, 3})});
  const Value angles = graph_.add("Mul", {column, inv});  // [B, 1, S, d/2]
  shared_.cosines = graph_.add("Cos", {angles});
  shared_.sines = graph_.add("Sin", {angles});
  if (rope.attention_factor == 1.0f) return;
  const Value factor = graph_.scalar(rope.attention_factor);
  shared_.cosines = graph_.add("Mul", {shared_.cosines, factor});
  shared_.sines = graph_.add("Mul", {shared_.sines, factor});
}

// Rotary tables for positions 0 to `rows` - 1, with the arithmetic of docs/numerics.md.
void DecoderGraph::add_fixed_rotary(const std::vector<float>& inv_freq, float factor,
                                    std::int64_t rows) {
  std::vector<float> cosines, sines;
  for (std::int64_t position = 0; position < rows; ++position) {
    for (const float inv : inv_freq) {
      const double angle = static_cast<float>(position) * inv;
      cosines.push_back(static_cast<float>(std::cos(angle)) * factor);
      sines.push_back(static_cast<float>(std::sin(angle)) * factor);
    }
  }
  std::vector<std::int64_t> dims = {rows, std::ssize(inv_freq)};
  if (!target_.contrib) dims.insert(dims.begin(), {1, 1});
  shared_.cosines = graph_.floats("rotary.cosines", dims, cosines);
  shared_.sines = graph_.floats("rotary.sines", dims, sines);
}

// Inputs of GroupQueryAttention: the last position of each sequence, and the total length.
void DecoderGraph::add_lengths() {
  const Value counts = graph_.add("ReduceSum", {shared_.attention_mask, graph_.integers({1})},
                                  {{"keepdims", std::int64_t{0}}});
  shared_.past_lengths =
      graph_.add("Cast", {graph_.add("Sub", {counts, graph_.integer(1)})}, to_type(OnnxType::i32));
  const Value shape = graph_.add("Shape", {shared_.attention_mask});
  const Value total = graph_.add("Gather", {shape, graph_.integer(1)});
  shared_.total_length = graph_.add("Cast", {total}, to_type(OnnxType::i32));
}

// Query i at position P + i attends to key j if P + i - window < j <= P + i and j is not padding.
Value DecoderGraph::mask_of(std::int32_t window) {
  if (const auto known = shared_.masks.find(window); known != shared_.masks.end()) {
    return known->second;
  }
  if (options_.tokens > 0) return shared_.masks[window] = fixed_mask(window);
  graph_.scope("mask." + std::to_string(window) + ".");
  const auto length = [&](const Value& of) {
    return graph_.add("Gather", {graph_.add("Shape", {of}), graph_.integer(1)});
  };
  const Value total = length(shared_.attention_mask);
  const Value first = graph_.add("Sub", {total, length(shared_.ids)});
  const Value one = graph_.integer(1);
  const Value queries =
      graph_.add("Unsqueeze", {graph_.add("Range", {first, total, one}), graph_.integers({1})});
  const Value keys = graph_.add("Range", {graph_.integer(0), total, one});
  const Value distance = graph_.add("Sub", {queries, keys});  // [S, P + S]
  Value seen = graph_.add("GreaterOrEqual", {distance, graph_.integer(0)});
  if (window > 0) {
    seen = graph_.add("And", {seen, graph_.add("Less", {distance, graph_.integer(window)})});
  }
  const Value tokens = graph_.add(
      "Unsqueeze", {graph_.add("Cast", {shared_.attention_mask}, to_type(OnnxType::boolean)),
                    graph_.integers({1, 2})});
  seen = graph_.add("And", {seen, tokens});  // [B, 1, S, P + S]
  const Value mask = graph_.add("Where", {seen, graph_.scalar(0.0f), graph_.scalar(kHidden)});
  return shared_.masks[window] = grouped_mask(mask);
}

// Repeats the mask for each of the G query heads that share a key head.
Value DecoderGraph::grouped_mask(const Value& mask) {
  const auto group = static_cast<std::size_t>(config_.heads / config_.kv_heads);
  if (group == 1) return mask;
  return graph_.add("Concat", std::vector<Value>(group, mask), {{"axis", std::int64_t{2}}});
}

Value DecoderGraph::fixed_mask(std::int32_t window) {
  const std::int64_t group = config_.heads / config_.kv_heads, tokens = options_.tokens;
  std::vector<float> mask;
  for (std::int64_t row = 0; row < group * tokens; ++row) {
    const std::int64_t query = row % tokens;
    for (std::int64_t key = 0; key < tokens; ++key) {
      const bool seen = key <= query && (window == 0 || key > query - window);
      mask.push_back(seen ? 0.0f : kHidden);
    }
  }
  return graph_.floats("mask." + std::to_string(window), {1, 1, group * tokens, tokens}, mask);
}

// Splits heads: [B, S, heads d] -> [B, heads, S, d]
Value DecoderGraph::heads_of(const Value& x, std::int64_t heads) {
  const Value cut = graph_.add("Reshape", {x, graph_.integers({0, 0, heads, config_.head_dim})});
  return graph_.add("Transpose", {cut}, kHeadsFirst);
}

// RoPE on [B, heads, S, d], rotating the pairs (i, i + d/2).
Value DecoderGraph::roped(const Value& x) {
  const auto halves = graph_.add_many(
      "Split", {x}, 2, {{"axis", std::int64_t{-1}}, {"num_outputs", std::int64_t{2}}});
  const auto product = [&](const Value& a, const Value& b) { return graph_.add("Mul", {a, b}); };
  const Value first =
      graph_.add("Sub", {product(halves[0], shared_.cosines), product(halves[1], shared_.sines)});
  const Value second =
      graph_.add("Add", {product(halves[1], shared_.cosines), product(halves[0], shared_.sines)});
  return graph_.add("Concat", {first, second}, {{"axis", std::int64_t{-1}}});
}

void DecoderGraph::add_past_input(std::int64_t layer, const char* part) {
  graph_.input(past_name(layer, part), OnnxType::f32,
               {"batch_size", config_.kv_heads, "past_sequence_length", config_.head_dim});
}

// Concatenates past keys or values with x, [B, H_kv, P + S, d]; the result is also a graph output.
Value DecoderGraph::with_past(std::int64_t layer, const char* part, const Value& x) {
  if (!options_.past) return x;
  add_past_input(layer, part);
  const Value all = graph_.add("Concat", {past_name(layer, part), x}, {{"axis", std::int64_t{2}}});
  graph_.output(all, present_name(layer, part), OnnxType::f32,
                {"batch_size", config_.kv_heads, "total_sequence_length", config_.head_dim});
  return all;
}

// q [B, H, S, d], k and v [B, H_kv, T, d] -> [B, S, H d]
Value DecoderGraph::attention(std::int64_t layer, Value q, Value k, Value v, std::int32_t window) {
  const std::int64_t d = config_.head_dim;
  const Value mask = mask_of(window);
  graph_.scope("layers." + std::to_string(layer) + ".");
  const auto root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
  q = graph_.add("Mul", {q, graph_.scalar(root)});
  const bool grouped = config_.kv_heads != config_.heads;
  if (grouped) q = graph_.add("Reshape", {q, graph_.integers({0, config_.kv_heads, -1, d})});
  const Value scores =
      graph_.add("MatMul", {q, graph_.add("Transpose", {k}, kColumnsFirst)});  // [B, H_kv, G S, T]
  const Value shares =
      graph_.add("Softmax", {graph_.add("Add", {scores, mask})}, {{"axis", std::int64_t{-1}}});
  Value out = graph_.add("MatMul", {shares, v});
  if (grouped) out = graph_.add("Reshape", {out, graph_.integers({0, config_.heads, -1, d})});
  out = graph_.add("Transpose", {out}, kHeadsFirst);
  return graph_.add("Reshape", {out, graph_.integers({0, 0, config_.heads * d})});
}

// Attention with RoPE and cache as one operator; per-head norms are applied before it.
Value DecoderGraph::contrib_attention(std::int64_t layer, const std::vector<Value>& qkv,
                                      const AttentionConfig& attention) {
  Value q = qkv[0], k = qkv[1];
  if (attention.qk_norm) {
    const auto normed = [&](const Value& x, std::int64_t heads, const char* part) {
      const Value cut =
          graph_.add("Reshape", {x, graph_.integers({0, 0, heads, config_.head_dim})});
      const Value out = norm(cut, "layers." + std::to_string(layer) + "." + part, config_.norm);
      return graph_.add("Reshape", {out, graph_.integers({0, 0, heads * config_.head_dim})});
    };
    q = normed(q, config_.heads, "q_norm");
    k = normed(k, config_.kv_heads, "k_norm");
  }
  add_past_input(layer, "key");
  add_past_input(layer, "value");
  std::vector<Value> inputs = {q,
                               k,
                               qkv[2],
                               past_name(layer, "key"),
                               past_name(layer, "value"),
                               shared_.past_lengths,
                               shared_.total_length};
  OnnxAttributes attributes = {{"num_heads", config_.heads},
                               {"kv_num_heads", config_.kv_heads},
                               {"do_rotary", std::int64_t{attention.rotary ? 1 : 0}}};
  if (attention.window > 0) attributes["local_window_size"] = std::int64_t{attention.window};
  if (attention.rotary) inputs.insert(inputs.end(), {shared_.cosines, shared_.sines});
  const auto outputs =
      graph_.add_many("GroupQueryAttention", inputs, 3, attributes, std::string(kContribDomain));
  const std::vector<OnnxDim> dims = {"batch_size", config_.kv_heads, "total_sequence_length",
                                     config_.head_dim};
  graph_.output(outputs[1], present_name(layer, "key"), OnnxType::f32, dims);
  graph_.output(outputs[2], present_name(layer, "value"), OnnxType::f32, dims);
  return outputs[0];
}

}  // namespace leq

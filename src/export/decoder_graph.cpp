#include "export/decoder_graph.h"

#include "base/error.h"
#include "export/weight_codes.h"
#include "model/linear_sites.h"

namespace leq {
namespace {

std::string prefix_of(std::int64_t layer) { return layer_tensor(layer, ""); }

}  // namespace

DecoderGraph::DecoderGraph(const Model& model, const ExportTarget& target,
                           const GraphOptions& options, GraphBuilder& graph)
    : model_(model),
      config_(model.config()),
      target_(target),
      options_(options),
      graph_(graph),
      linears_(model.file(), graph, target, options.quantized_inputs, options.tokens) {}

void DecoderGraph::build() {
  add_inputs();
  Value x = embedding();
  for (std::int64_t layer = 0; layer < config_.layer_count(); ++layer) {
    graph_.scope(prefix_of(layer));
    x = graph_.add("Add", {x, mixer(layer, x)});
    x = graph_.add("Add", {x, mlp(layer, x)});
  }
  graph_.scope("");
  x = norm(x, "final_norm", config_.norm);
  const Value logits = linears_.logits(x, config_.tied);
  const OnnxDim batch = options_.tokens > 0 ? OnnxDim(std::int64_t{1}) : OnnxDim("batch_size");
  const OnnxDim tokens =
      options_.tokens > 0 ? OnnxDim(options_.tokens) : OnnxDim("sequence_length");
  graph_.output(logits, "logits", OnnxType::f32, {batch, tokens, config_.vocab});
}

void DecoderGraph::add_inputs() {
  if (options_.tokens > 0) {
    shared_.ids = graph_.input("input_ids", OnnxType::i32, {std::int64_t{1}, options_.tokens});
  } else {
    const OnnxDim batch = "batch_size", tokens = "sequence_length";
    const OnnxDim total = options_.past ? OnnxDim("total_sequence_length") : tokens;
    shared_.ids = graph_.input("input_ids", OnnxType::i64, {batch, tokens});
    shared_.attention_mask = graph_.input("attention_mask", OnnxType::i64, {batch, total});
    // com.microsoft's attention operators compute the positions for RoPE themselves.
    if (!target_.contrib || config_.learned_positions) {
      shared_.positions = graph_.input("position_ids", OnnxType::i64, {batch, tokens});
    }
  }
  if (target_.contrib) add_lengths();
  if (config_.has_rope()) add_rotary();
}

// Token embeddings, x [B, S, W] f32
Value DecoderGraph::embedding() {
  const Value tokens = linears_.lookup("token_embedding", shared_.ids);
  if (!config_.learned_positions) return tokens;
  if (options_.tokens == 0) {
    return graph_.add("Add", {tokens, linears_.lookup("position_embedding", shared_.positions)});
  }
  const StoredTensor* table = model_.file().find("position_embedding");
  std::vector<float> rows = weight_floats(table->view);
  rows.resize(static_cast<std::size_t>(options_.tokens * config_.width));
  return graph_.add("Add", {tokens, graph_.floats("position_embedding",
                                                  {1, options_.tokens, config_.width}, rows)});
}

// Normalizes the last axis, using operators that every target supports.
Value DecoderGraph::norm(const Value& x, const std::string& name, NormKind kind) {
  Value centred = x;
  if (kind == NormKind::layer) {
    centred = graph_.add("Sub", {x, graph_.add("ReduceMean", {x, graph_.integers({-1})})});
  }
  const Value squares = graph_.add("Mul", {centred, centred});
  const Value mean = graph_.add("ReduceMean", {squares, graph_.integers({-1})});
  const Value size =
      graph_.add("Sqrt", {graph_.add("Add", {mean, graph_.scalar(config_.norm_eps)})});
  const Value unit = graph_.add("Div", {centred, size});
  const Value scaled = graph_.add("Mul", {unit, linears_.vector(name)});
  if (kind != NormKind::layer) return scaled;
  return graph_.add("Add", {scaled, linears_.vector(name + ".bias")});
}

// o(attention(qkv(norm(x)))) [B, S, W]
Value DecoderGraph::mixer(std::int64_t layer, Value x) {
  const std::string prefix = prefix_of(layer);
  const AttentionConfig& attention = *config_.layer(layer).attention();
  const Value normed = norm(x, prefix + "attention_norm", config_.norm);
  std::vector<Value> qkv = linears_.outputs(prefix, {"q", "k", "v"}, normed);
  Value out;
  if (target_.contrib) {
    out = contrib_attention(layer, qkv, attention);
  } else {
    Value q = heads_of(qkv[0], config_.heads), k = heads_of(qkv[1], config_.kv_heads);
    if (attention.qk_norm) {
      q = norm(q, prefix + "q_norm", config_.norm);
      k = norm(k, prefix + "k_norm", config_.norm);
    }
    if (attention.rotary) {
      q = roped(q);
      k = roped(k);
    }
    k = with_past(layer, "key", k);
    const Value v = with_past(layer, "value", heads_of(qkv[2], config_.kv_heads));
    out = this->attention(layer, q, k, v, attention.window);
  }
  return linears_.outputs(prefix, {"o"}, out).front();
}

// down(swiglu(gate, up)) or down(gelu(up)) [B, S, W]
Value DecoderGraph::mlp(std::int64_t layer, Value x) {
  const std::string prefix = prefix_of(layer);
  const DenseMlpConfig& mlp = *config_.layer(layer).dense_mlp();
  const Value normed = norm(x, prefix + "mlp_norm", config_.norm);
  Value product;
  if (mlp.gated) {
    const auto both = linears_.outputs(prefix, {"gate", "up"}, normed);
    const Value silu = graph_.add("Mul", {both[0], graph_.add("Sigmoid", {both[0]})});
    product = graph_.add("Mul", {silu, both[1]});
  } else {  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
    const Value u = linears_.outputs(prefix, {"up"}, normed).front();
    const Value cube = graph_.add("Mul", {graph_.add("Mul", {u, u}), u});
    const Value inner = graph_.add("Add", {u, graph_.add("Mul", {cube, graph_.scalar(0.044715f)})});
    const Value tanh = graph_.add("Tanh", {graph_.add("Mul", {inner, graph_.scalar(0.79788456f)})});
    const Value half = graph_.add("Mul", {u, graph_.scalar(0.5f)});
    product = graph_.add("Mul", {half, graph_.add("Add", {tanh, graph_.scalar(1.0f)})});
  }
  return linears_.outputs(prefix, {"down"}, product).front();
}

}  // namespace leq

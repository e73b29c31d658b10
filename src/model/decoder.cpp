#include "model/decoder.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>

#include "backend/backend.h"
#include "backend/rows_slice.h"
#include "model/collectives.h"
#include "model/kv_layers.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace leq {

namespace {

const LayerLinear& at(const std::vector<LayerLinear>& linears, std::int64_t expert) {
  return linears[static_cast<std::size_t>(expert)];
}

// Runs the experts of one layer for the rows of one step. All members must outlive the object.
struct ExpertsRun {
  Backend& backend;
  Workspace& work;
  Collectives& ranks;
  const ExpertsMlpWeights& weights;

  // Chooses the experts of each row of `normed` [T, W].
  void route(const Rows& normed, std::int64_t tokens) {
    const ExpertsMlpConfig& config = weights.config;
    const float* scales = weights.beside ? weights.beside->router_scales : nullptr;
    Rows logits = work.router_logits_of(config);  // [T, E], or [T, E + 1] with a shared expert
    const Routing routing = {
        config.experts, config.active,       config.normalized,
        config.sigmoid, weights.choice_bias, static_cast<float>(config.weight_scale),
        scales};
    backend.route(normed, tokens, weights.router, logits, routing, work.routes,
                  weights.shared ? &work.shared_routes : nullptr);
  }

  // Computes the gated products [T k, F] of all experts, and [T, F'] of a shared expert.
  void gate(const Rows& normed) {
    const auto gated = [&](const auto& gate_up, const auto& down, const ExpertRoutes& routes) {
      const SharedBlock product = work.shared_input_of(down(0));
      const auto reader = [&](std::int64_t expert) {
        const RowsConsumer whole = work.consumer_of(down(expert));
        if (ranks.alone()) return whole;
        return slice_consumer(whole, product.whole.rows, ranks.own().mlp(down(expert).inputs));
      };
      backend.experts_gated(normed, routes, {gate_up, reader, weights.config.activation},
                            work.grouped_input_of(weights.gate_up.front()), product.own.rows);
      ranks.gather(product, routes.rows(), Receivers::all, down(0).name);
    };
    const auto expert = [](const std::vector<LayerLinear>& linears) {
      return [&linears](std::int64_t e) -> const LayerLinear& { return at(linears, e); };
    };
    gated(expert(weights.gate_up), expert(weights.down), work.routes);
    if (!weights.shared) return;
    const auto shared = [](const LayerLinear& linear) {
      return [&linear](std::int64_t) -> const LayerLinear& { return linear; };
    };
    gated(shared(weights.shared->gate_up), shared(weights.shared->down), work.shared_routes);
  }

  // Visits the input rows of each expert's down, including experts without rows.
  void each_product(
      const std::function<void(const LayerLinear& linear, const Rows& rows)>& visit) const {
    const SharedBlock product = work.shared_input_of(weights.down.front());
    for (std::int64_t e = 0; e < weights.config.experts; ++e) {
      const auto i = static_cast<std::size_t>(e);
      const Slice group = {work.routes.first[i], work.routes.first[i + 1]};
      visit(weights.down[i], slice_tokens(product.whole.rows, group));
    }
    if (!weights.shared) return;
    const LayerLinear& down = weights.shared->down;
    visit(down,
          slice_tokens(work.shared_input_of(down).whole.rows, {0, work.shared_routes.rows()}));
  }

  // x [T, W] += the outputs of each row's down linears; `fresh`: x = 0 before.
  void add(bool fresh, Rows& x) {
    const ExpertLinear expert = [&](std::int64_t e) -> const Linear& {
      return at(weights.down, e);
    };
    const ExpertLinear shared = [&](std::int64_t) -> const Linear& { return weights.shared->down; };
    std::vector<ExpertProducts> parts = {
        {work.shared_input_of(weights.down.front()).whole, work.routes, expert}};
    if (weights.shared) {
      parts.push_back(
          {work.shared_input_of(weights.shared->down).whole, work.shared_routes, shared});
    }
    backend.experts_add(parts, fresh, x);
  }
};

}  // namespace

Decoder::Decoder(const ModelConfig& config, const Weights& weights, Backend& backend,
                 Workspace& work, Collectives& ranks)
    : config_(config),
      weights_(weights),
      backend_(backend),
      work_(work),
      ranks_(ranks),
      cached_layers_(config.cache_layers()),
      cache_layers_(config.layers.size(), -1) {
  for (std::size_t i = 0; i < cached_layers_.size(); ++i) {
    cache_layers_[static_cast<std::size_t>(cached_layers_[i])] = static_cast<std::int64_t>(i);
  }
}

// x [T, W] = embeddings; each layer: x += mixer(norm(x)), x += mlp(norm(x))
void Decoder::layers(const Embedding& embedding, const BatchView& batch, const KvLayers& kv) {
  embed(embedding, batch.tokens);
  if (weights_.mtp_input) join_hidden(*weights_.mtp_input, batch.tokens);
  quantize_closed_blocks(batch, kv);
  for (std::int64_t layer = 0; layer < config_.layer_count(); ++layer) {
    sublayer(Sublayer::mixer, layer, batch, kv);
    sublayer(Sublayer::mlp, layer, batch, kv);
  }
}

// The inputs of all layers: (norm(projection(x)) + sqrt(P) row of the table) / sqrt(2), where the
// norm and the sum are those of each layer's P numbers (add_layer_input).
void Decoder::embed(const Embedding& embedding, std::int64_t tokens) {
  backend_.embed(embedding, work_.x);
  if (!weights_.layer_embedding) return;
  const auto scale = static_cast<float>(std::sqrt(static_cast<double>(config_.layer_input)));
  backend_.embed({*weights_.layer_embedding, embedding.ids, nullptr, {}, scale},
                 work_.token_inputs);
  backend_.linear(work_.x, tokens, weights_.layer_projection, Epilogue::none, work_.layer_inputs);
}

// x = scale (x + norm(projection(gelu(gate(x)) * input)))
void Decoder::add_layer_input(std::int64_t layer, std::int64_t tokens) {
  constexpr float kRootHalf = 0.70710678118654752f;
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const Slice own = {layer * config_.layer_input, (layer + 1) * config_.layer_input};
  Rows input = slice_columns(work_.layer_inputs, own);
  backend_.norm(input, tokens, weights_.layer_projection_norm, input);
  backend_.add_rows(slice_columns(work_.token_inputs, own), tokens, kRootHalf, input);
  backend_.linear(work_.x, tokens, weights.input->gate, Epilogue::activated(Activation::gelu_tanh),
                  work_.gated_input);
  backend_.multiply_rows(input, tokens, work_.gated_input);
  add(work_.gated_input, tokens, weights.input->projection, weights.input->post_norm,
      weights.scale);
}

// x = fc_embedding(norm(x)) + fc_hidden(norm(hidden))
void Decoder::join_hidden(const MtpInput& input, std::int64_t tokens) {
  const RowsFor token = norm(input.embedding_norm, input.fc_embedding, tokens);  // [T, W]
  backend_.linear(token, tokens, input.fc_embedding, Epilogue::none, work_.x);
  const RowsFor hidden = work_.input_of(input.fc_hidden);  // [T, W]
  backend_.norm(work_.hidden, tokens, input.hidden_norm, hidden);
  backend_.linear(hidden, tokens, input.fc_hidden, Epilogue::add, work_.x);
}

void Decoder::fill_keys(std::int64_t layer, const BatchView& batch, const KvLayers& kv) {
  Observer* const observer = std::exchange(observer_, nullptr);
  sublayer(Sublayer::mixer, config_.layer(layer).attention()->kv_of, batch, kv);
  observer_ = observer;
}

bool Decoder::sublayer(Sublayer which, std::int64_t layer, const BatchView& batch,
                       const KvLayers& kv) {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  if (which == Sublayer::mixer) {
    return std::visit([&](const auto& mixer) { return run(mixer, layer, batch, kv); },
                      weights.mixer);
  }
  const float scale = weights.input ? 1 : weights.scale;
  const bool more =
      std::visit([&](const auto& mlp) { return run(mlp, batch.tokens, scale); }, weights.mlp);
  if (more && weights.input) add_layer_input(layer, batch.tokens);
  return more;
}

// x += o(attention(qkv(norm(x))))
bool Decoder::run(const AttentionWeights& weights, std::int64_t layer, const BatchView& batch,
                  const KvLayers& cache) {
  const std::int64_t tokens = batch.tokens;
  const std::int64_t owner = weights.config.kv_of >= 0 ? weights.config.kv_of : layer;
  const KvLayer kv = cache[cache_layers_[static_cast<std::size_t>(owner)]];
  AttentionShape shape = attention_shape(config_, weights, ranks_.own());
  if (!keys_are_centred(kv.key_type)) shape.key_offset = nullptr;
  const SharedBlock attended = work_.shared_input_of(weights.o);   // [T, H d]
  const RowsFor normed = norm(weights.norm, weights.qkv, tokens);  // [T, W]
  if (!wants_more(weights.qkv, normed, tokens)) return false;
  Rows qkv = work_.qkv_of(shape);
  backend_.linear(normed, tokens, weights.qkv, Epilogue::none, qkv);
  backend_.rope_append(qkv, batch, shape, work_.rope_of(weights.config), kv);
  backend_.attention(qkv, batch, shape, kv, attended.own);
  ranks_.gather(attended, tokens, Receivers::all, weights.o.name);
  if (!wants_more(weights.o, attended.whole, tokens)) return false;
  add(attended.whole, tokens, weights.o, weights.post_norm, 1);
  return true;
}

// x += out(delta_net(in(norm(x)), gates(norm(x)))); `in` may read codes of norm(x), `gates` f32
bool Decoder::run(const DeltaNetWeights& weights, std::int64_t layer, const BatchView& batch,
                  const KvLayers&) {
  const std::int64_t tokens = batch.tokens;
  const DeltaShape shape = delta_shape(config_, weights, layer, ranks_.own());
  const SharedBlock mixed = work_.shared_input_of(weights.out);   // [T, H_v d_v]
  const RowsFor normed = norm(weights.norm, weights.in, tokens);  // [T, W]
  if (!wants_more(weights.in, normed, tokens)) return false;
  backend_.linear(normed, tokens, weights.in, Epilogue::none, work_.delta);
  const bool one_norm = weights.in.values_too;
  const RowsFor plain = one_norm ? normed : norm(weights.norm, weights.gates, tokens);  // [T, W]
  backend_.linear(plain, tokens, weights.gates, Epilogue::none, work_.delta_gates);
  backend_.delta_net(work_.delta, work_.delta_gates, batch, shape, mixed.own);
  ranks_.gather(mixed, tokens, Receivers::all, weights.out.name);
  if (!wants_more(weights.out, mixed.whole, tokens)) return false;
  add(mixed.whole, tokens, weights.out, std::nullopt, 1);
  return true;
}

// x += out(short_conv(in(norm(x))))
bool Decoder::run(const ShortConvWeights& weights, std::int64_t layer, const BatchView& batch,
                  const KvLayers&) {
  const std::int64_t tokens = batch.tokens;
  const ShortConvShape shape = short_conv_shape(config_, weights, layer, ranks_.own());
  const SharedBlock mixed = work_.shared_input_of(weights.out);   // [T, W]
  const RowsFor normed = norm(weights.norm, weights.in, tokens);  // [T, W]
  if (!wants_more(weights.in, normed, tokens)) return false;
  backend_.linear(normed, tokens, weights.in, Epilogue::none, work_.conv);
  backend_.short_conv(work_.conv, batch, shape, mixed.own);
  ranks_.gather(mixed, tokens, Receivers::all, weights.out.name);
  if (!wants_more(weights.out, mixed.whole, tokens)) return false;
  add(mixed.whole, tokens, weights.out, std::nullopt, 1);
  return true;
}

// f(gate) * up, or f(up), of gate and up of norm(x), as the input of down
bool Decoder::product(const DenseMlpWeights& weights, std::int64_t tokens) {
  const SharedBlock product = work_.shared_input_of(weights.down);     // [T, F]
  const RowsFor normed = norm(weights.norm, weights.gate_up, tokens);  // [T, W]
  if (!wants_more(weights.gate_up, normed, tokens)) return false;
  const auto& [hidden, gated, activation, bias] = weights.config;
  backend_.linear(normed, tokens, weights.gate_up,
                  gated ? Epilogue::gated(activation) : Epilogue::activated(activation),
                  product.own);
  ranks_.gather(product, tokens, Receivers::all, weights.down.name);
  return wants_more(weights.down, product.whole, tokens);
}

// x += down(f(gate) * up), or down(f(up))
bool Decoder::run(const DenseMlpWeights& weights, std::int64_t tokens, float scale) {
  if (!product(weights, tokens)) return false;
  const RowsFor input = work_.shared_input_of(weights.down).whole;
  add(input, tokens, weights.down, weights.post_norm, scale);
  return true;
}

// x += sum over the experts e of each row of p_e * down_e(swiglu(gate_up_e(norm(x)))), plus the
// output of a shared expert; or x = scale (x + norm(norm(dense MLP) + norm(experts)))
bool Decoder::run(const ExpertsMlpWeights& weights, std::int64_t tokens, float scale) {
  ExpertsRun run = {backend_, work_, ranks_, weights};
  const SharedBlock x = work_.shared_stream();  // [T, W]
  if (weights.beside) {
    const DenseMlpWeights& dense = weights.beside->dense;
    if (!product(dense, tokens)) return false;
    branch(work_.shared_input_of(dense.down).whole, tokens, dense.down, dense.post_norm.value());
  }
  const LayerLinear& first = weights.gate_up.front();
  const RowsFor normed = norm(weights.norm, first, tokens);  // [T, W]
  if (!wants_more(first, normed, tokens)) return false;
  run.route(weights.beside ? norm(weights.beside->router_norm, weights.router, tokens) : normed,
            tokens);
  run.gate(normed);
  bool more = true;
  run.each_product([&](const LayerLinear& linear, const Rows& rows) {
    more = wants_more(linear, rows, rows.capacity);
  });
  if (!more) return false;
  if (weights.beside) {
    const SharedBlock experts = work_.shared_experts_branch(), all = work_.shared_branch();
    run.add(true, experts.own.rows);
    ranks_.gather(experts, tokens, Receivers::all, weights.router.name);
    backend_.norm(experts.whole, tokens, weights.beside->experts_post_norm, experts.whole);
    backend_.add_rows(experts.whole, tokens, 1, all.whole.rows);
    backend_.norm(all.whole, tokens, weights.beside->joined_post_norm, all.whole);
    backend_.add_rows(all.own, tokens, scale, x.own.rows);
  } else {
    run.add(false, x.own.rows);
  }
  ranks_.gather(x, tokens, Receivers::all, weights.router.name);
  return true;
}

// Writes norm(x) in the format that `linear` reads.
RowsFor Decoder::norm(const Norm& norm, const LayerLinear& linear, std::int64_t tokens) {
  const RowsFor out = work_.input_of(linear);
  backend_.norm(work_.x, tokens, norm, out);
  return out;
}

// branch [T, W] = norm(linear(input))
void Decoder::branch(const RowsFor& input, std::int64_t tokens, const LayerLinear& linear,
                     const Norm& post_norm) {
  const SharedBlock branch = work_.shared_branch();
  backend_.linear(input, tokens, linear, Epilogue::none, branch.own);
  ranks_.gather(branch, tokens, Receivers::all, linear.name);
  backend_.norm(branch.whole, tokens, post_norm, branch.whole);
}

// x += linear(input), or x = scale (x + norm(linear(input)))
void Decoder::add(const RowsFor& input, std::int64_t tokens, const LayerLinear& linear,
                  const std::optional<Norm>& post_norm, float scale) {
  const SharedBlock x = work_.shared_stream();  // [T, W]
  if (post_norm) {
    branch(input, tokens, linear, *post_norm);
    backend_.add_rows(work_.shared_branch().own, tokens, scale, x.own.rows);
  } else {
    backend_.linear(input, tokens, linear, Epilogue::add, x.own);
  }
  ranks_.gather(x, tokens, Receivers::all, linear.name);
}

void Decoder::head(std::span<const std::int32_t> outputs) {
  const auto rows = std::ssize(outputs);
  const RowsFor normed = work_.input_of(weights_.head);  // [outputs, W]
  const SharedBlock logits = work_.shared_logits();      // [outputs, V]
  backend_.gather_rows(work_.x, outputs, work_.last);
  backend_.norm(work_.last, rows, weights_.final_norm, normed);
  backend_.linear(normed, rows, weights_.head, Epilogue::none, logits.own);
  if (const auto& [scale, cap] = config_.logit_cap; cap > 0) {
    backend_.cap_logits(logits.own.rows, rows, static_cast<float>(scale), static_cast<float>(cap));
  }
  ranks_.gather(logits, rows, Receivers::leader, weights_.head.name);
}

void Decoder::final_norm(std::span<const std::int32_t> outputs) {
  backend_.gather_rows(work_.x, outputs, work_.last);
  backend_.norm(work_.last, std::ssize(outputs), weights_.final_norm, work_.last);
}

// Quantizes the blocks that were complete before this step and that its queries read as codes.
void Decoder::quantize_closed_blocks(const BatchView& batch, const KvLayers& kv) {
  if (!kv.pages.residual().copies()) return;
  AttentionShape shape;
  const auto quantize = [&] {
    if (!kv_layers_.empty()) backend_.quantize_kv_blocks(batch, shape, kv_layers_);
    kv_layers_.clear();
  };
  for (std::int64_t i = 0; i < std::ssize(cached_layers_); ++i) {
    const auto layer = static_cast<std::size_t>(cached_layers_[static_cast<std::size_t>(i)]);
    const AttentionShape own =
        attention_shape(config_, weights_.layers[layer].attention(), ranks_.own());
    const KvLayer next = kv[i];
    const bool together = kv_layers_.empty() || kv_layers_.back().in_frames == next.in_frames;
    if (!together || own.head_dim != shape.head_dim || own.kv_heads != shape.kv_heads) quantize();
    shape = own;
    kv_layers_.push_back(next);
  }
  quantize();
}

bool Decoder::wants_more(const LayerLinear& linear, const Rows& input, std::int64_t tokens) {
  return observer_ == nullptr || observer_->see(linear, input, tokens);
}

}  // namespace leq

#include "model/decoder.h"

#include <cstdint>
#include <functional>

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
    Rows logits = work.router_logits_of(config);  // [T, E], or [T, E + 1] with a shared expert
    backend.linear(normed, tokens, weights.router, Epilogue::none, logits);
    const Routing routing = {config.experts,      config.active,
                             config.normalized,   config.sigmoid,
                             weights.choice_bias, static_cast<float>(config.weight_scale)};
    backend.route(logits, tokens, routing, weights.router.name, work.routes,
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

  // x [T, W] += the outputs of each row's down linears.
  void add(Rows& x) {
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
    backend.experts_add(parts, x);
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
      attention_layers_(config.attention_layers()),
      cache_layers_(config.layers.size(), -1) {
  for (std::size_t i = 0; i < attention_layers_.size(); ++i) {
    cache_layers_[static_cast<std::size_t>(attention_layers_[i])] = static_cast<std::int64_t>(i);
  }
}

// x [T, W] = embeddings; each layer: x += mixer(norm(x)), x += mlp(norm(x))
void Decoder::layers(const Embedding& embedding, const BatchView& batch, const KvLayers& kv) {
  backend_.embed(embedding, work_.x);
  if (weights_.mtp_input) join_hidden(*weights_.mtp_input, batch.tokens);
  quantize_closed_blocks(batch, kv);
  for (std::int64_t layer = 0; layer < config_.layer_count(); ++layer) {
    sublayer(Sublayer::mixer, layer, batch, kv);
    sublayer(Sublayer::mlp, layer, batch, kv);
  }
}

// x = fc_embedding(norm(x)) + fc_hidden(norm(hidden))
void Decoder::join_hidden(const MtpInput& input, std::int64_t tokens) {
  const RowsFor token = norm(input.embedding_norm, input.fc_embedding, tokens);  // [T, W]
  backend_.linear(token, tokens, input.fc_embedding, Epilogue::none, work_.x);
  const RowsFor hidden = work_.input_of(input.fc_hidden);  // [T, W]
  backend_.norm(work_.hidden, tokens, input.hidden_norm, hidden);
  backend_.linear(hidden, tokens, input.fc_hidden, Epilogue::add, work_.x);
}

bool Decoder::sublayer(Sublayer which, std::int64_t layer, const BatchView& batch,
                       const KvLayers& kv) {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  if (which == Sublayer::mixer) {
    return std::visit([&](const auto& mixer) { return run(mixer, layer, batch, kv); },
                      weights.mixer);
  }
  return std::visit([&](const auto& mlp) { return run(mlp, batch.tokens); }, weights.mlp);
}

// x += o(attention(qkv(norm(x))))
bool Decoder::run(const AttentionWeights& weights, std::int64_t layer, const BatchView& batch,
                  const KvLayers& cache) {
  const std::int64_t tokens = batch.tokens;
  const KvLayer kv = cache[cache_layers_[static_cast<std::size_t>(layer)]];
  AttentionShape shape = attention_shape(config_, weights, ranks_.own());
  if (!keys_are_centred(kv.key_type)) shape.key_offset = nullptr;
  const SharedBlock attended = work_.shared_input_of(weights.o);   // [T, H d]
  const RowsFor normed = norm(weights.norm, weights.qkv, tokens);  // [T, W]
  if (!wants_more(weights.qkv, normed, tokens)) return false;
  backend_.linear(normed, tokens, weights.qkv, Epilogue::none, work_.qkv);
  backend_.rope_append(work_.qkv, batch, shape, work_.rope_of(weights.config), kv);
  backend_.attention(work_.qkv, batch, shape, kv, attended.own);
  ranks_.gather(attended, tokens, Receivers::all, weights.o.name);
  if (!wants_more(weights.o, attended.whole, tokens)) return false;
  add(attended.whole, tokens, weights.o, weights.post_norm);
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
  add(mixed.whole, tokens, weights.out, std::nullopt);
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
  add(mixed.whole, tokens, weights.out, std::nullopt);
  return true;
}

// x += down(f(gate) * up), or down(f(up)), of gate and up of norm(x)
bool Decoder::run(const DenseMlpWeights& weights, std::int64_t tokens) {
  const SharedBlock product = work_.shared_input_of(weights.down);     // [T, F]
  const RowsFor normed = norm(weights.norm, weights.gate_up, tokens);  // [T, W]
  if (!wants_more(weights.gate_up, normed, tokens)) return false;
  const auto& [hidden, gated, activation, bias] = weights.config;
  backend_.linear(normed, tokens, weights.gate_up,
                  gated ? Epilogue::gated(activation) : Epilogue::activated(activation),
                  product.own);
  ranks_.gather(product, tokens, Receivers::all, weights.down.name);
  if (!wants_more(weights.down, product.whole, tokens)) return false;
  add(product.whole, tokens, weights.down, weights.post_norm);
  return true;
}

// x += sum over the experts e of each row of p_e * down_e(swiglu(gate_up_e(norm(x)))), plus the
// output of a shared expert
bool Decoder::run(const ExpertsMlpWeights& weights, std::int64_t tokens) {
  ExpertsRun run = {backend_, work_, ranks_, weights};
  const SharedBlock x = work_.shared_stream();  // [T, W]
  const LayerLinear& first = weights.gate_up.front();
  const RowsFor normed = norm(weights.norm, first, tokens);  // [T, W]
  if (!wants_more(first, normed, tokens)) return false;
  run.route(normed, tokens);
  run.gate(normed);
  bool more = true;
  run.each_product([&](const LayerLinear& linear, const Rows& rows) {
    more = wants_more(linear, rows, rows.capacity);
  });
  if (!more) return false;
  run.add(x.own.rows);
  ranks_.gather(x, tokens, Receivers::all, weights.router.name);
  return true;
}

// Writes norm(x) in the format that `linear` reads.
RowsFor Decoder::norm(const Norm& norm, const LayerLinear& linear, std::int64_t tokens) {
  const RowsFor out = work_.input_of(linear);
  backend_.norm(work_.x, tokens, norm, out);
  return out;
}

// x += linear(input), or x += norm(linear(input))
void Decoder::add(const RowsFor& input, std::int64_t tokens, const LayerLinear& linear,
                  const std::optional<Norm>& post_norm) {
  const SharedBlock x = work_.shared_stream();  // [T, W]
  if (post_norm) {
    const SharedBlock branch = work_.shared_branch();  // [T, W]
    backend_.linear(input, tokens, linear, Epilogue::none, branch.own);
    ranks_.gather(branch, tokens, Receivers::all, linear.name);
    backend_.norm(branch.whole, tokens, *post_norm, branch.whole);
    backend_.add_rows(branch.own, tokens, x.own.rows);
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
  kv_layers_.clear();
  for (std::int64_t i = 0; i < std::ssize(attention_layers_); ++i) kv_layers_.push_back(kv[i]);
  if (attention_layers_.empty()) return;
  const auto first = static_cast<std::size_t>(attention_layers_[0]);
  const AttentionShape shape =
      attention_shape(config_, weights_.layers[first].attention(), ranks_.own());
  backend_.quantize_kv_blocks(batch, shape, kv_layers_);
}

bool Decoder::wants_more(const LayerLinear& linear, const Rows& input, std::int64_t tokens) {
  return observer_ == nullptr || observer_->see(linear, input, tokens);
}

}  // namespace leq

#include "model/transformer.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "model/rotation.h"

namespace leq {
namespace {

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

RotationTable residual_rotation(const ModelConfig& config, Backend& backend) {
  if (config.rotation.block == 0) return {};
  return backend.allocate_rotation(rotation_factors(config), config.rotation.block, config.norm);
}

}  // namespace

// One step over a batch of T tokens: logits [outputs, V].
const Rows& Transformer::forward(const Batch& batch, KvCache& cache) {
  check(batch, cache);
  append(batch, cache);
  if (observer_ != nullptr) {  // looks at each step's numbers on the host
    run(batch, cache);
  } else {
    backend_.step(step_of(batch, cache), [&] { run(batch, cache); });
  }
  return work_.logits;
}

void Transformer::run(const Batch& batch, const KvCache& cache) {
  backend_.embed(weights_.token_embedding, batch.tokens, work_.x);
  if (weights_.position_embedding) {
    backend_.add_embedded(*weights_.position_embedding, positions_, work_.x);
  }
  if (rotation_.block > 0) {
    backend_.rotate(work_.x, std::ssize(batch.tokens), rotation_, Turn::in);
  }
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    attention_part(layer, cache.layer(layer));
    mlp_part(layer);
  }
  if (!batch.outputs.empty()) head_part(batch);
}

// x += O(attention(norm(x)))
bool Transformer::attention_part(std::int64_t layer, const KvLayer& kv) {
  const Block& block = weights_.blocks[static_cast<std::size_t>(layer)];
  const AttentionShape shape = attention_shape(config_, block, layer);
  Rows& qkv_in = work_.input_of(Reader::qkv, block.qkv);  // [T, W]
  Rows& o_in = work_.input_of(Reader::o, block.o);        // [T, H d]
  backend_.norm(work_.x, batch_.tokens, block.attention_norm, qkv_in);
  if (!goes_on(Reader::qkv, qkv_in)) return false;
  backend_.linear(qkv_in, batch_.tokens, block.qkv, Epilogue::none, work_.qkv);
  backend_.rope_append(work_.qkv, batch_, shape, rope_, kv);
  backend_.attention(work_.qkv, batch_, shape, kv, o_in);
  if (!goes_on(Reader::o, o_in)) return false;
  backend_.linear(o_in, batch_.tokens, block.o, Epilogue::add, work_.x);
  return true;
}

// x += down(activation(gate_up(norm(x))))
bool Transformer::mlp_part(std::int64_t layer) {
  const Block& block = weights_.blocks[static_cast<std::size_t>(layer)];
  Rows& mlp_in = work_.input_of(Reader::gate_up, block.gate_up);  // [T, W]
  Rows& down_in = work_.input_of(Reader::down, block.down);       // [T, F]
  backend_.norm(work_.x, batch_.tokens, block.mlp_norm, mlp_in);
  if (!goes_on(Reader::gate_up, mlp_in)) return false;
  backend_.linear(mlp_in, batch_.tokens, block.gate_up,
                  config_.gated ? Epilogue::swiglu : Epilogue::gelu, down_in);
  if (!goes_on(Reader::down, down_in)) return false;
  backend_.linear(down_in, batch_.tokens, block.down, Epilogue::add, work_.x);
  return true;
}

// logits = head(norm(rows of x that want them))
void Transformer::head_part(const Batch& batch) {
  const auto outputs = std::ssize(batch.outputs);
  Rows& head_in = work_.input_of(Reader::head, weights_.head);  // [outputs, W]
  backend_.gather_rows(work_.x, batch.outputs, work_.last);
  if (rotation_.block > 0) backend_.rotate(work_.last, outputs, rotation_, Turn::back);
  backend_.norm(work_.last, outputs, weights_.final_norm, head_in);
  backend_.linear(head_in, outputs, weights_.head, Epilogue::none, work_.logits);
}

Transformer::Transformer(const ModelConfig& config, const Weights& weights, Backend& backend,
                         const ForwardLimits& limits)
    : config_(config),
      weights_(weights),
      backend_(backend),
      limits_(limits),
      frequencies_(rope_frequencies(config, limits.context)),
      rope_(backend.allocate_rope(frequencies_.inv_freq, frequencies_.attention_factor,
                                  limits.context)),
      rotation_(residual_rotation(config, backend)),
      work_(config, weights, backend, limits) {
  backend.reserve(limits.batch_tokens, attention_shape(config, weights.blocks[0], 0),
                  limits.context);
}

std::size_t Transformer::scratch_bytes(const ModelConfig& config, const Weights& weights,
                                       const Backend& backend, const ForwardLimits& limits) {
  const std::int64_t pairs = config.rotary ? config.head_dim / 2 : 0;
  const bool rotated = config.rotation.block > 0;
  return backend.rope_bytes(pairs, limits.context) +
         (rotated ? backend.rotation_bytes(config.width) : 0) +
         Workspace::bytes(config, weights, backend, limits) +
         backend.reserve_bytes(limits.batch_tokens, attention_shape(config, weights.blocks[0], 0),
                               limits.context);
}

bool Transformer::goes_on(Reader reader, const Rows& input) {
  return observer_ == nullptr || observer_->see(reader, input, batch_.tokens);
}

bool Transformer::run_half(BlockHalf half, std::int64_t layer, std::span<float> hidden,
                           KvCache& cache) {
  const std::int64_t tokens = std::ssize(hidden) / config_.width;
  ensure(tokens > 0 && tokens <= limits_.batch_tokens && tokens <= limits_.context &&
             tokens * config_.width == std::ssize(hidden),
         "block: hidden states of ", hidden.size(), " numbers, expected 1 to ",
         limits_.batch_tokens, " rows of ", config_.width);
  Batch batch;
  batch.tokens.resize(static_cast<std::size_t>(tokens));
  std::iota(batch.tokens.begin(), batch.tokens.end(), 0);
  batch.sequences.assign(batch.tokens.size(), 0);
  append(batch, cache);
  backend_.assign(hidden, work_.x);
  const bool whole =
      half == BlockHalf::attention ? attention_part(layer, cache.layer(layer)) : mlp_part(layer);
  cache.clear(0);
  if (whole) backend_.download(work_.x, tokens, hidden);
  return whole;
}

void Transformer::check(const Batch& batch, const KvCache& cache) {
  const auto tokens = std::ssize(batch.tokens);
  ensure(tokens > 0, "forward: an empty batch");
  ensure(tokens <= limits_.batch_tokens, "forward: ", tokens, " tokens in a batch, room for ",
         limits_.batch_tokens);
  ensure(std::ssize(batch.outputs) <= limits_.output_tokens, "forward: logits of ",
         batch.outputs.size(), " rows wanted, room for ", limits_.output_tokens);
  ensure(batch.sequences.size() == batch.tokens.size(), "forward: ", batch.sequences.size(),
         " sequences for ", tokens, " tokens");
  for (const std::int32_t token : batch.tokens) {
    ensure(token >= 0 && token < config_.vocab, "forward: token id ", token, ", the model has ",
           config_.vocab);
  }
  for (const std::int32_t row : batch.outputs) {
    ensure(row >= 0 && row < tokens, "forward: output row ", row, " of ", tokens);
  }
  if (!work_.online().empty()) {
    for (const std::int32_t sequence : batch.sequences) {
      require(sequence == batch.sequences[0], ErrorKind::bad_setting,
              work_.online()[0].linear->name,
              ": act online remembers the inputs of one sequence, the batch holds sequences ",
              batch.sequences[0], " and ", sequence, "; use ", Setting{"sequences"},
              " 1, or quantize with ", Setting{"act"}, " row");
    }
  }
  for (std::size_t t = 0; t < batch.tokens.size(); ++t) {
    const std::int32_t sequence = batch.sequences[t];
    const auto rows = std::count(batch.sequences.begin(), batch.sequences.end(), sequence);
    if (t > 0 && batch.sequences[t - 1] == sequence) continue;
    require(cache.length(sequence) + rows <= limits_.context, "context full: sequence ", sequence,
            " holds ", cache.length(sequence), " positions, ", rows, " more do not fit in ",
            limits_.context, "; raise ", Setting{"context"}, " or shorten the text");
  }
}

Step Transformer::step_of(const Batch& batch, const KvCache& cache) {
  return {batch_,
          {batch.tokens, positions_, batch.outputs},
          config_.rotary ? &rope_ : nullptr,
          limits_.context,
          {work_.x.values, cache.layer(0).keys}};
}

// Takes positions for the batch in the cache and finds its runs of neighbouring rows.
void Transformer::append(const Batch& batch, KvCache& cache) {
  const auto tokens = std::ssize(batch.tokens);
  runs_.clear();
  positions_.resize(batch.tokens.size());
  for (std::int64_t row = 0; row < tokens;) {
    const std::int32_t sequence = batch.sequences[static_cast<std::size_t>(row)];
    SequenceRun run;
    run.first_row = row;
    run.first_position = cache.length(sequence);
    while (row < tokens && batch.sequences[static_cast<std::size_t>(row)] == sequence) {
      positions_[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(run.end_position());
      ++run.rows;
      ++row;
    }
    cache.append(sequence, run.rows);
    run.sequence = sequence;
    runs_.push_back(run);
  }
  for (SequenceRun& run : runs_) run.pages = cache.pages(run.sequence);
  batch_ = {tokens, runs_};
}

}  // namespace leq

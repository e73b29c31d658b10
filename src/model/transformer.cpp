#include "model/transformer.h"

#include <functional>
#include <map>
#include <new>
#include <numeric>
#include <string>
#include <string_view>

#include "backend/rows_slice.h"
#include "base/error.h"
#include "model/kv_layers.h"

namespace leq {

// One step over a batch of T tokens: logits [outputs, V].
const Rows& Transformer::forward(const Batch& batch, KvCache& cache) {
  check(batch, cache);
  undone_by_errors(cache, [&] {
    append(batch, cache);
    ended_by_errors([&] {
      lead(RankStep::Wanted::logits, batch, cache.layers());
      if (observer_ != nullptr) {  // looks at each step's numbers on the host
        run(batch, cache.layers());
      } else {
        const KvLayers kv = cache.layers();
        backend_.step(step_of(batch, kv), [&] { run(batch, kv); });
      }
      settle();
    });
  });
  cache.settle();
  return work_.logits;
}

// Not recorded: it is rare, and steps that are recorded end with logits.
const Rows& Transformer::hidden(const Batch& batch, KvCache& cache) {
  check(batch, cache);
  undone_by_errors(cache, [&] {
    append(batch, cache);
    ended_by_errors([&] {
      lead(RankStep::Wanted::hidden, batch, cache.layers());
      run_hidden(batch, cache.layers());
      settle();
    });
  });
  cache.settle();
  return work_.last;
}

void Transformer::run(const Batch& batch, const KvLayers& kv) {
  blocks(batch, kv);
  if (!batch.outputs.empty()) head_part(batch);
}

void Transformer::run_hidden(const Batch& batch, const KvLayers& kv) {
  blocks(batch, kv);
  pick_outputs(batch);
  backend_.norm(work_.last, std::ssize(batch.outputs), weights_.final_norm, work_.last);
}

// x = the hidden states after all blocks
void Transformer::blocks(const Batch& batch, const KvLayers& kv) {
  embed(batch);
  seal(kv);
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    attention_part(layer, kv[layer]);
    mlp_part(layer);
  }
}

// Blocks of the cache that were whole before this step and that its queries read as codes.
void Transformer::seal(const KvLayers& kv) {
  if (!kv.pages.zones().copies()) return;
  sealed_layers_.clear();
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    sealed_layers_.push_back(kv[layer]);
  }
  AttentionShape shape = attention_shape(config_, weights_.blocks[0], 0, place_.own());
  shape.key_turns = &work_.rope;
  backend_.seal(batch_, shape, work_.rope, sealed_layers_);
}

// x += O(attention(norm(x)))
bool Transformer::attention_part(std::int64_t layer, const KvLayer& kv) {
  const Block& block = weights_.blocks[static_cast<std::size_t>(layer)];
  AttentionShape shape = attention_shape(config_, block, layer, place_.own());
  if (!keys_are_centred(kv.key_type)) shape.key_offset = nullptr;
  if (kv_scheme(kv.key_type).before_rope) shape.key_turns = &work_.rope;
  const SharedBlock o_in = work_.shared_input_of(Reader::o, block.o);             // [T, H d]
  const SharedBlock x = work_.shared_stream();                                    // [T, W]
  const RowsFor qkv_in = norm_for(Reader::qkv, block.attention_norm, block.qkv);  // [T, W]
  if (!goes_on(Reader::qkv, qkv_in)) return false;
  backend_.linear(qkv_in, batch_.tokens, block.qkv, Epilogue::none, work_.qkv);
  backend_.rope_append(work_.qkv, batch_, shape, work_.rope, kv);
  backend_.attention(work_.qkv, batch_, shape, kv, o_in.own);
  gather(o_in, batch_.tokens, Receivers::all, block.o.name);
  if (!goes_on(Reader::o, o_in.whole)) return false;
  backend_.linear(o_in.whole, batch_.tokens, block.o, Epilogue::add, x.own);
  gather(x, batch_.tokens, Receivers::all, block.o.name);
  return true;
}

// x += down(activation(gate_up(norm(x))))
bool Transformer::mlp_part(std::int64_t layer) {
  const Block& block = weights_.blocks[static_cast<std::size_t>(layer)];
  const SharedBlock down_in = work_.shared_input_of(Reader::down, block.down);      // [T, F]
  const SharedBlock x = work_.shared_stream();                                      // [T, W]
  const RowsFor mlp_in = norm_for(Reader::gate_up, block.mlp_norm, block.gate_up);  // [T, W]
  if (!goes_on(Reader::gate_up, mlp_in)) return false;
  backend_.linear(mlp_in, batch_.tokens, block.gate_up,
                  config_.gated ? Epilogue::swiglu : Epilogue::gelu, down_in.own);
  gather(down_in, batch_.tokens, Receivers::all, block.down.name);
  if (!goes_on(Reader::down, down_in.whole)) return false;
  backend_.linear(down_in.whole, batch_.tokens, block.down, Epilogue::add, x.own);
  gather(x, batch_.tokens, Receivers::all, block.down.name);
  return true;
}

// logits = head(norm(rows of x that want them))
void Transformer::head_part(const Batch& batch) {
  const auto outputs = std::ssize(batch.outputs);
  const RowsFor head_in = work_.input_of(Reader::head, weights_.head);  // [outputs, W]
  const SharedBlock logits = work_.shared_logits();                     // [outputs, V]
  pick_outputs(batch);
  backend_.norm(work_.last, outputs, weights_.final_norm, head_in);
  backend_.linear(head_in, outputs, weights_.head, Epilogue::none, logits.own);
  gather(logits, outputs, Receivers::leader, weights_.head.name);
}

// last = rows of x that want logits, out of the rotated stream
void Transformer::pick_outputs(const Batch& batch) {
  backend_.gather_rows(work_.x, batch.outputs, work_.last);
  if (work_.rotation.block > 0) {
    backend_.rotate(work_.last, std::ssize(batch.outputs), work_.rotation, Turn::back);
  }
}

Slice Transformer::own_rows() const {
  if (!shares_) return {0, batch_.tokens};
  const auto ranks = std::ssize(place_.shares), rank = static_cast<std::int64_t>(place_.rank);
  return {batch_.tokens * rank / ranks, batch_.tokens * (rank + 1) / ranks};
}

// Where ranks have one x each makes some of its rows.
void Transformer::embed(const Batch& batch) {
  const Slice own = own_rows();
  if (!own.empty()) {
    const auto first = static_cast<std::size_t>(own.first);
    const auto count = static_cast<std::size_t>(own.count());
    const Embedding all = embedding(batch);
    Rows x = slice_tokens(work_.x, own);
    backend_.embed(
        {all.tokens, all.ids.subspan(first, count), all.positions, all.at.subspan(first, count)},
        x);
    if (work_.rotation.block > 0) backend_.rotate(x, own.count(), work_.rotation, Turn::in);
  }
  if (shares_) ranks_.barrier("the embeddings");
}

RowsFor Transformer::norm_for(Reader reader, const Norm& norm, const Linear& linear) {
  // Few rows are sooner done by each than by all.
  constexpr std::int64_t kRowsOfARank = 8;
  const auto ranks = std::ssize(place_.shares);
  if (shares_ && batch_.tokens >= kRowsOfARank * ranks) {
    if (const auto common = work_.common_input_of(reader, linear)) {
      norm_own_rows(norm, *common, linear.name);
      return *common;
    }
  }
  const RowsFor out = work_.input_of(reader, linear);
  backend_.norm(work_.x, batch_.tokens, norm, out);
  return out;
}

void Transformer::norm_own_rows(const Norm& norm, const RowsFor& out, std::string_view site) {
  const Slice own = own_rows();
  const Rows x = slice_tokens(work_.x, own);
  Rows rows = slice_tokens(out.rows, own);
  try {
    backend_.norm(x, own.count(), norm, {rows, out.consumer});
  } catch (const Error& error) {
    throw Error("rows from " + std::to_string(own.first) + " on: " + std::string(error.marked()),
                error.kind());
  }
  ranks_.barrier(site);
}

// Does nothing on one rank.
void Transformer::gather(const SharedBlock& block, std::int64_t tokens, Receivers to,
                         std::string_view site) {
  Communicator& ranks = linked_ != nullptr ? *linked_ : ranks_;
  backend_.gather(block.whole, tokens, {ranks, block.columns, to, block.own.rows, site});
}

// Rows that are not finite show where a device is waited for; where it works before its operations
// return they have been thrown, and gathers have ended the others.
void Transformer::settle() {
  if (linked_ == nullptr) return;
  constexpr std::string_view kSite = "the end of the step";
  linked_->finish(kSite);
  backend_.synchronize();
  linked_->barrier(kSite);
}

Transformer::Transformer(const ModelConfig& config, const Weights& weights, Backend& backend,
                         const ForwardLimits& limits)
    : Transformer(config, weights, backend, limits, one_rank(), place_of(config, 0, 1)) {}

Transformer::Transformer(const ModelConfig& config, const Weights& weights, Backend& backend,
                         const ForwardLimits& limits, Communicator& ranks, const RankPlace& place)
    : config_(config),
      weights_(weights),
      backend_(backend),
      limits_(limits),
      ranks_(ranks),
      place_(place),
      work_(config, weights, backend.memory(), backend.layout(), limits, place_) {
  if (place_.alone()) return;
  linked_ = backend_.connect(ranks_, {work_.exchange.data(), work_.exchange.size()});
  if (linked_ != nullptr || !ranks_.in_one_process()) return;
  shares_.emplace(ranks_);
  work_.share(ranks_);
}

void Transformer::lead(RankStep::Wanted wanted, const Batch& batch, const KvLayers& kv) {
  if (place_.alone()) return;
  const RankStep step = {wanted, batch, positions_, runs_, {kv.copies.begin(), kv.copies.end()}};
  command_ = encode(step);
  ranks_.broadcast(command_, "the next step");
}

void Transformer::follow(const RankStep& step, const KvPages& pages) {
  positions_ = step.positions;
  runs_ = step.runs;
  batch_ = {std::ssize(step.batch.tokens), runs_};
  const KvLayers kv = {pages, step.copies};
  ended_by_errors([&] {
    if (step.wanted == RankStep::Wanted::logits) {
      backend_.step(step_of(step.batch, kv), [&] { run(step.batch, kv); });
    } else {
      run_hidden(step.batch, kv);
    }
    settle();
  });
}

void Transformer::ended_by_errors(const std::function<void()>& work) {
  if (place_.alone()) return work();
  ranks_.at_step(ranks_.step() + 1);
  try {
    work();
  } catch (const Error& error) {
    throw ranks_.abort(rank_error(ranks_, error));
  } catch (const std::bad_alloc&) {
    throw ranks_.abort(rank_error(ranks_, Error("out of memory", ErrorKind::no_memory)));
  }
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
  bool whole = false;
  undone_by_errors(cache, [&] {
    append(batch, cache);
    backend_.assign(hidden, work_.x);
    whole =
        half == BlockHalf::attention ? attention_part(layer, cache.layer(layer)) : mlp_part(layer);
  });
  cache.clear(0);
  if (whole) backend_.download(work_.x, tokens, hidden);
  return whole;
}

namespace {

// Positions for all rows of each sequence.
void require_room(const Batch& batch, const KvCache& cache, std::int64_t context) {
  std::map<std::int32_t, std::int64_t> rows_of;
  for (const std::int32_t sequence : batch.sequences) ++rows_of[sequence];
  for (std::size_t t = 0; t < batch.tokens.size(); ++t) {
    const std::int32_t sequence = batch.sequences[t];
    if (t > 0 && batch.sequences[t - 1] == sequence) continue;
    const std::int64_t rows = rows_of[sequence];
    require(cache.length(sequence) + rows <= context, "context full: sequence ", sequence,
            " holds ", cache.length(sequence), " positions, ", rows, " more do not fit in ",
            context, "; raise ", Setting{"context"}, " or shorten the text");
  }
}

}  // namespace

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
    const bool known_later = is_drawn_id(token) && place_.alone();
    ensure(known_later || (token >= 0 && token < config_.vocab), "forward: token id ", token,
           ", the model has ", config_.vocab);
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
  require_room(batch, cache, limits_.context);
}

Step Transformer::step_of(const Batch& batch, const KvLayers& kv) {
  return {batch_,
          {batch.tokens, positions_, batch.outputs},
          config_.rotary ? &work_.rope : nullptr,
          limits_.context,
          {work_.x.values, kv[0].keys},
          kv.pages.zones().copies() ? kv.copies : std::span<const std::int32_t>()};
}

Embedding Transformer::embedding(const Batch& batch) const {
  const auto& learned = weights_.position_embedding;
  return {weights_.token_embedding, batch.tokens, learned ? &*learned : nullptr, positions_};
}

// Moving scales are remembered where the host has them: asking a device for its own would wait.
void Transformer::undone_by_errors(KvCache& cache, const std::function<void()>& work) {
  runs_.clear();
  online_before_.clear();
  for (const OnlineInput& input : work_.online()) {
    if (input.scale.twin() == nullptr) online_before_.push_back(input.scale.save());
  }
  try {
    work();
  } catch (...) {
    give_back(cache);
    throw;
  }
}

void Transformer::give_back(KvCache& cache) {
  for (auto run = runs_.rbegin(); run != runs_.rend(); ++run) {
    (void)cache.truncate(run->sequence, run->first_position);
  }
  if (online_before_.size() != work_.online().size()) return;
  for (std::size_t i = 0; i < online_before_.size(); ++i) {
    work_.online()[i].scale.restore(online_before_[i]);
  }
}

// Takes positions for the batch in the cache and finds its runs of neighbouring rows.
void Transformer::append(const Batch& batch, KvCache& cache) {
  const auto tokens = std::ssize(batch.tokens);
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

#include "model/transformer.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "backend/kv_types.h"
#include "base/error.h"
#include "cache/sequence_state.h"
#include "model/workspace.h"

namespace leq {
namespace {

// Calls `work`, which appends to sequences and records each in `runs` afterwards. If `work` throws,
// restores these sequences and the moving scales of `online`, then rethrows.
void undo_on_error(const SequenceState& state, const std::vector<SequenceRun>& runs,
                   std::span<OnlineInput> online, const std::function<void()>& work) {
  std::vector<OnlineState> before;  // without device scales: reading them would wait
  for (const OnlineInput& input : online) {
    if (input.scale.on_device() == nullptr) before.push_back(input.scale.save());
  }
  try {
    work();
  } catch (...) {
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      (void)state.restore(run->sequence, run->first_position);
    }
    for (std::size_t i = 0; before.size() == online.size() && i < before.size(); ++i) {
      online[i].scale.restore(before[i]);
    }
    throw;
  }
}

void point_to_states(const FixedStates& fixed, std::span<const FixedStates::StepStates> states,
                     std::span<SequenceRun> runs) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i].state_from = fixed.bytes_of(states[i].from);
    runs[i].state_to = fixed.bytes_of(states[i].to);
  }
}

// States read and written by each run. A later run of a sequence reads what the earlier one wrote.
std::vector<FixedStates::StepStates> states_of(const FixedStates& fixed,
                                               std::span<const SequenceRun> runs) {
  std::vector<FixedStates::StepStates> all;
  for (const SequenceRun& run : runs) {
    FixedStates::StepStates& states = all.emplace_back(fixed.step_states(run.sequence));
    const bool is_later = std::ranges::any_of(runs.first(all.size() - 1), [&](const auto& before) {
      return before.sequence == run.sequence;
    });
    if (is_later) states.from = states.to;
  }
  return all;
}

// Throws Error unless all rows of each sequence fit into the context.
void require_context(const Batch& batch, const SequenceState& state, std::int64_t context) {
  std::map<std::int32_t, std::int64_t> rows_of;
  for (const std::int32_t sequence : batch.sequences) ++rows_of[sequence];
  for (std::size_t t = 0; t < batch.tokens.size(); ++t) {
    const std::int32_t sequence = batch.sequences[t];
    if (t > 0 && batch.sequences[t - 1] == sequence) continue;
    const std::int64_t rows = rows_of[sequence];
    require(state.length(sequence) + rows <= context, "context full: sequence ", sequence,
            " holds ", state.length(sequence), " positions, ", rows, " more do not fit in ",
            context, "; raise ", Setting{"context"}, " or shorten the text");
  }
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, const Weights& weights, Backend& backend,
                         const ForwardLimits& limits)
    : Transformer(config, weights, backend, limits, one_rank(), place_of(config, 0, 1)) {}

Transformer::Transformer(const ModelConfig& config, const Weights& weights, Backend& backend,
                         const ForwardLimits& limits, Communicator& ranks, const RankPlace& place)
    : config_(config),
      weights_(weights),
      backend_(backend),
      limits_(limits),
      place_(place),
      work_(config, weights, backend.memory(), backend.layout(), limits, place_),
      ranks_(backend, work_, ranks, place_),
      decoder_(config, weights, backend, work_, ranks_) {}

void Transformer::check_writes() const {
  require(!config_.both_ways(), ErrorKind::bad_setting, config_.family,
          " with attention in both directions makes embeddings and no text; use the server's ",
          "embeddings");
}

const Rows& Transformer::forward(const Batch& batch, const SequenceState& state) {
  check_writes();
  step(RankStep::Wanted::logits, batch, state);
  return work_.logits;
}

const Rows& Transformer::forward(const Batch& batch, const SequenceState& state,
                                 std::span<const float> hidden) {
  ensure(config_.reads_hidden &&
             hidden.size() == batch.tokens.size() * static_cast<std::size_t>(config_.width),
         "forward: hidden states of ", hidden.size(), " numbers for ", batch.tokens.size(),
         " tokens");
  backend_.assign(hidden, work_.hidden);
  return forward(batch, state);
}

void Transformer::normed_hidden(std::span<const std::int32_t> rows, std::span<float> out) {
  const auto width = static_cast<std::size_t>(config_.width);
  ensure(out.size() == rows.size() * width, "hidden states: ", out.size(), " numbers for ",
         rows.size(), " rows");
  const auto most = static_cast<std::size_t>(limits_.output_tokens);
  for (std::size_t first = 0; first < rows.size(); first += most) {
    const auto some = rows.subspan(first, std::min(most, rows.size() - first));
    decoder_.final_norm(some);
    backend_.download(work_.last, std::ssize(some),
                      out.subspan(first * width, some.size() * width));
  }
}

const Rows& Transformer::hidden(const Batch& batch, const SequenceState& state) {
  step(RankStep::Wanted::hidden, batch, state);
  return work_.last;
}

void Transformer::step(RankStep::Wanted wanted, const Batch& batch, const SequenceState& state) {
  check(batch, state);
  runs_.clear();
  undo_on_error(state, runs_, work_.online(), [&] {
    append(batch, state);
    ranks_.abort_on_error([&] {
      const KvLayers kv = state.pages().layers();
      if (!ranks_.alone()) {
        std::vector<std::byte> command = encode(RankStep{wanted,
                                                         batch,
                                                         positions_,
                                                         runs_,
                                                         {kv.copies.begin(), kv.copies.end()},
                                                         {kv.frames.begin(), kv.frames.end()},
                                                         states_});
        ranks_.ranks().broadcast(command, "the next step");
      }
      run(wanted, batch, kv);
      ranks_.finish_step();
    });
  });
  state.commit();
}

// Steps with an observer are not recorded as graphs, because the observer reads results on the
// host. Steps without logits are not recorded either, because they are rare.
void Transformer::run(RankStep::Wanted wanted, const Batch& batch, const KvLayers& kv) {
  const auto layers = [&] { decoder_.layers(embedding(batch), batch_, kv); };
  const auto logits = [&] {
    layers();
    if (!batch.outputs.empty()) decoder_.head(batch.outputs);
  };
  if (wanted == RankStep::Wanted::hidden) {
    layers();
    if (!batch.outputs.empty()) decoder_.final_norm(batch.outputs);
  } else if (decoder_.observed()) {
    logits();
  } else {
    const bool copies = kv.pages.residual().copies();
    backend_.step({batch_,
                   {batch.tokens, positions_, batch.outputs},
                   work_.ropes,
                   limits_.context,
                   {work_.x.values, kv[0].keys},
                   copies ? kv.copies : std::span<const std::int32_t>(),
                   kv.frames},
                  logits);
  }
}

void Transformer::follow(const RankStep& step, const KvPages& pages, const FixedStates* states) {
  positions_ = step.positions;
  runs_ = step.runs;
  if (states != nullptr) point_to_states(*states, step.states, runs_);
  batch_ = {std::ssize(step.batch.tokens), runs_};
  const KvLayers kv = {pages, step.copies, step.frames};
  ranks_.abort_on_error([&] {
    run(step.wanted, step.batch, kv);
    ranks_.finish_step();
  });
}

bool Transformer::run_sublayer(Sublayer which, std::int64_t layer, std::span<float> hidden,
                               const SequenceState& state, const BesideStream& beside) {
  const std::int64_t tokens = std::ssize(hidden) / config_.width;
  ensure(tokens > 0 && tokens <= limits_.batch_tokens && tokens <= limits_.context &&
             tokens * config_.width == std::ssize(hidden),
         "layer: hidden states of ", hidden.size(), " numbers, expected 1 to ",
         limits_.batch_tokens, " rows of ", config_.width);
  Batch batch;
  batch.tokens.resize(static_cast<std::size_t>(tokens));
  std::iota(batch.tokens.begin(), batch.tokens.end(), 0);
  batch.sequences.assign(batch.tokens.size(), 0);
  bool whole = false;
  runs_.clear();
  undo_on_error(state, runs_, work_.online(), [&] {
    append(batch, state);
    if (beside.embeds) decoder_.embed(embedding(batch), tokens);
    if (!beside.owner.empty()) {
      backend_.assign(beside.owner, work_.x);
      decoder_.fill_keys(layer, batch_, state.pages().layers());
    }
    backend_.assign(hidden, work_.x);
    whole = decoder_.sublayer(which, layer, batch_, state.pages().layers());
  });
  state.drop(0);
  if (whole) backend_.download(work_.x, tokens, hidden);
  return whole;
}

void Transformer::embed(std::span<const std::int32_t> tokens, std::span<float> hidden) {
  const auto count = std::ssize(tokens);
  ensure(count > 0 && count <= limits_.batch_tokens && count * config_.width == std::ssize(hidden),
         "embed: ", count, " tokens, room for ", limits_.batch_tokens);
  Batch batch;
  batch.tokens.assign(tokens.begin(), tokens.end());
  positions_.resize(batch.tokens.size());
  std::iota(positions_.begin(), positions_.end(), 0);
  backend_.embed(embedding(batch), work_.x);
  backend_.download(work_.x, count, hidden);
}

const Rows& Transformer::head(std::span<const float> hidden) {
  const std::int64_t rows = std::ssize(hidden) / config_.width;
  ensure(rows > 0 && rows <= std::min(limits_.batch_tokens, limits_.output_tokens),
         "head: hidden states of ", rows, " rows, room for ", limits_.output_tokens);
  backend_.assign(hidden, work_.x);
  std::vector<std::int32_t> outputs(static_cast<std::size_t>(rows));
  std::iota(outputs.begin(), outputs.end(), 0);
  decoder_.head(outputs);
  return work_.logits;
}

void Transformer::check(const Batch& batch, const SequenceState& state) {
  const auto tokens = std::ssize(batch.tokens);
  ensure(tokens > 0, "forward: an empty batch");
  ensure(tokens <= limits_.batch_tokens, "forward: ", tokens, " tokens in a batch, room for ",
         limits_.batch_tokens);
  ensure(std::ssize(batch.outputs) <= limits_.output_tokens, "forward: logits of ",
         batch.outputs.size(), " rows wanted, room for ", limits_.output_tokens);
  ensure(config_.state_layers().empty() || state.fixed() != nullptr,
         "forward: this model has layers with a state, the sequences have none");
  ensure(batch.sequences.size() == batch.tokens.size(), "forward: ", batch.sequences.size(),
         " sequences for ", tokens, " tokens");
  for (const std::int32_t token : batch.tokens) {
    const bool known_later = is_placeholder_id(token) && ranks_.alone();
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
  require_context(batch, state, limits_.context);
}

Embedding Transformer::embedding(const Batch& batch) const {
  const auto& learned = weights_.position_embedding;
  return {weights_.token_embedding, batch.tokens, learned ? &*learned : nullptr, positions_,
          static_cast<float>(config_.embedding_scale)};
}

// Reserves cache positions for the batch and finds its runs (consecutive rows of one sequence).
void Transformer::append(const Batch& batch, const SequenceState& state) {
  const auto tokens = std::ssize(batch.tokens);
  positions_.resize(batch.tokens.size());
  for (std::int64_t row = 0; row < tokens;) {
    const std::int32_t sequence = batch.sequences[static_cast<std::size_t>(row)];
    SequenceRun run;
    run.first_row = row;
    run.first_position = state.length(sequence);
    require(!config_.both_ways() || run.first_position == 0, ErrorKind::bad_input,
            "a text longer than a step of ", limits_.batch_tokens,
            " tokens, whose attention sees both directions at once; raise ",
            Setting{"batch_tokens"});
    while (row < tokens && batch.sequences[static_cast<std::size_t>(row)] == sequence) {
      positions_[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(run.end_position());
      ++run.rows;
      ++row;
    }
    state.append(sequence, run.rows);
    run.sequence = sequence;
    runs_.push_back(run);
  }
  for (SequenceRun& run : runs_) run.pages = state.pages().pages(run.sequence);
  states_.assign(runs_.size(), {});
  if (const FixedStates* fixed = state.fixed()) {
    states_ = states_of(*fixed, runs_);
    point_to_states(*fixed, states_, runs_);
  }
  batch_ = {tokens, runs_};
}

}  // namespace leq

#include "model/ranks.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/version.h"
#include "model/session.h"
#include "model/transformer.h"
#include "ranks/communicator.h"

namespace leq {

namespace {

constexpr std::string_view kSource = "a command between ranks";
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 40;  // upper bound of any valid position

// Both archives have the same functions, so that each command lists its members once.
class Writer {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  template <class Enum>
  void kind(Enum value, Enum /*last*/) {
    number(value);
  }
  void list(std::span<const std::int32_t> numbers) {
    number(static_cast<std::int64_t>(numbers.size()));
    const auto bytes = std::as_bytes(numbers);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void run_count(RankStep& step) {
    number(static_cast<std::int64_t>(step.runs.size()));
    ensure(step.states.size() == step.runs.size(), kSource, ": ", step.states.size(), " states");
  }
  void pages(RankStep& step, std::size_t run) { list(step.runs[run].pages); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes, kSource) {}

  template <class T>
  void number(T& value) {
    value = bytes_.read<T>("a number");
  }
  template <class Enum>
  void kind(Enum& value, Enum last) {
    const auto found = bytes_.read<std::uint8_t>("a kind");
    require(found <= static_cast<std::uint8_t>(last), kSource, ": kind ", int{found});
    value = static_cast<Enum>(found);
  }
  void list(std::vector<std::int32_t>& numbers) {
    const auto count = bytes_.read<std::int64_t>("the length of a list");
    require(count >= 0 && static_cast<std::uint64_t>(count) <= bytes_.left() / 4, kSource,
            ": a list of ", count, " numbers");
    const auto bytes = bytes_.take(static_cast<std::uint64_t>(count) * 4, "a list");
    numbers.resize(static_cast<std::size_t>(count));
    if (count > 0) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  }
  void run_count(RankStep& step) {
    const auto runs = bytes_.read<std::int64_t>("the number of runs");
    require(runs >= 0 && runs <= std::ssize(step.batch.tokens), kSource, ": ", runs, " runs");
    step.runs.resize(static_cast<std::size_t>(runs));
    step.states.resize(step.runs.size());
    step.pages.resize(step.runs.size());
  }
  void pages(RankStep& step, std::size_t run) {
    list(step.pages[run]);
    step.runs[run].pages = step.pages[run];  // moving step.pages does not move the list's numbers
  }
  std::size_t left() const { return bytes_.left(); }

 private:
  ByteReader bytes_;
};

void members(auto& archive, RankStep& step) {
  archive.kind(step.wanted, RankStep::Wanted::hidden);
  archive.list(step.batch.tokens);
  archive.list(step.batch.outputs);
  archive.list(step.positions);
  archive.list(step.copies);
  archive.list(step.frames);
  archive.run_count(step);
  for (std::size_t i = 0; i < step.runs.size(); ++i) {
    archive.number(step.states[i].from);
    archive.number(step.states[i].to);
    archive.number(step.runs[i].sequence);
    archive.number(step.runs[i].first_row);
    archive.number(step.runs[i].rows);
    archive.number(step.runs[i].first_position);
    archive.pages(step, i);
  }
}
void members(auto& archive, PageCopy& copy) {
  archive.kind(copy.of, PageCopy::Of::f16_copy);
  archive.number(copy.from);
  archive.number(copy.to);
}
void members(auto&, RankEnd&) {}
void members(auto& archive, SequenceTransfer& transfer) {
  archive.kind(transfer.kind, SequenceTransfer::Kind::load);
  archive.list(transfer.pages);
  archive.list(transfer.frames);
  archive.list(transfer.copies);
}
void members(auto& archive, StateTransfer& transfer) {
  archive.kind(transfer.kind, StateTransfer::Kind::write);
  archive.number(transfer.state);
}

// Checks that lists have the same length, rows are in order, and pages hold all positions.
void check_step(const RankStep& step) {
  const std::int64_t tokens = std::ssize(step.batch.tokens);
  bool fits = std::ssize(step.positions) == tokens;
  for (const std::int32_t row : step.batch.outputs) fits = fits && row >= 0 && row < tokens;
  std::int64_t rows = 0;
  for (const SequenceRun& run : step.runs) {
    fits = fits && run.first_row == rows && run.rows > 0 && run.rows <= tokens - rows &&
           run.first_position >= 0 && run.first_position <= kMaxPositions &&
           run.end_position() <= std::ssize(run.pages) * kPageTokens;
    if (!fits) break;
    rows += run.rows;
  }
  require(fits && rows == tokens, kSource, ": a step that contradicts itself");
}

// The command with this index in RankCommand.
template <std::size_t Index = 0>
RankCommand command_of(std::uint8_t index) {
  if constexpr (Index < std::variant_size_v<RankCommand>) {
    if (index == Index) return RankCommand(std::in_place_index<Index>);
    return command_of<Index + 1>(index);
  }
  fail(kSource, ": of no known kind");
}

// A rank other than the leader, with its weights, pages and transformer.
class Follower {
 public:
  Follower(const ModelConfig& config, Weights weights, Backend& backend, const RunLimits& limits,
           Communicator& ranks, std::uint64_t fingerprint)
      : ranks_(ranks),
        facts_(rank_facts(config, limits, fingerprint)),
        place_(place_of(config, ranks.rank(), ranks.size())),
        pages_(backend.memory(), backend.layout(),
               rank_kv_shape(config, weights, backend.layout(), limits, place_)),
        among_{ranks, kv_heads_of_ranks(config, place_)},
        states_(make_fixed_states(backend.memory(), config, limits, place_.own())),
        states_among_{ranks, state_bytes_of_ranks(config, place_)},
        weights_(std::move(weights)),
        transformer_(config, weights_, backend, forward_limits(limits), ranks, place_) {}

  // Reports an error to the other ranks while the buffers that they may still access exist.
  void run() {
    try {
      obey();
    } catch (const Error& error) {
      throw ranks_.abort(rank_error(ranks_, error));
    }
  }

 private:
  void obey() {
    require_agreement(ranks_, facts_);
    std::vector<std::byte> bytes;
    for (;;) {
      ranks_.broadcast(bytes, "the next step");
      const RankCommand command = decode_command(bytes);
      if (std::holds_alternative<RankEnd>(command)) return;
      std::visit([&](const auto& one) { apply(one); }, command);
    }
  }

  void check_pages_exist(std::span<const std::int32_t> pages) const {
    for (const std::int32_t page : pages) {
      ensure(page >= 0 && page < pages_.count(), "page ", page, " of ", pages_.count());
    }
  }

  void check_states_exist(const FixedStates::StepStates& states) const {
    const std::int64_t count = states_ == nullptr ? 0 : states_->count();
    for (const FixedStates::Id state : {states.from, states.to}) {
      ensure(state >= FixedStates::kZeros && state < count, "state ", state, " of ", count);
    }
  }

  void apply(const RankEnd&) {}

  void apply(const RankStep& step) {
    for (const auto& pages : step.pages) check_pages_exist(pages);
    for (const auto& states : step.states) check_states_exist(states);
    transformer_.follow(step, pages_, states_.get());
  }

  void apply(const StateTransfer& transfer) {
    check_states_exist({transfer.state, transfer.state});
    ensure(states_ != nullptr, "a state of a model without");
    if (transfer.kind == StateTransfer::Kind::read) {
      states_->give(transfer.state, states_among_, {});
    } else {
      states_->take(transfer.state, states_among_, {});
    }
  }

  void apply(const PageCopy& copy) {
    const std::int64_t count = copy.of == PageCopy::Of::page    ? pages_.count()
                               : copy.of == PageCopy::Of::frame ? pages_.frame_count()
                                                                : pages_.copy_count();
    ensure(copy.from >= 0 && copy.from < count && copy.to >= 0 && copy.to < count,
           "a copy of page ", copy.from, " to ", copy.to, " of ", count);
    pages_.copy(copy);
  }

  void apply(const SequenceTransfer& transfer) const {
    check_pages_exist(transfer.pages);
    for (const std::int32_t frame : transfer.frames) {
      ensure(frame >= -1 && frame < pages_.frame_count(), "frame ", frame, " of ",
             pages_.frame_count());
    }
    for (const std::int32_t copy : transfer.copies) {
      ensure(copy >= 0 && copy < pages_.copy_count(), "copy ", copy, " of ", pages_.copy_count());
    }
    if (transfer.kind == SequenceTransfer::Kind::save) {
      pages_.save(transfer, among_, {});
    } else {
      pages_.load(transfer, among_, {});
    }
  }

  Communicator& ranks_;
  std::vector<RankFact> facts_;
  RankPlace place_;
  KvPages pages_;
  KvRanks among_;
  std::unique_ptr<FixedStates> states_;
  StateRanks states_among_;
  Weights weights_;
  Transformer transformer_;
};

}  // namespace

std::vector<std::byte> encode(RankCommand command) {
  Writer writer;
  writer.number(static_cast<std::uint8_t>(command.index()));
  std::visit([&](auto& one) { members(writer, one); }, command);
  return writer.take();
}

RankCommand decode_command(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  std::uint8_t index = 0;
  reader.number(index);
  RankCommand command = command_of(index);
  std::visit([&](auto& one) { members(reader, one); }, command);
  if (const auto* step = std::get_if<RankStep>(&command)) check_step(*step);
  require(reader.left() == 0, kSource, ": ", reader.left(), " bytes too many");
  return command;
}

std::vector<RankFact> rank_facts(const ModelConfig& config, const RunLimits& limits,
                                 std::uint64_t fingerprint) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  const auto chosen = [](const std::optional<int>& value) {
    return value ? std::to_string(*value) : std::string("of the type");
  };
  return {{"version", kVersion},
          {"configuration", config_to_json(config).dump()},
          {"checksum of the model file", std::to_string(fingerprint)},
          {"context", number(limits.context)},
          {"sequences", number(limits.sequences)},
          {"positions of a sequence", number(limits.sequence_context)},
          {"tokens in one step", number(limits.batch_tokens)},
          {"rows with logits", number(limits.output_tokens)},
          {"type of keys", std::string(kv_type_name(limits.key_type))},
          {"type of values", std::string(kv_type_name(limits.value_type))},
          {"types of single layers", kv_layers_text(limits.kv_layers)},
          {"positions that stay first", chosen(limits.kv_sinks)},
          {"positions that stay last", chosen(limits.kv_recent)},
          {"states that are kept", number(limits.kept_states)}};
}

void follow(const ModelConfig& config, Weights weights, Backend& backend, const RunLimits& limits,
            Communicator& ranks, std::uint64_t fingerprint) {
  try {
    Follower(config, std::move(weights), backend, limits, ranks, fingerprint).run();
  } catch (const Error& error) {
    throw ranks.abort(rank_error(ranks, error));
  }
}

void follow(const Model& model, Backend& backend, const RunLimits& limits, Communicator& ranks) {
  const RankPlace place = place_of(model.config(), ranks.rank(), ranks.size());
  follow(model.config(), load_weights(model, backend, limits, place), backend, limits, ranks,
         model.file().fingerprint());
}

ThreadFollowers::ThreadFollowers(const Model& model, std::vector<std::unique_ptr<Backend>> backends,
                                 const RunLimits& limits, const ThreadRankOptions& options)
    : ThreadFollowers(
          model.config(),
          [&model, limits](Backend& backend, const RankPlace& place) {
            return load_weights(model, backend, limits, place);
          },
          std::move(backends), limits, options, model.file().fingerprint()) {}

ThreadFollowers::ThreadFollowers(const ModelConfig& config, const Binder& bind,
                                 std::vector<std::unique_ptr<Backend>> backends,
                                 const RunLimits& limits, const ThreadRankOptions& options,
                                 std::uint64_t fingerprint)
    : backends_(std::move(backends)), ranks_(static_cast<int>(backends_.size()) + 1, options) {
  for (std::size_t i = 0; i < backends_.size(); ++i) {
    threads_.emplace_back([this, i, &config, bind, limits, fingerprint] {
      Communicator& own = ranks_[static_cast<int>(i) + 1];
      try {
        const RankPlace place = place_of(config, own.rank(), own.size());
        follow(config, bind(*backends_[i], place), *backends_[i], limits, own, fingerprint);
      } catch (const Error& error) {
        own.abort(error);  // the leader reports it
      } catch (const std::exception& error) {
        own.abort(rank_error(own, Error(error.what(), ErrorKind::no_memory)));
      }
    });
  }
}

ThreadFollowers::~ThreadFollowers() {
  ranks_[0].abort(Error("the leader's session is gone", ErrorKind::interrupted));
  for (std::thread& thread : threads_) thread.join();
}

int threads_of_rank(int threads, int rank, int ranks) {
  return std::max(1, threads * (rank + 1) / ranks - threads * rank / ranks);
}

}  // namespace leq

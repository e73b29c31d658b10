#include "model/ranks.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/version.h"
#include "model/rank_command.h"
#include "model/session.h"
#include "model/transformer.h"
#include "ranks/communicator.h"

namespace leq {

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

namespace {

// A rank other than the leader, with its weights, pages and transformer.
class Follower {
 public:
  Follower(const ModelConfig& config, Weights weights, Backend& backend, const RunLimits& limits,
           Communicator& ranks, std::uint64_t fingerprint)
      : ranks_(ranks),
        facts_(rank_facts(config, limits, fingerprint)),
        place_(place_of(config, ranks.rank(), ranks.size())),
        backend_(backend),
        shape_(rank_kv_shape(config, weights, backend.layout(), limits, place_)),
        pages_(backend.memory(), backend.layout(), shape_),
        among_{ranks, kv_heads_of_ranks(place_)},
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
      if (const auto* copy = std::get_if<PageCopy>(&command)) {
        apply(*copy);
      } else if (const auto* transfer = std::get_if<SequenceTransfer>(&command)) {
        apply(*transfer);
      } else if (const auto* state = std::get_if<StateTransfer>(&command)) {
        apply(*state);
      } else {
        const auto& step = std::get<RankStep>(command);
        for (const auto& pages : step.pages) check_pages_exist(pages);
        for (const auto& states : step.states) check_states_exist(states);
        transformer_.follow(step, pages_, states_.get());
      }
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
    const std::int64_t count = copy.of == PageCopy::Of::page ? pages_.count() : pages_.copy_count();
    ensure(copy.from >= 0 && copy.from < count && copy.to >= 0 && copy.to < count,
           "a copy of page ", copy.from, " to ", copy.to, " of ", count);
    if (copy.of == PageCopy::Of::page) {
      pages_.copy_page(copy.from, copy.to);
    } else {
      pages_.copy_copy(copy.from, copy.to);
    }
  }

  void apply(const SequenceTransfer& transfer) const {
    check_pages_exist(transfer.pages);
    for (const std::int32_t copy : transfer.copies) {
      ensure(copy >= 0 && copy < pages_.copy_count(), "copy ", copy, " of ", pages_.copy_count());
    }
    const KvTransfer side(pages_, backend_.memory(), backend_.layout(), shape_, among_);
    if (transfer.kind == SequenceTransfer::Kind::save) {
      side.save(transfer, {});
    } else {
      side.load(transfer, {});
    }
  }

  Communicator& ranks_;
  std::vector<RankFact> facts_;
  RankPlace place_;
  Backend& backend_;
  KvShape shape_;
  KvPages pages_;
  KvRanks among_;
  std::unique_ptr<FixedStates> states_;
  StateRanks states_among_;
  Weights weights_;
  Transformer transformer_;
};

}  // namespace

void follow(const ModelConfig& config, Weights weights, Backend& backend, const RunLimits& limits,
            Communicator& ranks, std::uint64_t fingerprint) {
  try {
    Follower(config, std::move(weights), backend, limits, ranks, fingerprint).run();
  } catch (const Error& error) {
    throw ranks.abort(rank_error(ranks, error));
  }
}

namespace {

Weights weights_of(const Model& model, Backend& backend, const RunLimits& limits,
                   const RankPlace& place) {
  return load_weights([&](std::string_view name) { return model.file().find(name); },
                      model.file().name(), model.config(), backend, limits, place);
}

}  // namespace

void follow(const Model& model, Backend& backend, const RunLimits& limits, Communicator& ranks) {
  const RankPlace place = place_of(model.config(), ranks.rank(), ranks.size());
  follow(model.config(), weights_of(model, backend, limits, place), backend, limits, ranks,
         model.file().fingerprint());
}

ThreadFollowers::ThreadFollowers(const Model& model, std::vector<std::unique_ptr<Backend>> backends,
                                 const RunLimits& limits, const ThreadRankOptions& options)
    : ThreadFollowers(
          model.config(),
          [&model, limits](Backend& backend, const RankPlace& place) {
            return weights_of(model, backend, limits, place);
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

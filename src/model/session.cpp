#include "model/session.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/ranks.h"
#include "ranks/communicator.h"

namespace leq {

Weights load_weights(const TensorFinder& find, std::string_view source, const ModelConfig& config,
                     Backend& backend, const RunLimits& limits, const RankPlace& place) {
  if (backend.memory().info()) {
    const MemoryPlanner planner(find, std::string(source), config, 0, backend.layout(), place);
    const MemoryPlan plan = planner.plan(limits);
    backend.memory().plan(plan.weight_bytes, plan.kv_bytes + plan.state_bytes + plan.scratch_bytes);
  }
  return bind_weights(find, source, config, backend.memory(), place);
}

Weights load_weights(const Model& model, Backend& backend, const RunLimits& limits,
                     const RankPlace& place) {
  return load_weights([&](std::string_view name) { return model.file().find(name); },
                      model.file().name(), model.config(), backend, limits, place);
}

Session::Session(const Model& model, Backend& backend, const RunLimits& limits, Communicator& ranks)
    : Session(model.config(),
              load_weights(model, backend, limits,
                           place_of(model.config(), ranks.rank(), ranks.size())),
              model.file().memory_bytes(), backend, limits, ranks, model.file().fingerprint()) {}

Session::Session(const ModelConfig& config, Weights weights, std::uint64_t weight_bytes,
                 Backend& backend, const RunLimits& limits, Communicator& ranks,
                 std::uint64_t fingerprint)
    : ranks_(ranks),
      place_(place_of(config, ranks.rank(), ranks.size())),
      limits_(limits),
      plan_(plan_memory(weight_bytes, config, weights, backend.layout(), limits, place_)),
      cache_(backend.memory(), backend.layout(),
             rank_kv_shape(config, weights, backend.layout(), limits, place_)),
      states_(make_fixed_states(backend.memory(), config, limits, place_.own())),
      weights_(std::move(weights)),
      transformer_(config, weights_, backend, forward_limits(limits), ranks, place_) {
  const auto online = transformer_.online();
  require(online.empty() || limits.sequences == 1, Setting{"sequences"}, " ", limits.sequences,
          ": ", online.empty() ? std::string() : online[0].linear->name,
          " has act online, which remembers the inputs of one sequence; use ", Setting{"sequences"},
          " 1, or quantize with ", Setting{"act"}, " row");
  if (place_.alone()) return;
  require_agreement(ranks_, rank_facts(config, limits_, fingerprint));
  const auto send = [&ranks](const RankCommand& command) {
    std::vector<std::byte> bytes = encode(command);
    ranks.broadcast(bytes, "a change of pages or states");
  };
  cache_.lead({{ranks, kv_heads_of_ranks(config, place_)},
               [send](const KvCommand& command) { std::visit(send, command); }});
  if (states_ == nullptr) return;
  states_->lead({{ranks, state_bytes_of_ranks(config, place_)}, send});
}

std::unique_ptr<Session> make_mtp_session(const Model& model, Backend& backend,
                                          const RunLimits& limits) {
  ensure(model.mtp() != nullptr, model.file().name(), ": no head of multi-token prediction");
  return make_mtp_session([&](std::string_view name) { return model.file().find(name); },
                          model.file().name(), *model.mtp(), backend, limits);
}

std::unique_ptr<Session> make_mtp_session(const TensorFinder& find, std::string_view source,
                                          const ModelConfig& mtp, Backend& backend,
                                          const RunLimits& limits) {
  Weights weights =
      load_weights(mtp_tensors(find), source, mtp, backend, limits, place_of(mtp, 0, 1));
  return std::make_unique<Session>(mtp, std::move(weights), 0, backend, limits);
}

Session::~Session() {
  if (place_.alone()) return;
  try {
    std::vector<std::byte> end = encode(RankEnd());
    ranks_.broadcast(end, "the end");
  } catch (const Error&) {
    // An error here is ignored, because the other ranks have ended already.
  }
}

const Rows& Session::advance(std::int32_t sequence, std::span<const Token> tokens) {
  ensure(!tokens.empty(), "session: no tokens to feed");
  const auto chunk = static_cast<std::size_t>(limits_.batch_tokens);
  for (std::size_t first = 0;; first += chunk) {
    const std::size_t count = std::min(chunk, tokens.size() - first);
    const bool last = first + count == tokens.size();
    batch_.clear();
    batch_.add(sequence, tokens.data() + first, static_cast<std::int64_t>(count),
               last ? Batch::Want::last : Batch::Want::none);
    const Rows& logits = transformer_.forward(batch_, state());
    if (last) return logits;
  }
}

std::span<const float> Session::feed(std::int32_t sequence, std::span<const Token> tokens) {
  const Rows& logits = advance(sequence, tokens);
  logits_.resize(static_cast<std::size_t>(transformer_.config().vocab));
  transformer_.backend().download(logits, 1, logits_);
  return logits_;
}

}  // namespace leq

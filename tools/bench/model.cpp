#include "tools/bench/model.h"

#include <filesystem>

#include "engine/speculation.h"
#include "model/memory_plan.h"
#include "tools/common/model_file.h"
#include "tools/common/model_name.h"

namespace leq {

BenchModel::BenchModel(const std::string& name, LoadMode mode, std::int64_t context) {
  if (is_synthetic(name)) {
    const SyntheticSpec spec = parse_synthetic(name);
    ThreadPool pool(0);
    synthetic_.emplace(spec, context, pool);
    if (config().mtp) mtp_ = mtp_model(config());
    name_ = "synthetic:" + spec.shape;
    if (spec.layers > 0) name_ += ":layers=" + std::to_string(spec.layers);
    scheme_ = scheme_name(spec.type);
    return;
  }
  check_model_file("-m", name);
  LoadOptions load;
  load.mode = mode;
  file_.emplace(name, load);
  if (config().mtp) mtp_ = mtp_model(config());
  name_ = report_name(name);
  scheme_ = file_->type();
}

const ModelConfig& BenchModel::config() const {
  return file_ ? file_->config() : synthetic_->config();
}

std::uint64_t BenchModel::weight_bytes() const {
  return file_ ? file_->file().file_bytes() : synthetic_->weight_bytes();
}

RunLimits BenchModel::limits_on(Backend& backend, const RunLimits& wanted,
                                const RankPlace& place) const {
  const auto memory = backend.memory().info();
  if (!memory) return resolve_limits(wanted, config());
  if (file_) {
    const MemoryPlanner planner(*file_, backend.layout(), place);
    return planner.fit(wanted, *memory, backend.name()).limits;
  }
  const auto find = [&](std::string_view tensor) { return synthetic_->find(tensor); };
  const MemoryPlanner planner(find, name_, config(), weight_bytes(), backend.layout(), place);
  return planner.fit(wanted, *memory, backend.name()).limits;
}

// Loads the weights of a synthetic model into the backend.
Weights BenchModel::bind(Backend& backend, const RunLimits& limits, const RankPlace& place) const {
  const auto find = [&](std::string_view tensor) { return synthetic_->find(tensor); };
  return load_weights(find, name_, config(), backend, limits, place);
}

Session BenchModel::make_session(Backend& backend, const RunLimits& wanted,
                                 Communicator& ranks) const {
  const RankPlace place = place_of(config(), ranks.rank(), ranks.size());
  const RunLimits limits = limits_on(backend, wanted, place);
  if (file_) return Session(*file_, backend, limits, ranks);
  return Session(config(), bind(backend, limits, place), weight_bytes(), backend, limits, ranks);
}

std::unique_ptr<Session> BenchModel::make_mtp_session(Backend& backend,
                                                      const RunLimits& limits) const {
  if (!mtp_) return nullptr;
  const auto find = [&](std::string_view tensor) {
    return file_ ? file_->file().find(tensor) : synthetic_->find(tensor);
  };
  return leq::make_mtp_session(find, name_, *mtp_, backend, draft_limits(limits, *mtp_));
}

void BenchModel::follow(Backend& backend, const RunLimits& wanted, Communicator& ranks) const {
  const RankPlace place = place_of(config(), ranks.rank(), ranks.size());
  const RunLimits limits = limits_on(backend, wanted, place);
  if (file_) {
    leq::follow(*file_, backend, limits, ranks);
  } else {
    leq::follow(config(), bind(backend, limits, place), backend, limits, ranks);
  }
}

std::unique_ptr<ThreadFollowers> BenchModel::followers(
    std::vector<std::unique_ptr<Backend>> backends, const RunLimits& wanted,
    const ThreadRankOptions& options) const {
  const RankPlace place = place_of(config(), 1, static_cast<int>(backends.size()) + 1);
  const RunLimits limits = limits_on(*backends.at(0), wanted, place);
  if (file_) {
    return std::make_unique<ThreadFollowers>(*file_, std::move(backends), limits, options);
  }
  return std::make_unique<ThreadFollowers>(
      config(),
      [this, limits](Backend& backend, const RankPlace& rank) {
        return bind(backend, limits, rank);
      },
      std::move(backends), limits, options);
}

const Tokenizer* BenchModel::tokenizer() const {
  return file_ && file_->has_tokenizer() ? &file_->tokenizer() : nullptr;
}

Tokenizer numbered_tokens(std::int64_t vocabulary) {
  TokenizerSpec spec;
  spec.merge_order = MergeOrder::by_id;
  for (std::int64_t i = 0; i < vocabulary; ++i) spec.pieces.push_back(std::to_string(i) + " ");
  spec.types.assign(spec.pieces.size(), TokenType::normal);
  spec.source = "numbers";
  return Tokenizer(spec);
}

}  // namespace leq

#include "tools/bench/model.h"

#include <filesystem>

#include "base/progress.h"
#include "model/memory_fit.h"
#include "tools/common/model_path.h"

namespace leq {

BenchModel::BenchModel(const std::string& name, LoadMode mode, std::int64_t context) {
  if (is_synthetic(name)) {
    const SyntheticSpec spec = parse_synthetic(name);
    ThreadPool pool(0);
    synthetic_.emplace(spec, context, pool);
    name_ = "synthetic:" + spec.shape;
    if (spec.layers > 0) name_ += ":layers=" + std::to_string(spec.layers);
    scheme_ = scheme_name(spec.type);
    return;
  }
  check_model_file("-m", name);
  LoadOptions load;
  load.mode = mode;
  file_.emplace(name, load);
  name_ = std::filesystem::path(name).filename().string();
  scheme_ = file_->type();
}

const ModelConfig& BenchModel::config() const {
  return file_ ? file_->config() : synthetic_->config();
}

std::uint64_t BenchModel::weight_bytes() const {
  return file_ ? file_->file().file_bytes() : synthetic_->weight_bytes();
}

Session BenchModel::make_session(Backend& backend, const RunLimits& wanted) const {
  if (file_) return Session(*file_, backend, fit_limits(wanted, *file_, backend).limits);
  const auto find = [&](std::string_view tensor) { return synthetic_->find(tensor); };
  RunLimits limits = resolve_limits(wanted, config());
  if (const auto room = backend.memory().room()) {
    const MemoryPlanner planner(find, name_, config(), weight_bytes(), backend.layout());
    limits = planner.fit(wanted, *room, backend.name()).limits;
  }
  return Session(config(), load_weights(find, name_, config(), backend, limits), weight_bytes(),
                 backend, limits);
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

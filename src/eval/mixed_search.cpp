#include "eval/mixed_search.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "eval/measure_divergence.h"
#include "model/session.h"
#include "platform/workers.h"
#include "report/table.h"

namespace leq {
namespace {

RunLimits limits_of(const MixedSearch& request, const ModelConfig& config) {
  RunLimits limits;
  limits.context = request.window;
  limits.output_tokens = kOutputRows;
  limits.key_type = limits.value_type = kExactKv;
  return resolve_limits(limits, config);
}

// The text cut into windows, and how the base model sees it.
class Yardstick {
 public:
  Yardstick(const MixedSearch& request, const Model& model, Workers& workers)
      : workers_(workers), limits_(limits_of(request, model.config())) {
    ProtocolSettings settings;
    settings.join = Join::none;
    settings.window = settings.stride = request.window;
    settings.chunks = request.windows;
    tokens_ = encode_text(model.tokenizer(), request.text);
    windows_ = plan_windows(settings, std::ssize(tokens_));
    key_.protocol = protocol_name(settings.protocol);
    key_.join = join_name(settings.join);
    key_.text_sha256 = key_.dataset_hash = sha256_hex(request.text);
    key_.tokens_sha256 = token_hash(tokens_, kNoToken);
    key_.window = key_.stride = request.window;
    key_.tokens = std::ssize(tokens_);
    key_.windows = std::ssize(windows_);
    for (const Window& window : windows_) key_.scored += window.scored();
    key_.vocab = model.config().vocab;
    Session session(model, *workers_.backend, limits_);
    write_divergence_base(session, workers_.pool, run(), request.base_file, key_);
    base_ = std::make_unique<DivergenceBaseReader>(request.base_file);
    std::error_code ignored;
    std::filesystem::remove(request.base_file, ignored);  // stays readable until it is closed
  }

  // What KL depends on beside the models.
  std::string identity() const {
    return key_.tokens_sha256 + ' ' + std::to_string(key_.window) + ' ' +
           std::to_string(key_.windows);
  }

  Divergence measure(const MixedModel& mixed, const Assignment& assignment) const {
    Backend& backend = *workers_.backend;
    Session session(mixed.model().config(), mixed.bind(assignment, backend),
                    mixed.bytes(assignment), backend, limits_);
    return measure_divergence(session, workers_.pool, run(), *base_, key_);
  }

 private:
  PerplexityRun run() const { return {.tokens = tokens_, .windows = windows_}; }

  Workers& workers_;
  RunLimits limits_;
  std::vector<Token> tokens_;
  std::vector<Window> windows_;
  DivergenceKey key_;
  std::unique_ptr<DivergenceBaseReader> base_;
};

std::string checksums_of(const Model& base) {
  std::string text;
  for (const StoredTensor& tensor : base.file().tensors()) {
    for (const StoredPlane& plane : tensor.planes) text += std::to_string(plane.xxh3) + ' ';
  }
  return text;
}

Json point_json(const SearchProblem& problem, const SearchPoint& point) {
  return {{"bits", bits_text(point.assignment)},
          {"bits_per_weight", bpw_of(problem, point.assignment)},
          {"bytes", point.bytes},
          {"kl", point.kl}};
}

Json provenance_of(const SearchProblem& problem, const SearchResult& result) {
  Json uniform = Json::array(), units = Json::array();
  for (const SearchPoint& point : result.uniform) uniform.push_back(point_json(problem, point));
  for (const SearchUnit& unit : problem.units) units.push_back(unit.name);
  return {{"search",
           {{"verdict", result.verdict},
            {"accepted", result.accepted},
            {"evaluations", result.evaluations},
            {"units", std::move(units)},
            {"chosen", point_json(problem, result.chosen)},
            {"uniform_kl_at_equal_size", result.uniform_kl},
            {"uniform", std::move(uniform)}}}};
}

void set_target(const MixedSearch& request, const MixedModel& mixed, const SearchProblem& problem,
                SearchOptions& options) {
  require(request.target_bpw <= 0 || request.target_size == 0, Setting{"target_bpw"}, " and ",
          Setting{"target_size"}, ": give one of them");
  if (request.target_bpw > 0) options.target_bytes = bytes_of_bpw(problem, request.target_bpw);
  if (request.target_size == 0) return;
  const std::uint64_t rest = mixed.rest_bytes();
  require(request.target_size > rest, Setting{"target_size"}, " ", request.target_size,
          ": embedding, head and norms alone take ", rest, " bytes; give more");
  options.target_bytes = request.target_size - rest;
}

}  // namespace

MixedSearchResult search_mixed_model(const MixedSearch& asked,
                                     const std::filesystem::path& output) {
  const Stopwatch watch;
  MixedSearch request = asked;
  if (request.base_file.empty()) {
    request.base_file = output;
    request.base_file += ".base.kl";
  }
  Workers workers(request.threads);
  MixedModel mixed(request.candidates);
  const Model base(request.base, {.mode = LoadMode::map});
  const Yardstick yardstick(request, base, workers);

  mixed.measure_weights(workers.pool);
  SearchProblem problem;
  problem.units = mixed.units();
  problem.identity =
      sha256_hex(mixed.checksums() + checksums_of(base) + ' ' + yardstick.identity());
  problem.evaluate = [&](const Assignment& assignment) {
    const Divergence found = yardstick.measure(mixed, assignment);
    return found.summarize(Protocol::hf).kl_mean.value;
  };
  set_target(request, mixed, problem, request.options);

  MixedSearchResult result;
  result.search = run_search(problem, request.options);
  result.units = problem.units;
  result.file_bytes =
      mixed.write(output, result.search.chosen.assignment, provenance_of(problem, result.search));
  result.seconds = watch.seconds();
  return result;
}

std::string search_report(const MixedSearchResult& result) {
  const SearchResult& search = result.search;
  Table units, uniform;
  for (std::size_t l = 0; l < result.units.size(); ++l) {
    Row row = {{"unit", result.units[l].name}, {"bits", kSearchBits[search.chosen.assignment[l]]}};
    for (std::size_t c = 0; c < kEightBits; ++c) {
      row.push_back(
          {"KL of " + std::to_string(kSearchBits[c]) + " bits", Cell(search.losses[l][c], 6)});
    }
    units.add(row);
  }
  SearchProblem problem;
  problem.units = result.units;
  for (const SearchPoint& point : search.uniform) {
    uniform.add({{"uniform", std::to_string(kSearchBits[point.assignment[0]]) + " bits"},
                 {"bits/weight", Cell(bpw_of(problem, point.assignment), 3)},
                 {"KL", Cell(point.kl, 6)}});
  }
  return units.text() + '\n' + uniform.text() + '\n' + search.verdict + "; " +
         std::to_string(search.evaluations) + " measurements, " + fixed(result.seconds, 1) + " s\n";
}

}  // namespace leq

#include "eval/mixed_search.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/cpu/workers.h"
#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "eval/fit_search.h"
#include "eval/kl_reference.h"
#include "report/table.h"

namespace leq {
namespace {

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
  const KlReference reference(request, base, workers);

  mixed.measure_entropy(workers.pool);
  SearchProblem problem;
  problem.units = mixed.units();
  problem.identity =
      sha256_hex(mixed.checksums() + checksums_of(base) + ' ' + reference.identity());
  problem.evaluate = [&](const Assignment& assignment) {
    const Divergence found = reference.measure(mixed, assignment, kExactKv, kExactKv);
    return found.summarize(Protocol::hf).kl_mean.value;
  };
  MixedSearchResult result;
  result.units = problem.units;
  Json more = Json::object();
  if (request.fit) {
    FitSearch fit(*request.fit, mixed, reference, *workers.backend);
    result.search = fit.run(problem, request.options);
    result.fit = fit.result();
    more["kv_cache"] = kv_evidence_to_json(result.fit->evidence());
  } else {
    set_target(request, mixed, problem, request.options);
    result.search = run_search(problem, request.options);
  }
  Json provenance = provenance_of(problem, result.search);
  if (result.fit) provenance["fit"] = fit_to_json(*result.fit);
  result.file_bytes = mixed.write(output, result.search.chosen.assignment, provenance, more);
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
  return units.text() + '\n' + uniform.text() + '\n' +
         (result.fit ? fit_report(*result.fit) + '\n' : "") + search.verdict + "; " +
         std::to_string(search.evaluations) + " measurements, " + fixed(result.seconds, 1) + " s\n";
}

}  // namespace leq

#include "eval/mixed_search.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/stopwatch.h"
#include "base/table.h"
#include "base/text.h"
#include "eval/fit_search.h"
#include "eval/kl_reference.h"
#include "format/leq_layout.h"
#include "format/leq_writer.h"
#include "platform/workers.h"
#include "tensor/pack.h"

namespace leq {
namespace {

struct PartKind {
  std::string_view part;
  std::string_view kind;
};
constexpr std::array<PartKind, 13> kParts = {{{"q", "qkv"},
                                              {"k", "qkv"},
                                              {"v", "qkv"},
                                              {"o", "o"},
                                              {"gate", "gate_up"},
                                              {"up", "gate_up"},
                                              {"down", "down"},
                                              {"experts.gate", "experts"},
                                              {"experts.up", "experts"},
                                              {"shared.gate", "experts"},
                                              {"shared.up", "experts"},
                                              {"experts.down", "experts.down"},
                                              {"shared.down", "shared.down"}}};

struct UnitName {
  std::int64_t layer = 0;
  std::string kind;
};

// The unit of "layers.3.q", "layers.3.q.bias", ...: a linear with its biases and vectors. All
// experts of a layer are one unit, because their inputs share a block and a format.
std::optional<UnitName> unit_name(std::string_view tensor) {
  const auto words = split(tensor, ".");
  if (words.size() < 3 || words[0] != "layers") return std::nullopt;
  const auto layer = parse_int(words[1]);
  std::string part(words[2]);
  if (part == "shared" && words.size() >= 4) part += "." + std::string(words[3]);
  if (part == "experts" && words.size() >= 5) part += "." + std::string(words[4]);
  const auto* found = std::ranges::find(kParts, part, &PartKind::part);
  if (!layer || found == kParts.end()) return std::nullopt;
  return UnitName{*layer, std::string(found->kind)};
}

const LeqReader& reader(const std::unique_ptr<Model>& model) { return model->file(); }

std::string plane_text(const StoredTensor& tensor) {
  std::string text = tensor.name;
  for (const StoredPlane& plane : tensor.planes) text += ' ' + checksum_text(plane.xxh3);
  return text + '\n';
}

// Input scales of o and down are folded into v and up, which may be in another unit. Returns the
// checksum of these scales in the file; empty if there are none.
std::string fold_of(const LeqReader& file, const std::string& tensor) {
  return file.entry(tensor).value("fold", "");
}

std::string attention_biases_of(const LeqReader& file) {
  const Json provenance = file.metadata().value("provenance", Json::object());
  return provenance.value("attention_biases", "");
}

// Sums over the weights of one unit, for its statistics.
struct WeightSums {
  std::array<double, 256> codes = {};  // counts of 8-bit codes: symmetric, with one scale per row
  double count = 0, squares = 0, fourths = 0, outliers = 0;
};

void add_row(std::span<const float> row, WeightSums& sums) {
  double absmax = 0;
  for (const float w : row) absmax = std::max(absmax, std::abs(static_cast<double>(w)));
  for (const float w : row) {
    const double value = static_cast<double>(w);
    const double code = absmax > 0 ? std::nearbyint(value / absmax * 127) : 0.0;
    sums.codes[static_cast<std::size_t>(code + 128)] += 1;
    sums.squares += value * value;
    sums.fourths += value * value * value * value;
  }
  sums.count += static_cast<double>(row.size());
}

void add_outliers(std::span<const float> row, WeightSums& sums) {
  const double limit = 4 * std::sqrt(sums.squares / sums.count);
  for (const float w : row) sums.outliers += std::abs(static_cast<double>(w)) > limit ? 1 : 0;
}

void fill_features(const WeightSums& sums, SearchUnit& unit) {
  unit.entropy = 0;
  for (const double count : sums.codes) {
    if (count > 0) unit.entropy -= count / sums.count * std::log2(count / sums.count);
  }
  const double variance = sums.squares / sums.count;
  unit.kurtosis = variance > 0 ? sums.fourths / sums.count / (variance * variance) : 0;
  unit.outlier_ratio = sums.outliers / sums.count;
}

}  // namespace

MixedModel::MixedModel(const std::array<std::filesystem::path, kChoices>& candidates) {
  for (const auto& path : candidates) {
    files_.push_back(std::make_unique<Model>(path, LoadOptions{.mode = LoadMode::map}));
  }
  require_alike();
  add_units();
}

// Requires equal configurations and tensors outside the units; vectors bit for bit equal.
void MixedModel::require_alike() const {
  const LeqReader& last = reader(files_.back());
  const Json config = config_to_json(files_.back()->config());
  for (const auto& model : files_) {
    const LeqReader& file = model->file();
    require(config_to_json(model->config()) == config, file.name(), " and ", last.name(),
            ": other configurations; make all candidates from one checkpoint");
    require(file.tensors().size() == last.tensors().size(), file.name(), " has ",
            file.tensors().size(), " tensors, ", last.name(), " ", last.tensors().size(),
            "; make all candidates with the same folds");
    for (const StoredTensor& tensor : last.tensors()) {
      const StoredTensor* other = file.find(tensor.name);
      require(other != nullptr && other->shape == tensor.shape, file.name(), ": tensor ",
              tensor.name, " is not that of ", last.name());
      const bool must_equal = tensor.shape.size() == 1 && !unit_name(tensor.name);
      require(!must_equal || plane_text(*other) == plane_text(tensor), file.name(), " and ",
              last.name(), ": tensor ", tensor.name,
              " differs; make all candidates with the same folds");
      require(fold_of(file, tensor.name) == fold_of(last, tensor.name), file.name(), " and ",
              last.name(), ": other scales are folded in front of ", tensor.name,
              "; make all candidates with one alpha and the same statistics");
    }
    require(attention_biases_of(file) == attention_biases_of(last), file.name(), " and ",
            last.name(), ": attention biases are folded in one of them; make both alike");
  }
}

void MixedModel::add_units() {
  std::map<std::pair<std::int64_t, std::string>, std::vector<std::string>> tensors;
  for (const StoredTensor& tensor : reader(files_.back()).tensors()) {
    if (const auto name = unit_name(tensor.name)) {
      tensors[{name->layer, name->kind}].push_back(tensor.name);
    }
  }
  for (const auto& [key, names] : tensors) {
    SearchUnit unit;
    unit.layer = key.first;
    unit.kind = key.second;
    unit.name = layer_tensor(unit.layer, unit.kind);
    for (const std::string& name : names) {
      unit_of_.emplace(name, units_.size());
      for (std::size_t c = 0; c < kChoices; ++c) {
        const StoredTensor& tensor = *reader(files_[c]).find(name);
        unit.bytes[c] += tensor.bytes();
        if (tensor.shape.size() != 2) continue;
        const auto params = tensor.shape[0] * tensor.shape[1];
        if (c == kEightBits) unit.params += params;
        unit.proxy[c] += tensor.error * static_cast<double>(params);
      }
    }
    unit.diagonal_proxy = unit.proxy;
    units_.push_back(std::move(unit));
  }
}

void MixedModel::measure_weights(ThreadPool& pool) {
  const LeqReader& file = reader(files_.back());
  pool.run(std::ssize(units_), [&](std::int64_t index, int) {
    SearchUnit& unit = units_[static_cast<std::size_t>(index)];
    WeightSums sums;
    std::vector<float> row;
    for (const auto add : {add_row, add_outliers}) {
      for (const auto& [name, owner] : unit_of_) {
        const StoredTensor& tensor = *file.find(name);
        if (std::cmp_not_equal(owner, index) || tensor.shape.size() != 2) continue;
        row.resize(static_cast<std::size_t>(tensor.view.columns));
        for (std::int64_t r = 0; r < tensor.view.rows; ++r) {
          unpack_row(tensor.view, r, row);
          add(row, sums);
        }
      }
    }
    fill_features(sums, unit);
  });
}

const LeqReader& MixedModel::file_of(const Assignment& assignment, std::string_view name) const {
  const auto unit = unit_of_.find(name);
  if (unit == unit_of_.end()) return reader(files_.back());
  return reader(files_[assignment[unit->second]]);
}

std::uint64_t MixedModel::rest_bytes() const {
  std::uint64_t bytes = 0;
  for (const StoredTensor& tensor : reader(files_.back()).tensors()) {
    if (!unit_of_.contains(tensor.name)) bytes += tensor.bytes();
  }
  return bytes;
}

std::uint64_t MixedModel::bytes(const Assignment& assignment) const {
  std::uint64_t bytes = rest_bytes();
  for (std::size_t l = 0; l < units_.size(); ++l) bytes += units_[l].bytes[assignment[l]];
  return bytes;
}

std::string MixedModel::checksums() const {
  std::string text;
  for (const auto& model : files_) {
    for (const StoredTensor& tensor : model->file().tensors()) text += plane_text(tensor);
  }
  return text;
}

Weights MixedModel::bind(const Assignment& assignment, Backend& backend) const {
  ensure(assignment.size() == units_.size(), "search: a plan of ", assignment.size(),
         " units, the model has ", units_.size());
  const TensorFinder find = [&](std::string_view name) {
    return file_of(assignment, name).find(name);
  };
  return bind_weights(find, "mixed model", files_.back()->config(), backend.memory());
}

std::uint64_t MixedModel::write(const std::filesystem::path& path, const Assignment& assignment,
                                const Json& provenance, const Json& more) const {
  const auto source = [&](const std::string& name) -> const LeqReader& {
    return file_of(assignment, name);
  };
  return write_copy(path, reader(files_.back()), source, [&](Json& metadata) {
    Json& about = metadata["provenance"];
    about["type"] = "mixed";
    for (const auto& [key, value] : provenance.items()) about[key] = value;
    for (const auto& [key, value] : more.items()) metadata[key] = value;
  });
}

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

  mixed.measure_weights(workers.pool);
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

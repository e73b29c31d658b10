#include "eval/mixed_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "backend/cpu/workers.h"
#include "backend/layout.h"
#include "base/error.h"
#include "base/json.h"
#include "base/stopwatch.h"
#include "base/table.h"
#include "base/text.h"
#include "eval/divergence.h"
#include "format/leq_layout.h"
#include "format/leq_writer.h"
#include "model/memory_plan.h"
#include "model/session.h"

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
    unit.name = layer_tensor(key.first, key.second);
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
    units_.push_back(std::move(unit));
  }
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

std::uint64_t MixedModel::memory_bytes(const Assignment& assignment) const {
  std::uint64_t bytes = 0;
  for (const StoredTensor& tensor : reader(files_.back()).tensors()) {
    bytes += file_of(assignment, tensor.name).find(tensor.name)->memory_bytes();
  }
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

RunLimits limits_of(const MixedSearch& request, const ModelConfig& config) {
  RunLimits limits;
  limits.context = request.window;
  limits.output_tokens = kOutputRows;
  limits.key_type = limits.value_type = kExactKv;
  return resolve_limits(limits, config);
}

// A text divided into windows, with the distributions of a search's base model for it.
class KlReference {
 public:
  // Runs the base model `model` on the text. `workers` must outlive the object.
  KlReference(const MixedSearch& request, const Model& model, Workers& workers);

  // Identity of the measurement other than the models: tokens and windows.
  std::string identity() const;

  // Divergence of a mixed model that uses a KV cache of the given types.
  Divergence measure(const MixedModel& mixed, const Assignment& assignment, KvType keys,
                     KvType values) const;

 private:
  PerplexityRun run() const { return {.tokens = tokens_, .windows = windows_}; }

  Workers& workers_;
  RunLimits limits_;  // with an unquantized KV cache
  std::vector<Token> tokens_;
  std::vector<Window> windows_;
  DivergenceKey key_;
  std::unique_ptr<DivergenceBaseReader> base_;
};

KlReference::KlReference(const MixedSearch& request, const Model& model, Workers& workers)
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
  std::filesystem::remove(request.base_file, ignored);  // readable as long as it is open
}

std::string KlReference::identity() const {
  return key_.tokens_sha256 + ' ' + std::to_string(key_.window) + ' ' +
         std::to_string(key_.windows);
}

Divergence KlReference::measure(const MixedModel& mixed, const Assignment& assignment, KvType keys,
                                KvType values) const {
  Backend& backend = *workers_.backend;
  RunLimits limits = limits_;
  limits.key_type = keys;
  limits.value_type = values;
  Session session(mixed.model().config(), mixed.bind(assignment, backend), mixed.bytes(assignment),
                  backend, limits);
  return measure_divergence(session, workers_.pool, run(), *base_, key_);
}

constexpr std::uint64_t kTextCapacity = 64 << 10;  // maximum size of a search's metadata in a file

// Ordered by falling precision. Keys are listed first, because they need more bits than values.
constexpr std::array<std::pair<KvType, KvType>, 5> kCaches = {{{KvType::f16, KvType::f16},
                                                               {KvType::int8, KvType::int8},
                                                               {KvType::int8, KvType::simq4},
                                                               {KvType::simq4, KvType::simq4},
                                                               {KvType::simq2, KvType::simq2}}};

Assignment uniform(const SearchProblem& problem, int choice) {
  return Assignment(problem.units.size(), static_cast<std::uint8_t>(choice));
}

std::string cache_text(KvType keys, KvType values) {
  return std::string(kv_type_name(keys)) + " / " + std::string(kv_type_name(values));
}

std::string request_text(const FitRequest& request) {
  return given_bytes(request.bytes) + " with a context of " + with_commas(request.limits.context);
}

// Searches for the bit widths of the weights and the type of the KV cache with the least loss
// within a memory limit: for each cache type, the best weights that fit, measured with that cache.
class FitSearch {
 public:
  // All arguments must outlive the object.
  FitSearch(const FitRequest& request, const MixedModel& mixed, const KlReference& reference,
            Backend& backend);

  // Runs a search for each cache type, each with its own limit for weights. Returns the search
  // whose weights were chosen. No measurement is repeated. Throws Error if nothing fits, or if
  // nothing that fits has a loss of at most max_kl.
  SearchResult run(const SearchProblem& problem, const SearchOptions& options);
  const FitResult& result() const { return result_; }

 private:
  MemoryPlan plan(const Assignment& assignment, KvType keys, KvType values) const;
  // The best weights for one cache type, before measuring with it; nullopt if none fit.
  struct Fitting {
    FitChoice choice;
    SearchResult search;
  };
  std::optional<Fitting> fitting(const SearchProblem& problem, SearchOptions& options, KvType keys,
                                 KvType values) const;

  const MixedModel& mixed_;
  const KlReference& reference_;
  Backend& backend_;
  std::uint64_t overhead_ = 0;  // bytes of a file other than tensors
  FitResult result_;
};

FitSearch::FitSearch(const FitRequest& request, const MixedModel& mixed,
                     const KlReference& reference, Backend& backend)
    : mixed_(mixed), reference_(reference), backend_(backend) {
  result_.request = request;
  const Assignment eight(mixed.units().size(), kEightBits);
  const std::uint64_t file = mixed.model().file().file_bytes(), tensors = mixed.bytes(eight);
  overhead_ = (file > tensors ? file - tensors : 0) + kTextCapacity;
}

MemoryPlan FitSearch::plan(const Assignment& assignment, KvType keys, KvType values) const {
  RunLimits limits = result_.request.limits;
  limits.key_type = keys;
  limits.value_type = values;
  const ModelConfig& config = mixed_.model().config();
  return plan_memory(mixed_.memory_bytes(assignment) + overhead_, config,
                     mixed_.bind(assignment, backend_), backend_.layout(), limits,
                     place_of(config, 0, 1));
}

// Scratch depends on the weights, because units of few and of many bits need separate input
// buffers. Its size is therefore known only after a search. If the total is too large, the search
// is repeated with less memory for weights. Uniform weights need the fewest buffers.
std::optional<FitSearch::Fitting> FitSearch::fitting(const SearchProblem& problem,
                                                     SearchOptions& options, KvType keys,
                                                     KvType values) const {
  const std::uint64_t most = result_.request.bytes;
  const auto least = static_cast<std::int64_t>(bytes_of(problem, uniform(problem, 0)));
  const std::uint64_t all = bytes_of(problem, uniform(problem, kEightBits));
  std::optional<Fitting> best;
  // Returns the number of bytes above the limit, or 0 if the weights fit.
  const auto consider = [&](const SearchResult& search) -> std::uint64_t {
    const Assignment& assignment = search.chosen.assignment;
    const MemoryPlan planned = plan(assignment, keys, values);
    if (planned.total() > most) return planned.total() - most;
    if (!best || search.chosen.kl < best->search.chosen.kl) {
      best = Fitting{{keys, values, assignment, bpw_of(problem, assignment), planned}, search};
    }
    return 0;
  };
  // What remains for the units beside the cache and everything else.
  const auto all_bytes = static_cast<std::int64_t>(plan(uniform(problem, 0), keys, values).total());
  for (std::int64_t bytes = static_cast<std::int64_t>(most) - (all_bytes - least);
       bytes >= least;) {
    options.target_bytes = std::min(static_cast<std::uint64_t>(bytes), all);
    SearchResult search = run_search(problem, options);
    options.log.clear();  // the measurements are in memory from now on
    const std::uint64_t excess = consider(search);
    for (const SearchPoint& point : search.uniform) {
      search.chosen = point;
      search.accepted = false;
      search.verdict = "all weights alike, whose inputs need one kind of buffer";
      consider(search);
    }
    if (excess == 0) break;
    bytes = static_cast<std::int64_t>(*options.target_bytes) - static_cast<std::int64_t>(excess);
  }
  return best;
}

SearchResult FitSearch::run(const SearchProblem& problem, const SearchOptions& options) {
  std::map<Assignment, double> known;
  SearchProblem remembering = problem;
  remembering.evaluate = [&](const Assignment& assignment) {
    const auto [found, is_new] = known.try_emplace(assignment, 0.0);
    if (is_new) found->second = problem.evaluate(assignment);
    return found->second;
  };
  const Assignment eight = uniform(problem, kEightBits);
  SearchOptions own = options;
  SearchResult best;
  std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();
  int with_all_bits = 0;
  for (const auto& [keys, values] : kCaches) {
    // Skips a cache type that is no smaller than one of higher precision. Stops after two cache
    // types with which the weights fit at 8 bits (the second one is for comparison).
    const std::uint64_t cache = plan(eight, keys, values).kv_bytes;
    if (cache >= smallest || with_all_bits == 2) continue;
    smallest = cache;
    auto found = fitting(remembering, own, keys, values);
    if (!found) continue;
    FitChoice& choice = found->choice;
    with_all_bits += choice.assignment == eight ? 1 : 0;
    choice.kl = reference_.measure(mixed_, choice.assignment, keys, values)
                    .summarize(Protocol::hf)
                    .kl_mean.value;
    result_.choices.push_back(choice);
    const std::size_t last = result_.choices.size() - 1;
    if (last > 0 && choice.kl >= result_.choices[result_.chosen].kl) continue;
    result_.chosen = last;
    best = std::move(found->search);
  }
  const FitRequest& request = result_.request;
  require(!result_.choices.empty(), ErrorKind::no_memory, Setting{"fit"}, " ",
          request_text(request), ": not even 2 bits a weight fit beside a ",
          kv_type_name(kCaches.back().first), " cache; give more memory or a shorter ",
          Setting{"context"});
  const FitChoice& chosen = result_.choices[result_.chosen];
  require(request.max_kl <= 0 || chosen.kl <= request.max_kl, ErrorKind::no_memory,
          Setting{"max_kl"}, " ", request.max_kl, ": the best within ", request_text(request),
          " is KL ", fixed(chosen.kl, 5), " nats, ", fixed(chosen.bits_per_weight, 2),
          " bits a weight with a cache of ", cache_text(chosen.key_type, chosen.value_type),
          "; give more memory or a shorter ", Setting{"context"});
  return best;
}

Json fit_to_json(const FitResult& fit) {
  Json choices = Json::array();
  for (const FitChoice& choice : fit.choices) {
    choices.push_back({{"keys", kv_type_name(choice.key_type)},
                       {"values", kv_type_name(choice.value_type)},
                       {"bits", bits_text(choice.assignment)},
                       {"bits_per_weight", choice.bits_per_weight},
                       {"total_bytes", choice.plan.total()},
                       {"kl", choice.kl}});
  }
  return {{"bytes", fit.request.bytes},
          {"context", fit.request.limits.context},
          {"max_kl", fit.request.max_kl},
          {"chosen", fit.chosen},
          {"choices", std::move(choices)}};
}

std::string fit_report(const FitResult& fit) {
  Table table;
  const FitChoice& chosen = fit.choices[fit.chosen];
  for (const FitChoice& choice : fit.choices) {
    const double more = choice.kl - chosen.kl;
    table.add({{"keys / values", cache_text(choice.key_type, choice.value_type)},
               {"bits/weight", Cell(choice.bits_per_weight, 3)},
               {"weights", human_bytes(choice.plan.weight_bytes)},
               {"KV cache", human_bytes(choice.plan.kv_bytes)},
               {"in all", human_bytes(choice.plan.total())},
               {"KL", Cell(choice.kl, 6)},
               {"than chosen", &choice == &chosen ? "chosen" : "+" + fixed(more, 6)}});
  }
  return "within " + request_text(fit.request) + ":\n" + table.text();
}

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
  if (request.target_four) options.target_bytes = bytes_of(problem, uniform(problem, kFourBits));
  if (request.target_bpw > 0) options.target_bytes = bytes_of_bpw(problem, request.target_bpw);
  if (request.target_size == 0) return;
  const std::uint64_t rest = mixed.rest_bytes();
  require(request.target_size > rest, Setting{"target_size"}, " ", request.target_size,
          ": embedding, head and norms alone take ", rest, " bytes; give more");
  options.target_bytes = request.target_size - rest;
}

}  // namespace

KvEvidence FitResult::evidence() const {
  const FitChoice& best = choices[chosen];
  return {best.key_type, best.value_type, request.limits.context, best.kl};
}

std::uint64_t smallest_cache_bytes(const ModelConfig& config, const Layout& layout,
                                   const RunLimits& limits) {
  RunLimits own = limits;
  std::uint64_t least = 0;
  for (const auto& [keys, values] : kCaches) {
    own.key_type = keys;
    own.value_type = values;
    CountingMemory memory(layout);
    const KvCache cache(memory, layout, kv_shape(config, own));
    if (least == 0 || memory.allocated() < least) least = memory.allocated();
  }
  return least;
}

MixedSearchResult search_mixed_model(const MixedSearch& asked,
                                     const std::filesystem::path& output) {
  const Stopwatch watch;
  MixedSearch request = asked;
  if (request.base_file.empty()) {
    request.base_file = output;
    request.base_file += ".base.kl";
  }
  Workers workers(request.threads);
  const MixedModel mixed(request.candidates);
  const Model base(request.base, {.mode = LoadMode::map});
  const KlReference reference(request, base, workers);

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

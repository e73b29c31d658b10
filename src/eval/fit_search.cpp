#include "eval/fit_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "backend/layout.h"
#include "base/error.h"
#include "base/table.h"
#include "base/text.h"
#include "model/memory_fit.h"

namespace leq {
namespace {

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
  return human_bytes(request.bytes) + " with a context of " + with_commas(request.limits.context);
}

}  // namespace

KvEvidence FitResult::evidence() const {
  const FitChoice& best = choices[chosen];
  return {best.key_type, best.value_type, request.limits.context, best.kl};
}

FitSearch::FitSearch(const FitRequest& request, const MixedModel& mixed,
                     const KlReference& reference, Backend& backend)
    : mixed_(mixed), reference_(reference), backend_(backend) {
  result_.request = request;
  const Assignment eight(mixed.units().size(), kEightBits);
  const std::uint64_t file = mixed.model().file().file_bytes(), tensors = mixed.bytes(eight);
  overhead_ = (file > tensors ? file - tensors : 0) + kTextCapacity;
}

RunLimits FitSearch::limits_of(KvType keys, KvType values) const {
  RunLimits limits = result_.request.limits;
  limits.key_type = keys;
  limits.value_type = values;
  return limits;
}

MemoryPlan FitSearch::plan(const Assignment& assignment, KvType keys, KvType values) const {
  return plan_memory(mixed_.bytes(assignment) + overhead_, mixed_.model().config(),
                     mixed_.bind(assignment, backend_), backend_.layout(), limits_of(keys, values));
}

std::int64_t FitSearch::available(const SearchProblem& problem, KvType keys, KvType values) const {
  const MemoryPlan beside = plan(uniform(problem, 0), keys, values);
  const std::uint64_t rest = beside.total() - bytes_of(problem, uniform(problem, 0));
  return static_cast<std::int64_t>(result_.request.bytes) - static_cast<std::int64_t>(rest);
}

FitSearch::Fitting FitSearch::with_cache(const SearchProblem& problem, const SearchResult& search,
                                         KvType keys, KvType values) const {
  const Assignment& assignment = search.chosen.assignment;
  return {
      {keys, values, assignment, bpw_of(problem, assignment), plan(assignment, keys, values), 0},
      search};
}

// Scratch depends on the weights, because units of few and of many bits need separate input
// buffers. Its size is therefore known only after a search. If the total is too large, the search
// is repeated with less memory for weights. Uniform weights need the fewest buffers.
std::optional<FitSearch::Fitting> FitSearch::fitting(const SearchProblem& problem,
                                                     SearchOptions& options, KvType keys,
                                                     KvType values) const {
  const auto least = static_cast<std::int64_t>(bytes_of(problem, uniform(problem, 0)));
  const std::uint64_t all = bytes_of(problem, uniform(problem, kEightBits));
  std::optional<Fitting> best;
  // Returns the number of bytes above the limit, or 0 if the weights fit.
  const auto consider = [&](const SearchResult& search) -> std::uint64_t {
    Fitting found = with_cache(problem, search, keys, values);
    const std::uint64_t total = found.choice.plan.total(), most = result_.request.bytes;
    if (total > most) return total - most;
    if (!best || search.chosen.kl < best->search.chosen.kl) best = std::move(found);
    return 0;
  };
  for (std::int64_t bytes = available(problem, keys, values); bytes >= least;) {
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

}  // namespace leq

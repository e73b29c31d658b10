#include "quantize/search/bit_search.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace leq {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kLargestLog = 256u << 20;
constexpr int kLogVersion = 1;

Json bits_json(const Assignment& assignment) {
  Json bits = Json::array();
  for (const std::uint8_t choice : assignment) bits.push_back(kSearchBits[choice]);
  return bits;
}

int choice_of(const Json& bits, const std::string& source) {
  const auto found = bits.is_number_integer()
                         ? std::ranges::find(kSearchBits, bits.get<std::int64_t>())
                         : kSearchBits.end();
  require(found != kSearchBits.end(), source, ": expected bits of 2, 3, 4 or 8, found ",
          bits.dump());
  return static_cast<int>(found - kSearchBits.begin());
}

const Json& list_of(const Json& log, const char* key, const std::string& source) {
  const auto found = log.find(key);
  require(found != log.end() && found->is_array(), source, ": expected a list \"", key, "\"");
  return *found;
}

double kl_of(const Json& entry, const std::string& source) {
  const double kl = json_get<double>(entry, "kl", source);
  require(std::isfinite(kl), source, ": kl is not finite");
  return kl;
}

// Opens the log and passes it to `use`. If either fails, the error tells the user how to continue.
void use_log(const std::filesystem::path& path,
             const std::function<void(const Json& log, const std::string& source)>& use) {
  const std::string source = path.string();
  try {
    const Json log = parse_json(read_file(path, kLargestLog), source);
    const auto version = json_get<std::int64_t>(log, "version", source);
    require(version == kLogVersion, source, ": is of version ", version, ", this program reads ",
            kLogVersion);
    use(log, source);
  } catch (const Error& error) {
    fail(error.kind(), error.marked(),
         "; the log of the search cannot be used: remove it or name another");
  }
}

// Measures each assignment only once, within a budget, and writes the log from which an interrupted
// search resumes.
class SearchMeter {
 public:
  // Reads the log if it exists. Throws Error if the log is damaged or of another problem.
  SearchMeter(const SearchProblem& problem, const SearchOptions& options)
      : problem_(problem), options_(options) {
    for (const SearchUnit& unit : problem.units) params_ += unit.params;
    if (options.log.empty() || !file_exists(options.log)) return;
    use_log(options.log,
            [this](const Json& log, const std::string& source) { read_log(log, source); });
  }

  // Returns nullopt if the budget is spent and the assignment was not measured before.
  std::optional<SearchPoint> measure(const Assignment& assignment);
  // KL that unit l with a choice adds to all units at 8 bits; nullopt if the budget is spent.
  std::optional<double> measure_alone(std::size_t unit, int choice) {
    Assignment assignment(problem_.units.size(), kEightBits);
    const auto all = measure(assignment);
    assignment[unit] = static_cast<std::uint8_t>(choice);
    const auto one = measure(assignment);
    if (!all || !one) return std::nullopt;
    return one->kl - all->kl;
  }

  bool measured(const Assignment& assignment) const { return seen_.contains(assignment); }
  int used() const { return static_cast<int>(trace_.size()); }
  double objective(double kl, std::uint64_t bytes) const {
    return bytes > limit() ? kInfinity : kl + price() * static_cast<double>(bytes);
  }
  bool fits(const Assignment& assignment) const {
    return bytes_of(problem_, assignment) <= limit();
  }
  // Objective per byte (0 if there is a size limit), and the limit (the largest number if none).
  double price() const {
    return options_.target_bytes ? 0.0
                                 : options_.lambda * 8 / (16.0 * static_cast<double>(params_));
  }
  std::uint64_t limit() const {
    return options_.target_bytes.value_or(std::numeric_limits<std::uint64_t>::max());
  }

  const SearchProblem& problem() const { return problem_; }
  const SearchOptions& options() const { return options_; }
  const std::vector<SearchPoint>& trace() const { return trace_; }
  // The measured point with the smallest objective, the first one on ties.
  const SearchPoint& best() const { return trace_[best_]; }

 private:
  void read_log(const Json& log, const std::string& source);
  void write_log() const;

  const SearchProblem& problem_;
  const SearchOptions& options_;
  std::int64_t params_ = 0;
  std::map<Assignment, double> known_;      // KL from the log or measured
  std::map<Assignment, std::size_t> seen_;  // index of each point of this run in trace_
  std::vector<SearchPoint> trace_;
  std::size_t best_ = 0;
};

std::optional<SearchPoint> SearchMeter::measure(const Assignment& assignment) {
  if (const auto seen = seen_.find(assignment); seen != seen_.end()) return trace_[seen->second];
  if (used() >= options_.evaluations) return std::nullopt;
  const auto known = known_.find(assignment);
  const double kl = known != known_.end() ? known->second : problem_.evaluate(assignment);
  require(std::isfinite(kl), "search: KL of ", bits_text(assignment),
          " is not finite; check the checkpoint, or try another ", Setting{"method"});
  SearchPoint point;
  point.assignment = assignment;
  point.kl = kl;
  point.bytes = bytes_of(problem_, assignment);
  point.objective = objective(kl, point.bytes);
  const bool better = trace_.empty() || point.objective < trace_[best_].objective;
  point.best_objective = better ? point.objective : trace_[best_].objective;
  if (better) best_ = trace_.size();
  seen_.emplace(assignment, trace_.size());
  trace_.push_back(point);
  known_.emplace(assignment, kl);
  if (!options_.log.empty()) write_log();
  if (options_.progress) options_.progress(used(), point.best_objective);
  return point;
}

void SearchMeter::read_log(const Json& log, const std::string& source) {
  const std::string identity = json_get<std::string>(log, "identity", source);
  require(identity == problem_.identity, source, ": was made for ", identity, ", this search is ",
          problem_.identity);
  for (const Json& entry : list_of(log, "measured", source)) {
    const Json& bits = list_of(entry, "bits", source);
    require(bits.size() == problem_.units.size(), source, ": an entry has ", bits.size(),
            " units, the model ", problem_.units.size());
    Assignment assignment;
    for (const Json& one : bits) {
      assignment.push_back(static_cast<std::uint8_t>(choice_of(one, source)));
    }
    known_.emplace(assignment, kl_of(entry, source));
  }
}

// Writes all known measurements: first the points of this run, in order, then older ones.
void SearchMeter::write_log() const {
  Json log = {{"version", kLogVersion}, {"identity", problem_.identity}};
  Json units = Json::array(), measured = Json::array();
  for (const SearchUnit& unit : problem_.units) units.push_back(unit.name);
  for (const SearchPoint& point : trace_) {
    Json entry = {{"bits", bits_json(point.assignment)},
                  {"kl", point.kl},
                  {"bytes", point.bytes},
                  {"best", point.best_objective}};
    if (std::isfinite(point.objective)) entry["objective"] = point.objective;
    if (!std::isfinite(point.best_objective)) entry.erase("best");
    measured.push_back(std::move(entry));
  }
  for (const auto& [assignment, kl] : known_) {
    if (!seen_.contains(assignment)) {
      measured.push_back({{"bits", bits_json(assignment)}, {"kl", kl}});
    }
  }
  log["units"] = std::move(units);
  log["measured"] = std::move(measured);
  AtomicFile file(options_.log);
  file.append(as_bytes(log.dump_any(1)));
  file.commit();
}

// The search by sensitivity: losses of single units, a knapsack over them, then single moves.

constexpr double kTolerance = 1e-4;  // relative decrease of J that counts as an improvement

std::size_t index(int value) { return static_cast<std::size_t>(value); }

// KL of a uniform assignment, which every search measures first.
double uniform_kl(SearchMeter& meter, int choice) {
  const auto point =
      meter.measure(Assignment(meter.problem().units.size(), static_cast<std::uint8_t>(choice)));
  return point ? point->kl : 0.0;
}

// Additive losses that match the measured KL of the uniform points. The KL of all units at a
// choice, minus that at 8 bits, is divided among units in proportion to their proxies (without
// proxies: to their sizes). 0 at 8 bits. The uniform points must have been measured.
LossTable losses_from_uniform(SearchMeter& meter) {
  const auto& units = meter.problem().units;
  LossTable losses(units.size(), std::array<double, kChoices>{});
  for (int choice = 0; choice < kEightBits; ++choice) {
    const std::size_t c = index(choice);
    const double total = std::max(uniform_kl(meter, choice) - uniform_kl(meter, kEightBits), 0.0);
    const bool proxies =
        std::ranges::all_of(units, [&](const SearchUnit& unit) { return unit.proxy[c] > 0; });
    double sum = 0;
    for (std::size_t l = 0; l < units.size(); ++l) {
      losses[l][c] = proxies ? units[l].proxy[c] : static_cast<double>(units[l].params);
      sum += losses[l][c];
    }
    for (auto& row : losses) row[c] *= total / sum;
  }
  return losses;
}

// KL predicted by the table: the KL of all units at 8 bits plus the losses.
double predicted_kl(const LossTable& losses, double kl_at_eight, const Assignment& assignment) {
  double kl = kl_at_eight;
  for (std::size_t l = 0; l < assignment.size(); ++l) kl += losses[l][assignment[l]];
  return kl;
}

double predicted_objective(SearchMeter& meter, const LossTable& losses,
                           const Assignment& assignment) {
  return meter.objective(predicted_kl(losses, uniform_kl(meter, kEightBits), assignment),
                         bytes_of(meter.problem(), assignment));
}

// Moves one unit other than `fixed` by one level: the one with the least loss per byte saved, or
// with the largest gain per byte spent. Returns false if no move helps.
bool shift_one(SearchMeter& meter, const LossTable& losses, std::size_t fixed, int direction,
               Assignment& assignment) {
  double best_rate = kInfinity;
  std::size_t best_unit = fixed;
  const auto& units = meter.problem().units;
  for (std::size_t m = 0; m < units.size(); ++m) {
    const int next = assignment[m] + direction;
    if (m == fixed || next < 0 || next >= kChoices) continue;
    const std::size_t from = assignment[m], to = index(next);
    const double bytes = std::abs(static_cast<double>(units[m].bytes[to]) -
                                  static_cast<double>(units[m].bytes[from]));
    const double rate = (losses[m][to] - losses[m][from]) / bytes;
    Assignment moved = assignment;
    moved[m] = static_cast<std::uint8_t>(next);
    if (direction > 0 && (rate >= 0 || !meter.fits(moved))) continue;
    if (rate < best_rate) {
      best_rate = rate;
      best_unit = m;
    }
  }
  if (best_unit == fixed) return false;
  assignment[best_unit] = static_cast<std::uint8_t>(assignment[best_unit] + direction);
  return true;
}

// Returns `assignment` with one unit at another choice. Under a limit, lowers other units until it
// fits, then raises units to use the bytes left, by predicted losses. Empty if this is impossible.
Assignment moved(SearchMeter& meter, const LossTable& losses, Assignment assignment,
                 std::size_t unit, int choice) {
  assignment[unit] = static_cast<std::uint8_t>(choice);
  if (!meter.options().target_bytes) return assignment;
  while (!meter.fits(assignment)) {
    if (!shift_one(meter, losses, unit, -1, assignment)) return {};
  }
  while (shift_one(meter, losses, unit, +1, assignment)) continue;
  return assignment;
}

// Measures a candidate; if it is better, makes it current. Returns false if the budget is spent.
bool try_step(SearchMeter& meter, const Assignment& candidate, SearchPoint& current,
              bool& improved) {
  if (candidate.empty()) return true;
  const auto point = meter.measure(candidate);
  if (!point) return false;
  if (point->objective < current.objective - kTolerance * std::abs(current.objective)) {
    current = *point;
    improved = true;
  }
  return true;
}

// Tries single moves from the current point in the order of predicted objectives, until no move
// improves it (a coordinate-wise local optimum) or the budget is spent.
void repair(SearchMeter& meter, const LossTable& losses, SearchPoint current) {
  for (bool improved = true; improved;) {
    improved = false;
    std::vector<std::pair<double, Assignment>> moves;
    std::set<Assignment> listed;
    for (std::size_t l = 0; l < meter.problem().units.size(); ++l) {
      for (int choice = 0; choice < kChoices; ++choice) {
        if (choice == current.assignment[l]) continue;
        Assignment candidate = moved(meter, losses, current.assignment, l, choice);
        if (candidate.empty() || meter.measured(candidate)) continue;
        if (!listed.insert(candidate).second) continue;
        moves.emplace_back(predicted_objective(meter, losses, candidate), std::move(candidate));
      }
    }
    std::ranges::sort(moves);
    for (const auto& [predicted, candidate] : moves) {
      if (!try_step(meter, candidate, current, improved)) return;
      if (improved) break;
    }
  }
}

// Measures D_l(b) while the budget lasts, first at 3 bits of every unit. The other losses are
// estimated from the uniform points and the proxies, scaled by the measurement of the unit.
LossTable measure_losses(SearchMeter& meter) {
  const LossTable guess = losses_from_uniform(meter);
  LossTable losses = guess;
  std::vector<double> scale(losses.size(), 0.0);
  // A tenth of the budget is reserved for measuring complete assignments.
  const int kept = std::max(2, meter.options().evaluations / 10);
  for (const int choice : {1, 0, 2}) {
    for (std::size_t l = 0; l < losses.size(); ++l) {
      const std::size_t c = index(choice);
      const bool may = meter.used() + kept < meter.options().evaluations;
      const auto loss = may ? meter.measure_alone(l, choice) : std::nullopt;
      if (loss) {
        losses[l][c] = std::max(*loss, 0.0);
        if (choice == 1 && guess[l][c] > 0) scale[l] = losses[l][c] / guess[l][c];
      } else if (scale[l] > 0) {
        losses[l][c] = guess[l][c] * scale[l];
      }
    }
  }
  return losses;
}

constexpr int kFewestEvaluations = 5;  // uniform points and one other assignment

void check(const SearchProblem& problem, const SearchOptions& options) {
  ensure(!problem.units.empty(), "search: the model has no unit to choose bits for");
  for (const SearchUnit& unit : problem.units) {
    ensure(unit.params > 0 && unit.bytes[0] > 0 && std::ranges::is_sorted(unit.bytes) &&
               unit.bytes[0] < unit.bytes[kEightBits],
           "search: unit ", unit.name, " has ", unit.params, " parameters in ", unit.bytes[0],
           " to ", unit.bytes[kEightBits], " bytes; sizes must grow with the bits");
  }
  require(options.evaluations >= kFewestEvaluations, Setting{"evaluations"}, " ",
          options.evaluations, ": expected ", kFewestEvaluations,
          " or more (four uniform models and a plan)");
  require(std::isfinite(options.lambda) && options.lambda >= 0, ErrorKind::bad_setting,
          "search: lambda ", options.lambda, ": expected 0 or more");
  const Assignment all_at_2_bits(problem.units.size(), 0);
  const std::uint64_t least = bytes_of(problem, all_at_2_bits);
  require(options.target_bytes.value_or(least) >= least, ErrorKind::bad_setting,
          "search: ", options.target_bytes.value_or(0),
          " bytes for the searched weights are too few: all at 2 bits take ", least, "; raise ",
          Setting{"target_size"}, " or ", Setting{"target_bpw"});
}

// KL of a uniform model of `bytes` bytes, by interpolation; see run_search.
double uniform_kl_at(std::span<const SearchPoint> uniform, std::uint64_t bytes) {
  std::vector<SearchPoint> sorted(uniform.begin(), uniform.end());
  std::ranges::sort(sorted, {}, &SearchPoint::bytes);
  double kl = kInfinity;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i].bytes <= bytes) kl = std::min(kl, sorted[i].kl);
    if (i + 1 == sorted.size() || sorted[i].bytes > bytes || sorted[i + 1].bytes <= bytes) continue;
    const double at = static_cast<double>(bytes - sorted[i].bytes) /
                      static_cast<double>(sorted[i + 1].bytes - sorted[i].bytes);
    kl = std::min(kl, std::lerp(sorted[i].kl, sorted[i + 1].kl, at));
  }
  return kl;
}

bool is_uniform(const Assignment& assignment) {
  return std::ranges::count(assignment, assignment.front()) == std::ssize(assignment);
}

// Chooses between the best point of the search and the best uniform point.
void accept(const SearchProblem& problem, SearchResult& result) {
  const SearchPoint& found = result.found;
  const SearchPoint& uniform =
      *std::ranges::min_element(result.uniform, {}, &SearchPoint::objective);
  result.uniform_kl = uniform_kl_at(result.uniform, found.bytes);
  const auto kl_text = [](double kl) { return "KL " + fixed(kl, 6); };
  const std::string measured =
      kl_text(found.kl) + " at " + fixed(bpw_of(problem, found.assignment), 3) + " bits per weight";
  if (is_uniform(found.assignment)) {
    result.chosen = found;
    result.verdict = "the search found nothing better than " +
                     std::to_string(kSearchBits[found.assignment[0]]) +
                     " bits everywhere: " + measured;
    return;
  }
  result.accepted = found.kl < result.uniform_kl;
  result.chosen = result.accepted ? found : uniform;
  result.verdict = result.accepted ? "accepted: " : "refused: ";
  result.verdict += measured + ", a uniform model of this size has " + kl_text(result.uniform_kl);
  if (!result.accepted) {
    result.verdict += "; taking " + std::to_string(kSearchBits[uniform.assignment[0]]) +
                      " bits everywhere, " + kl_text(uniform.kl);
  }
}

}  // namespace

std::uint64_t bytes_of_bpw(const SearchProblem& problem, double bits_per_weight) {
  require(std::isfinite(bits_per_weight) && bits_per_weight > 0, Setting{"target_bpw"}, " ",
          bits_per_weight, ": expected a positive number of bits");
  double params = 0;
  for (const SearchUnit& unit : problem.units) params += static_cast<double>(unit.params);
  return static_cast<std::uint64_t>(params * bits_per_weight / 8);
}

std::uint64_t bytes_of(const SearchProblem& problem, const Assignment& assignment) {
  std::uint64_t bytes = 0;
  for (std::size_t l = 0; l < assignment.size(); ++l) {
    bytes += problem.units[l].bytes[assignment[l]];
  }
  return bytes;
}

double bpw_of(const SearchProblem& problem, const Assignment& assignment) {
  double params = 0;
  for (const SearchUnit& unit : problem.units) params += static_cast<double>(unit.params);
  return static_cast<double>(bytes_of(problem, assignment)) * 8 / params;
}

std::string bits_text(const Assignment& assignment) {
  std::string text;
  for (const std::uint8_t choice : assignment) {
    if (!text.empty()) text += ',';
    text += std::to_string(kSearchBits[choice]);
  }
  return text;
}

void check_search_log(const std::filesystem::path& log) {
  if (log.empty()) return;
  check_output(log);
  if (file_exists(log)) use_log(log, [](const Json&, const std::string&) {});
}

SearchResult run_search(const SearchProblem& problem, const SearchOptions& options) {
  check(problem, options);
  SearchMeter meter(problem, options);
  SearchResult result;
  for (int choice = kEightBits; choice >= 0; --choice) {
    const Assignment assignment(problem.units.size(), static_cast<std::uint8_t>(choice));
    const auto point = meter.measure(assignment);
    result.uniform[static_cast<std::size_t>(choice)] = point.value();
  }
  result.losses = measure_losses(meter);
  // The assignment with the least loss under the limit or, without limit, with the least J.
  const Assignment plan =
      solve_knapsack(problem.units, result.losses, meter.price(), meter.limit());
  const auto point = plan.empty() ? std::nullopt : meter.measure(plan);
  const bool better = point && point->objective <= meter.best().objective;
  repair(meter, result.losses, better ? *point : meter.best());
  result.found = meter.best();
  result.trace = meter.trace();
  result.evaluations = meter.used();
  accept(problem, result);
  return result;
}

namespace {

constexpr std::size_t kFront = 4096;

// An assignment of choices to the first units.
struct Partial {
  std::uint64_t bytes = 0;
  double loss = 0;
  std::uint32_t before = 0;  // index of its predecessor in the previous unit's front
  std::uint8_t choice = 0;
};
using Front = std::vector<Partial>;

// Keeps the assignments that have less loss than all smaller ones, sorted by size.
Front pareto(Front all) {
  std::ranges::sort(all, [](const Partial& a, const Partial& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.loss < b.loss;
  });
  Front front;
  for (const Partial& one : all) {
    if (front.empty() || one.loss < front.back().loss) front.push_back(one);
  }
  return front;
}

// Keeps the last (and best) assignment of each interval of sizes, and the smallest one of all.
Front thin(const Front& front) {
  if (front.size() <= kFront) return front;
  const std::uint64_t lowest = front.front().bytes;
  const std::uint64_t cell = (front.back().bytes - lowest) / kFront + 1;
  Front kept = {front.front()};
  for (std::size_t i = 1; i < front.size(); ++i) {
    const bool last_of_cell = i + 1 == front.size() || (front[i].bytes - lowest) / cell !=
                                                           (front[i + 1].bytes - lowest) / cell;
    if (last_of_cell) kept.push_back(front[i]);
  }
  return kept;
}

Front extend(const Front& front, const SearchUnit& unit, const std::array<double, kChoices>& losses,
             std::uint64_t limit) {
  Front all;
  for (std::size_t i = 0; i < front.size(); ++i) {
    for (int choice = 0; choice < kChoices; ++choice) {
      const auto c = static_cast<std::size_t>(choice);
      const Partial next = {front[i].bytes + unit.bytes[c], front[i].loss + losses[c],
                            static_cast<std::uint32_t>(i), static_cast<std::uint8_t>(choice)};
      if (next.bytes <= limit && std::isfinite(next.loss)) all.push_back(next);
    }
  }
  return thin(pareto(std::move(all)));
}

}  // namespace

Assignment solve_knapsack(std::span<const SearchUnit> units, const LossTable& losses, double price,
                          std::uint64_t limit) {
  // Least bytes of the remaining units; with it, only assignments that can be completed are kept.
  std::vector<std::uint64_t> rest(units.size() + 1, 0);
  for (std::size_t l = units.size(); l-- > 0;) {
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (std::size_t c = 0; c < kChoices; ++c) {
      if (std::isfinite(losses[l][c])) least = std::min(least, units[l].bytes[c]);
    }
    if (least == std::numeric_limits<std::uint64_t>::max()) return {};
    rest[l] = rest[l + 1] + least;
  }
  if (rest[0] > limit) return {};
  std::vector<Front> fronts = {{Partial{}}};
  for (std::size_t l = 0; l < units.size(); ++l) {
    fronts.push_back(extend(fronts.back(), units[l], losses[l], limit - rest[l + 1]));
  }
  const auto cost = [&](const Partial& one) {
    return one.loss + price * static_cast<double>(one.bytes);
  };
  const Front& last = fronts.back();
  auto at = static_cast<std::size_t>(std::ranges::min_element(last, {}, cost) - last.begin());
  Assignment assignment(units.size());
  for (std::size_t l = units.size(); l-- > 0;) {
    const Partial& one = fronts[l + 1][at];
    assignment[l] = one.choice;
    at = one.before;
  }
  return assignment;
}

}  // namespace leq

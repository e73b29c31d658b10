#include "quantize/search/bit_search_meter.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace leq {
namespace {

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

}  // namespace

SearchMeter::SearchMeter(const SearchProblem& problem, const SearchOptions& options)
    : problem_(problem), options_(options) {
  for (const SearchUnit& unit : problem.units) params_ += unit.params;
  if (!options.log.empty() && file_exists(options.log)) read_log();
}

double SearchMeter::price() const {
  return options_.target_bytes ? 0.0 : options_.lambda * 8 / (16.0 * static_cast<double>(params_));
}

std::uint64_t SearchMeter::limit() const {
  return options_.target_bytes.value_or(std::numeric_limits<std::uint64_t>::max());
}

double SearchMeter::objective(double kl, std::uint64_t bytes) const {
  if (bytes > limit()) return std::numeric_limits<double>::infinity();
  return kl + price() * static_cast<double>(bytes);
}

bool SearchMeter::fits(const Assignment& assignment) const {
  return bytes_of(problem_, assignment) <= limit();
}

void SearchMeter::count() {
  ++used_;
  if (!options_.log.empty()) write_log();
}

std::optional<SearchPoint> SearchMeter::measure(const Assignment& assignment) {
  if (const auto seen = seen_.find(assignment); seen != seen_.end()) return trace_[seen->second];
  if (spent()) return std::nullopt;
  const auto known = known_.find(assignment);
  const double kl = known != known_.end() ? known->second : problem_.evaluate(assignment);
  require(std::isfinite(kl), "search: KL of ", bits_text(assignment), " is not finite");
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
  count();
  if (options_.progress) options_.progress(used_, point.best_objective);
  return point;
}

std::optional<double> SearchMeter::measure_alone(std::size_t unit, int choice) {
  if (!problem_.partial) {
    Assignment assignment(problem_.units.size(), kEightBits);
    const auto all = measure(assignment);
    assignment[unit] = static_cast<std::uint8_t>(choice);
    const auto one = measure(assignment);
    if (!all || !one) return std::nullopt;
    return one->kl - all->kl;
  }
  const std::pair<std::size_t, int> key = {unit, choice};
  if (const auto seen = seen_alone_.find(key); seen != seen_alone_.end()) return seen->second;
  if (spent()) return std::nullopt;
  const auto known = known_alone_.find(key);
  const double kl = known != known_alone_.end() ? known->second : problem_.partial(unit, choice);
  require(std::isfinite(kl), "search: KL of ", problem_.units[unit].name, " alone is not finite");
  seen_alone_.emplace(key, kl);
  known_alone_.emplace(key, kl);
  count();
  return kl;
}

void SearchMeter::read_log() {
  use_log(options_.log,
          [this](const Json& log, const std::string& source) { read_log(log, source); });
}

void check_search_log(const std::filesystem::path& log) {
  if (log.empty()) return;
  check_output(log);
  if (file_exists(log)) use_log(log, [](const Json&, const std::string&) {});
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
  for (const Json& entry : list_of(log, "alone", source)) {
    const auto unit = json_get<std::uint64_t>(entry, "unit", source);
    require(unit < problem_.units.size(), source, ": unit ", unit, " of ", problem_.units.size());
    const Json bits = json_get<std::int64_t>(entry, "bits", source);
    known_alone_.emplace(std::pair(unit, choice_of(bits, source)), kl_of(entry, source));
  }
}

// Writes all known measurements: first the points of this run, in order, then older ones.
void SearchMeter::write_log() const {
  Json log = {{"version", kLogVersion}, {"identity", problem_.identity}};
  Json units = Json::array(), measured = Json::array(), alone = Json::array();
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
  for (const auto& [key, kl] : known_alone_) {
    alone.push_back({{"unit", key.first},
                     {"bits", kSearchBits[static_cast<std::size_t>(key.second)]},
                     {"kl", kl}});
  }
  log["units"] = std::move(units);
  log["measured"] = std::move(measured);
  log["alone"] = std::move(alone);
  AtomicFile file(options_.log);
  file.append(as_bytes(log.dump_any(1)));
  file.commit();
}

}  // namespace leq

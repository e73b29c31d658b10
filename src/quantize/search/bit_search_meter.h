// Measures each assignment only once, within a budget, and writes the log from which an interrupted
// search resumes.
#pragma once

#include <cstdint>
#include <map>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "quantize/search/bit_search.h"

namespace leq {

class SearchMeter {
 public:
  // Reads the log if it exists. Throws Error if the log is damaged or of another problem.
  SearchMeter(const SearchProblem& problem, const SearchOptions& options);

  // Returns nullopt if the budget is spent and the assignment was not measured before.
  std::optional<SearchPoint> measure(const Assignment& assignment);
  // KL that unit l with a choice adds to all units at 8 bits; nullopt if the budget is spent.
  std::optional<double> measure_alone(std::size_t unit, int choice);

  bool measured(const Assignment& assignment) const { return seen_.contains(assignment); }
  int used() const { return used_; }
  double objective(double kl, std::uint64_t bytes) const;
  bool fits(const Assignment& assignment) const;
  // Objective per byte (0 if there is a size limit), and the limit (the largest number if none).
  double price() const;
  std::uint64_t limit() const;

  const SearchProblem& problem() const { return problem_; }
  const SearchOptions& options() const { return options_; }
  const std::vector<SearchPoint>& trace() const { return trace_; }
  // The measured point with the smallest objective, the first one on ties.
  const SearchPoint& best() const { return trace_[best_]; }

 private:
  void read_log();
  void read_log(const Json& log, const std::string& source);
  void write_log() const;
  void count();

  bool exhausted() const { return used_ >= options_.evaluations; }

  const SearchProblem& problem_;
  const SearchOptions& options_;
  std::int64_t params_ = 0;
  std::map<Assignment, double> known_;  // KL from the log or measured
  std::map<std::pair<std::size_t, int>, double> known_alone_;
  std::map<Assignment, std::size_t> seen_;  // index of each point of this run in trace_
  std::map<std::pair<std::size_t, int>, double> measured_alone_;
  std::vector<SearchPoint> trace_;
  std::size_t best_ = 0;
  int used_ = 0;
};

}  // namespace leq

// Assigns bit widths to the units of a model: minimizes KL divergence plus a price of size, or KL
// under a size limit, by measuring complete assignments. Independent of the model:
// units are names, sizes and features, and a measurement is a callback.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace leq {

inline constexpr std::array<int, 4> kSearchBits = {2, 3, 4, 8};
inline constexpr int kChoices = 4;
inline constexpr int kFourBits = 2;   // index of 4 in kSearchBits
inline constexpr int kEightBits = 3;  // index of 8

// An index into kSearchBits for each unit.
using Assignment = std::vector<std::uint8_t>;

// Linears that get the same bit width. Proxies that are unknown are 0.
struct SearchUnit {
  std::string name;  // "layers.3.qkv"
  std::int64_t params = 0;
  std::array<std::uint64_t, kChoices> bytes{};  // stored size at each choice, ascending
  std::array<double, kChoices> proxy{};         // a data-driven loss at each choice
};

struct SearchProblem {
  std::string identity;  // of model, candidates and text; must equal that of a resumed log
  std::vector<SearchUnit> units;
  // KL in nats of an assignment relative to the unquantized model. Must be deterministic.
  std::function<double(const Assignment&)> evaluate;
};

struct SearchOptions {
  // J(b) = KL + lambda * 8 bytes(b) / (16 params): lambda prices the 16-bit size in nats.
  double lambda = 0.05;
  // With a limit, J is KL alone, and assignments above the limit are not measured.
  std::optional<std::uint64_t> target_bytes = {};
  int evaluations = 96;  // number of KL measurements, including those from a log; at least 5
  std::filesystem::path log = {};  // JSON; read if it exists, written after each measurement
  std::function<void(int done, double best)> progress = {};
};

// Bytes of the units at a given number of bits per weight.
std::uint64_t bytes_of_bpw(const SearchProblem& problem, double bits_per_weight);
std::uint64_t bytes_of(const SearchProblem& problem, const Assignment& assignment);
double bpw_of(const SearchProblem& problem, const Assignment& assignment);
std::string bits_text(const Assignment& assignment);  // "4,3,8": bits of each unit

// One measured assignment.
struct SearchPoint {
  Assignment assignment;
  double kl = 0;
  std::uint64_t bytes = 0;
  double objective = 0;       // J; infinite if the size exceeds the limit
  double best_objective = 0;  // least J of this and all earlier points
};

struct SearchResult {
  SearchPoint chosen;  // the result to write
  SearchPoint found;   // the best measured point, which may be uniform
  bool accepted = false;
  // KL of a uniform model of found's size (see run_search). `found` is accepted if its KL is lower.
  double uniform_kl = 0;
  std::string verdict;                               // one sentence for the user
  std::array<SearchPoint, kChoices> uniform;         // all units at 2, 3, 4, 8 bits
  std::vector<SearchPoint> trace;                    // in the order of measurements
  std::vector<std::array<double, kChoices>> losses;  // last estimate of D_l(b), 0 at 8 bits
  int evaluations = 0;
};

// Throws Error if `log` is set and cannot be written, or exists and is not a search log.
void check_search_log(const std::filesystem::path& log);

// Measures the uniform points, then searches. The same problem and options give the same answer,
// also if resumed from a log.
//
// A plan is accepted if its measured KL is below that of a uniform model of equal size. As uniform
// models have few sizes, their KL at the plan's size is interpolated linearly, over bytes, between
// the two nearest uniform points (the average result of choosing units blindly between those two
// bit widths, if losses are additive). A smaller uniform point with less KL than this replaces it.
// If the plan is not accepted, `chosen` is the uniform point with the smallest objective. Throws
// Error if the limit is below all units at 2 bits, the budget below 5, or the log damaged or of
// another problem.
SearchResult run_search(const SearchProblem& problem, const SearchOptions& options);

// Finds the best assignment if losses are additive. Exact for small problems; for large ones, sizes
// are rounded to a fine grid.

// Loss of each unit at each choice; an infinite loss forbids the choice.
using LossTable = std::vector<std::array<double, kChoices>>;

// Minimizes sum loss + price * sum bytes under sum bytes <= limit, by merging one unit after
// another into the Pareto front of (bytes, loss). A front of more than 4096 points is reduced to
// the best point in each 1/4096 of the size. Returns an empty assignment if nothing fits.
Assignment solve_knapsack(std::span<const SearchUnit> units, const LossTable& losses, double price,
                          std::uint64_t limit);

}  // namespace leq

// Assigns bit widths to the units of a model: strategies that minimize KL divergence plus a price
// of size, or KL under a size limit, by measuring whole assignments. Independent of the model:
// units are names, sizes and features, and a measurement is a callback.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace leq {

inline constexpr std::array<int, 4> kSearchBits = {2, 3, 4, 8};
inline constexpr int kChoices = 4;
inline constexpr int kEightBits = 3;  // index of 8 in kSearchBits

// An index into kSearchBits for each unit.
using Assignment = std::vector<std::uint8_t>;

// Linears that share a bit width. Unknown features stay 0.
struct SearchUnit {
  std::string name;        // "layers.3.qkv"
  std::string kind;        // the grid strategy ties units of one kind: "qkv", "o"
  std::int64_t layer = 0;  // block, from 0
  std::int64_t params = 0;
  std::array<std::uint64_t, kChoices> bytes{};  // stored size at each choice, ascending
  std::array<double, kChoices> proxy{};         // a data-driven loss at each choice
  std::array<double, kChoices> diagonal_proxy{};
  double entropy = 0;  // of the 8-bit codes, bits
  double kurtosis = 0;
  double outlier_ratio = 0;  // share of |w| > 4 sigma
};

struct SearchProblem {
  std::string identity;  // of model, candidates and text: a log of another identity is refused
  std::vector<SearchUnit> units;
  // KL of an assignment against the base model, nats. Deterministic.
  std::function<double(const Assignment&)> evaluate;
  // Optional. D_l(b): the KL that one unit at a choice adds while all others are at their most
  // accurate; for a measurement cheaper than evaluate(all 8 but one).
  std::function<double(std::size_t unit, int choice)> partial = {};
};

enum class SearchStrategy : std::uint8_t { grid, entropy, greedy, sens, learned };
// Throws Error listing the names.
SearchStrategy parse_search_strategy(std::string_view name);

struct SearchOptions {
  SearchStrategy strategy = SearchStrategy::sens;
  // J(b) = KL + lambda * 8 bytes(b) / (16 params): a price in nats on the share of the 16-bit size.
  double lambda = 0.05;
  // With a limit J is KL alone, and assignments that exceed it are not measured.
  std::optional<std::uint64_t> target_bytes = {};
  int evaluations = 96;  // measurements of KL, those read from a log included; at least 5
  std::uint64_t seed = 0;
  std::filesystem::path log = {};  // JSON; read where it exists, written after each measurement
  std::function<void(int done, double best)> progress = {};
};

// Bytes of the units at a number of bits per weight.
std::uint64_t bytes_of_bpw(const SearchProblem& problem, double bits_per_weight);
std::uint64_t bytes_of(const SearchProblem& problem, const Assignment& assignment);
double bpw_of(const SearchProblem& problem, const Assignment& assignment);
std::string bits_text(const Assignment& assignment);  // "4,3,8": bits unit after unit

// One measured assignment.
struct SearchPoint {
  Assignment assignment;
  double kl = 0;
  std::uint64_t bytes = 0;
  double objective = 0;       // J; infinite where the size exceeds the limit
  double best_objective = 0;  // over this and all earlier points
};

struct SearchResult {
  SearchPoint chosen;  // the point to write
  SearchPoint found;   // the best measured point, uniform or not
  bool accepted = false;
  // KL of a uniform model of found's size, see run_search; `found` is accepted only below it.
  double uniform_kl = 0;
  std::string verdict;                               // one sentence
  std::array<SearchPoint, kChoices> uniform;         // all at 2, 3, 4, 8 bits
  std::vector<SearchPoint> pareto;                   // measured, none larger and worse than another
  std::vector<SearchPoint> trace;                    // in the order of measuring
  std::vector<std::array<double, kChoices>> losses;  // D_l(b) as last estimated, 0 at 8 bits
  int evaluations = 0;
};

// Throws Error where `log` is not empty and cannot be written, or exists and is no search log.
void check_search_log(const std::filesystem::path& log);

// Measures the uniform points, then searches. The same problem, options and seed give the same
// answer, also when resumed from a log.
//
// A plan is accepted if its measured KL is below that of a uniform model of equal size. Uniform
// models have few sizes, so "of equal size" means: the linear interpolation, over bytes, between
// the uniform points next to the plan's size (the average result of choosing units blindly between
// those two bit widths, where losses are additive), or a smaller uniform point that lies below that
// line. Otherwise `chosen` is the uniform point with the smallest objective.
// Throws Error where the limit is below all units at 2 bits, the budget below 5, or the log is of
// another problem or damaged.
SearchResult run_search(const SearchProblem& problem, const SearchOptions& options);

}  // namespace leq

// The bit search on a real model: measures the KL of mixed models against an unquantized one on a
// text, and writes the file of the chosen plan.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "eval/mixed_model.h"

namespace leq {

// Limits for a joint choice of weights and KV cache within a memory size.
struct FitRequest {
  std::uint64_t bytes = 0;  // limit for weights, KV cache and scratch together
  RunLimits limits = {};    // limits of the planned run, without the cache types
  double max_kl = 0;        // limit in nats, if > 0
};

// One cache type, and the best weights that fit into memory together with it.
struct FitChoice {
  KvType key_type = kUsualKv, value_type = kUsualKv;
  Assignment assignment;
  double bits_per_weight = 0;  // bits of the units
  MemoryPlan plan = {};
  double kl = 0;  // nats, with these weights and this cache
};

struct FitResult {
  FitRequest request;
  std::vector<FitChoice> choices;  // by cache size, largest first
  std::size_t chosen = 0;

  KvEvidence evidence() const;
};

struct MixedSearch {
  std::array<std::filesystem::path, kChoices> candidates;  // 2, 3, 4, 8 bits
  std::filesystem::path base;                              // the model in f32 (or f16, bf16)
  std::filesystem::path base_file;  // temporary, the base's distributions; empty: beside the base
  std::string text;                 // the search text; must differ from the evaluation text
  std::int64_t window = 512;
  std::int64_t windows = 16;      // number of windows, from the text's start
  int threads = 0;                // 0 = one for each usable core
  SearchOptions options;          // target_bytes: limit for the units
  double target_bpw = 0;          // bits per weight of the units, if > 0; sets options.target_bytes
  std::uint64_t target_size = 0;  // bytes of all tensors, if > 0; sets options.target_bytes
  std::optional<FitRequest> fit = {};  // used instead of targets
};

struct MixedSearchResult {
  SearchResult search;
  std::vector<SearchUnit> units;
  std::optional<FitResult> fit = {};
  std::uint64_t file_bytes = 0;
  double seconds = 0;
};

// Measures KL against the base on windows of the text (keys and values in f32), searches, and
// writes `output` with the plan, its KL and the uniform points in "provenance"."search". Throws
// Error as MixedModel, run_search and measure_divergence do.
MixedSearchResult search_mixed_model(const MixedSearch& request,
                                     const std::filesystem::path& output);

// Bytes of the smallest cache that a search for FitRequest may choose under the given limits.
std::uint64_t smallest_cache_bytes(const ModelConfig& config, const Layout& layout,
                                   const RunLimits& limits);

// Report for users: bits and losses of each unit, uniform points, the verdict.
std::string search_report(const MixedSearchResult& result);

}  // namespace leq

// A model whose units have different bit widths. It is composed without copying from files that
// hold all units at 2, 3, 4 and 8 bits. The bit search measures it and writes its result with it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/memory_plan.h"
#include "model/open_model.h"
#include "quantize/search/bit_search.h"

namespace leq {

// The units of a block are: q, k and v together; o; gate and up together; down. Embedding, head,
// norms and positions belong to no unit and are taken from the 8-bit file.
class MixedModel {
 public:
  // Opens files of 2, 3, 4 and 8 bits of one checkpoint with the same folds: scales that were
  // folded into a norm or another linear must be equal in all files. Throws Error naming files that
  // differ in configuration, tensors or the vectors outside the units.
  explicit MixedModel(const std::array<std::filesystem::path, kChoices>& candidates);

  // Names and sizes of units. Proxies are stored relative error x parameters.
  const std::vector<SearchUnit>& units() const { return units_; }
  std::uint64_t rest_bytes() const;  // bytes of tensors outside the units
  const Model& model() const { return *files_.back(); }
  std::string checksums() const;  // of all planes in all files, as a text

  // The views point to memory of this object.
  Weights bind(const Assignment& assignment, Backend& backend) const;
  std::uint64_t bytes(const Assignment& assignment) const;         // bytes of all tensors
  std::uint64_t memory_bytes(const Assignment& assignment) const;  // with padded copies

  // Writes the mixed file with the metadata of the 8-bit file. `provenance` replaces or adds keys
  // of "provenance", and `more` adds keys beside it. Verifies every checksum. Returns the size of
  // the file.
  std::uint64_t write(const std::filesystem::path& path, const Assignment& assignment,
                      const Json& provenance, const Json& more) const;

 private:
  void add_units();
  void require_alike() const;
  // The file that holds a tensor at the bit width that its unit has in the assignment.
  const LeqReader& file_of(const Assignment& assignment, std::string_view name) const;

  std::vector<std::unique_ptr<Model>> files_;  // in the order of kSearchBits
  std::vector<SearchUnit> units_;
  std::map<std::string, std::size_t, std::less<>> unit_of_;  // tensor name to unit
};

// The bit search on a real model: measures the KL of mixed models against an unquantized one on a
// text, and writes the file of the chosen plan.

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
  bool target_four = false;       // the size of all units at 4 bits; sets options.target_bytes
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

// Which bits of the weights and which type of the KV cache together lose least where memory is
// bounded: for each type of cache the best weights that fit beside it, measured with that cache.
#pragma once

#include <map>
#include <string>

#include "base/json.h"
#include "eval/kl_reference.h"

namespace leq {

class FitSearch {
 public:
  // All must outlive the object.
  FitSearch(const FitRequest& request, const MixedModel& mixed, const KlReference& reference,
            Backend& backend);

  // Searches under a limit for each type of cache; returns the search whose weights were chosen.
  // Measurements are made once. Throws Error where nothing fits, and where nothing that fits keeps
  // max_kl.
  SearchResult run(const SearchProblem& problem, const SearchOptions& options);
  const FitResult& result() const { return result_; }

 private:
  RunLimits limits_of(KvType keys, KvType values) const;
  MemoryPlan plan(const Assignment& assignment, KvType keys, KvType values) const;
  // Bytes of the units that fit beside a cache and all else.
  std::int64_t available(const SearchProblem& problem, KvType keys, KvType values) const;
  // The best weights beside a cache, not measured with it yet; nullopt where none fit.
  struct Fitting {
    FitChoice choice;
    SearchResult search;
  };
  Fitting with_cache(const SearchProblem& problem, const SearchResult& search, KvType keys,
                     KvType values) const;
  std::optional<Fitting> fitting(const SearchProblem& problem, SearchOptions& options, KvType keys,
                                 KvType values) const;

  const MixedModel& mixed_;
  const KlReference& reference_;
  Backend& backend_;
  std::uint64_t overhead_ = 0;  // of a file beside its tensors
  FitResult result_;
};

// The smallest cache that a search may choose, for limits of a model.
std::uint64_t smallest_cache_bytes(const ModelConfig& config, const Layout& layout,
                                   const RunLimits& limits);

Json fit_to_json(const FitResult& fit);
// For people: a line for each choice.
std::string fit_report(const FitResult& fit);

}  // namespace leq

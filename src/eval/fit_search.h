// Searches for the bit widths of the weights and the type of the KV cache with the least loss
// within a memory limit: for each cache type, the best weights that fit, measured with that cache.
#pragma once

#include <map>
#include <string>

#include "base/json.h"
#include "eval/kl_reference.h"

namespace leq {

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
  RunLimits limits_of(KvType keys, KvType values) const;
  MemoryPlan plan(const Assignment& assignment, KvType keys, KvType values) const;
  // Bytes that remain for the units after the cache and everything else.
  std::int64_t available(const SearchProblem& problem, KvType keys, KvType values) const;
  // The best weights for one cache type, before measuring with it; nullopt if none fit.
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
  std::uint64_t overhead_ = 0;  // bytes of a file other than tensors
  FitResult result_;
};

// Bytes of the smallest cache that a search may choose under the given limits.
std::uint64_t smallest_cache_bytes(const ModelConfig& config, const Layout& layout,
                                   const RunLimits& limits);

Json fit_to_json(const FitResult& fit);
// Report for users: one line per choice.
std::string fit_report(const FitResult& fit);

}  // namespace leq

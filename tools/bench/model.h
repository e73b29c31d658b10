// What leq-bench measures: a .leq file, or synthetic weights of a published shape.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eval/synthetic.h"
#include "model/ranks.h"
#include "model/session.h"

namespace leq {

class BenchModel {
 public:
  // `name`: a path, or "synthetic:SHAPE:TYPE". Synthetic models get room for `context` positions.
  // Throws Error as Model and SyntheticModel do.
  BenchModel(const std::string& name, LoadMode mode, std::int64_t context);

  const std::string& name() const { return name_; }      // without folders and type
  const std::string& scheme() const { return scheme_; }  // "int8"
  const ModelConfig& config() const;
  std::uint64_t weight_bytes() const;
  const Tokenizer* tokenizer() const;  // null where there is none
  // Throws Error where a GPU has no room for the limits. Of several ranks the session leads.
  Session make_session(Backend& backend, const RunLimits& wanted,
                       Communicator& ranks = one_rank()) const;
  // Of the model's head of multi-token prediction beside a session with `limits`; null where it has
  // none.
  std::unique_ptr<Session> make_mtp_session(Backend& backend, const RunLimits& limits) const;
  // What another rank does, until the leader's session ends; `wanted` as the leader has it.
  void follow(Backend& backend, const RunLimits& wanted, Communicator& ranks) const;
  // The other ranks as threads, a backend for each.
  std::unique_ptr<ThreadFollowers> followers(std::vector<std::unique_ptr<Backend>> backends,
                                             const RunLimits& wanted,
                                             const ThreadRankOptions& options) const;

 private:
  RunLimits limits_on(Backend& backend, const RunLimits& wanted, const RankPlace& place) const;
  Weights bind(Backend& backend, const RunLimits& limits, const RankPlace& place) const;

  std::string name_;
  std::string scheme_;
  std::optional<Model> file_;
  std::optional<SyntheticModel> synthetic_;
  std::optional<ModelConfig> mtp_;
};

// A placeholder text for each id of a model without a tokenizer.
Tokenizer numbered_tokens(std::int64_t vocabulary);

}  // namespace leq

// A model for leq-bench: a .leq file, or synthetic weights in the shape of a published model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/ranks.h"
#include "model/session.h"
#include "tools/bench/parts/synthetic.h"

namespace leq {

class BenchModel {
 public:
  // `name` is a path or "synthetic:SHAPE:TYPE". Synthetic models have at most `context` positions.
  // Throws Error like Model and SyntheticModel.
  BenchModel(const std::string& name, LoadMode mode, std::int64_t context);

  const std::string& name() const { return name_; }      // without folders and type
  const std::string& scheme() const { return scheme_; }  // "int8"
  const ModelConfig& config() const;
  std::uint64_t weight_bytes() const;
  const Tokenizer* tokenizer() const;  // null if there is none
  // Throws Error if the limits exceed a GPU's memory. With several ranks: the leader's session.
  Session make_session(Backend& backend, const RunLimits& wanted,
                       Communicator& ranks = one_rank()) const;
  // A session of the model's multi-token prediction head, for use with a session with `limits`;
  // null if the model has no such head.
  std::unique_ptr<Session> make_mtp_session(Backend& backend, const RunLimits& limits) const;
  // Runs another rank until the leader's session ends; `wanted` must be the leader's.
  void follow(Backend& backend, const RunLimits& wanted, Communicator& ranks) const;
  // Starts the other ranks as threads, each with its own backend.
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

// A tokenizer with placeholder texts, for a model without a tokenizer.
Tokenizer numbered_tokens(std::int64_t vocabulary);

}  // namespace leq

// Collective operations of ranks within a step (docs/ranks.md): columns that each rank computed are
// gathered, embeddings and norms are divided by rows where ranks are threads that share a block,
// and an error of one rank ends the step on all. With one rank every block is its own:
// nothing is exchanged.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "comm/membership.h"
#include "model/sharding.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace leq {

class Collectives {
 public:
  // All of them must outlive it.
  Collectives(Backend& backend, Workspace& work, Communicator& ranks, const RankPlace& place);

  const RankShare& own() const { return place_.own(); }
  bool alone() const { return place_.alone(); }
  Communicator& ranks() { return ranks_; }

  // The residual stream x = the tokens' embeddings, rotated where the stream is.
  void embed(const Embedding& embedding);
  // x, normed, as the input of `linear`.
  RowsFor norm(const Norm& norm, const LayerLinear& linear, std::int64_t tokens);
  // Gathers rows of which every rank has computed its columns. Does nothing on one rank.
  void gather(const SharedBlock& block, std::int64_t tokens, Receivers to, std::string_view site);
  // Returns when the step has ended on all ranks; throws on all where it failed on one.
  void finish_step();
  // Calls `work`, one step; where it throws on one of several ranks, all end.
  void abort_on_error(const std::function<void()>& work);

 private:
  Slice own_rows(std::int64_t tokens) const;
  void norm_own_rows(const Norm& norm, const RowsFor& out, std::int64_t tokens,
                     std::string_view site);

  Backend& backend_;
  Workspace& work_;
  Communicator& ranks_;
  const RankPlace& place_;
  std::unique_ptr<Communicator> linked_;  // ranks_ by the device's own way, where it has one
  std::optional<Membership> shares_;      // with ranks that work on the leader's blocks
};

}  // namespace leq

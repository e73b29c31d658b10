// Collective operations of ranks within a step (docs/ranks.md): they gather the columns that each
// rank computed, and end the step on all ranks if it fails on one. On a single rank nothing is
// exchanged, because the rank computes all columns itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "backend/backend.h"
#include "model/sharding.h"
#include "model/workspace.h"
#include "ranks/communicator.h"

namespace leq {

class Collectives {
 public:
  // All arguments must outlive the object.
  Collectives(Backend& backend, Workspace& work, Communicator& ranks, const RankPlace& place);

  const RankShare& own() const { return place_.own(); }
  bool alone() const { return place_.alone(); }
  Communicator& ranks() { return ranks_; }

  // All-gathers rows of which every rank has computed some columns. Does nothing on one rank.
  void gather(const SharedBlock& block, std::int64_t tokens, Receivers to, std::string_view site);
  // Waits until the step has ended on all ranks; throws on all of them if it failed on one.
  void finish_step();
  // Calls `work`, which runs one step. If it throws on one of several ranks, all ranks end.
  void abort_on_error(const std::function<void()>& work);

 private:
  Backend& backend_;
  Communicator& ranks_;
  const RankPlace& place_;
  std::unique_ptr<Communicator> linked_;  // the device's own collectives; may be null
};

}  // namespace leq

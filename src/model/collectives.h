// Collective operations of ranks within a step (docs/ranks.md): columns that each rank computed are
// gathered, and an error of one rank ends the step on all. With one rank every block is its own:
// nothing is exchanged.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "model/sharding.h"
#include "model/workspace.h"

namespace leq {

class Collectives {
 public:
  // All of them must outlive it.
  Collectives(Backend& backend, Workspace& work, Communicator& ranks, const RankPlace& place);

  const RankShare& own() const { return place_.own(); }
  bool alone() const { return place_.alone(); }
  Communicator& ranks() { return ranks_; }

  // Gathers rows of which every rank has computed its columns. Does nothing on one rank.
  void gather(const SharedBlock& block, std::int64_t tokens, Receivers to, std::string_view site);
  // Returns when the step has ended on all ranks; throws on all where it failed on one.
  void finish_step();
  // Calls `work`, one step; where it throws on one of several ranks, all end.
  void abort_on_error(const std::function<void()>& work);

 private:
  Backend& backend_;
  Communicator& ranks_;
  const RankPlace& place_;
  std::unique_ptr<Communicator> linked_;  // ranks_ by the device's own way, where it has one
};

}  // namespace leq

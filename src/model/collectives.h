// What ranks that share a model do together within a step (docs/ranks.md): rows of which each makes
// some columns are gathered, and an error of one ends all. With one rank every block is its own and
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

  // Rows of which every rank has made its columns become whole. Does nothing on one rank.
  void gather(const SharedBlock& block, std::int64_t tokens, Receivers to, std::string_view site);
  // What ranks began together has ended on all of them, or all throw.
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

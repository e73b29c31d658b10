// The experts of one layer over the rows of one step, between the norm and the residual stream.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/backend.h"
#include "model/collectives.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace leq {

// All of them must outlive it.
struct ExpertsRun {
  Backend& backend;
  Workspace& work;
  Collectives& ranks;
  const ExpertsMlpWeights& weights;

  // Chooses the experts of each of the normed rows [T, W].
  void route(const Rows& normed, std::int64_t tokens);
  // The products [T k, F] of all groups, and [T, F'] of a shared expert.
  void gate(const Rows& normed);
  // What each down reads, experts without rows included.
  void each_product(
      const std::function<void(const LayerLinear& linear, const Rows& rows)>& visit) const;
  // x [T, W] += down of them.
  void add(Rows& x);
};

}  // namespace leq

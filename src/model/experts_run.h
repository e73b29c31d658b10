// Runs the experts of one layer for the rows of one step, between the norm and the addition to x.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/backend.h"
#include "model/collectives.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace leq {

// All members must outlive the object.
struct ExpertsRun {
  Backend& backend;
  Workspace& work;
  Collectives& ranks;
  const ExpertsMlpWeights& weights;

  // Chooses the experts of each row of `normed` [T, W].
  void route(const Rows& normed, std::int64_t tokens);
  // Computes the gated products [T k, F] of all experts, and [T, F'] of a shared expert.
  void gate(const Rows& normed);
  // Visits the input rows of each expert's down, including experts without rows.
  void each_product(
      const std::function<void(const LayerLinear& linear, const Rows& rows)>& visit) const;
  // x [T, W] += the outputs of each row's down linears.
  void add(Rows& x);
};

}  // namespace leq

// The linears of experts on the CPU. The rows of a step are grouped by expert, and all groups run
// in one loop of the pool. For any grouping the results are bit-identical to run_linear's.
#pragma once

#include "backend/cpu/matmul/linear.h"
#include "backend/operations.h"

namespace leq::cpu {

// Operations::experts_gated and experts_add.
void run_experts_gated(const LinearContext& context, const Rows& x, const ExpertRoutes& routes,
                       const ExpertLinears& experts, Rows& grouped, Rows& out);
void run_experts_add(const LinearContext& context, const Rows& products, const ExpertRoutes& routes,
                     const ExpertLinear& down, Rows& x);

}  // namespace leq::cpu

// Drives the linears of experts on the CPU: the rows of a step in groups by expert, all groups in
// one loop of the pool. Results are bit for bit those of run_linear, for any grouping of the rows.
#pragma once

#include "backend/cpu/matmul/linear.h"
#include "backend/expert_routes.h"

namespace leq::cpu {

// Operations::experts_gated and experts_add.
void run_experts_gated(const LinearContext& context, const Rows& x, const ExpertRoutes& routes,
                       const ExpertLinears& experts, Rows& grouped, Rows& out);
void run_experts_add(const LinearContext& context, const Rows& products, const ExpertRoutes& routes,
                     const ExpertLinear& down, Rows& x);

}  // namespace leq::cpu

// Experts on the device: the router's choice, the linears of the chosen experts, and the weighted
// sum. T tokens, E experts, k chosen for each token, R = T k rows: row t k + i is token t for its
// expert number i in ascending order, so that the host does not need the choice; in steps of many
// rows they are reordered so that those of an expert are contiguous.
#pragma once

#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

// The router's choice, which overwrites its logits: [T][stride] k numbers of experts, ascending,
// then their k weights, then, where groups are built, the k indices of its rows in them.
struct ExpertChoice {
  float* rows = nullptr;
  std::int64_t stride = 0;
  int active = 0;  // k
};

inline constexpr int kMostExperts = 1024;

// softmax(logits), the k largest, ties to the lower number; weights are p, or p divided by the sum
// of the chosen (docs/numerics.md). A row that is not finite is reported.
struct RouteArguments {
  ExpertChoice rows;  // logits [T][E], overwritten
  std::int64_t tokens = 0;
  int experts = 0;  // E <= kMostExperts, 2 k <= stride
  bool normalized = false;
  Fault fault;
};
void launch_route(const RouteArguments& a, rt::Stream& stream);
// A single expert for all rows: weights [T] = sigmoid(logit), in place.
void launch_route_by_sigmoid(const FloatRows& logits, std::int64_t tokens, const Fault& fault,
                             rt::Stream& stream);

// The groups of a step: [E + 1] each, expert e has rows first[e] to first[e + 1] - 1 and tiles
// tiles[e] to tiles[e + 1] - 1 of kExpertTile of them.
inline constexpr int kExpertTile = 64;
struct ExpertGroups {
  std::int32_t* first = nullptr;
  std::int32_t* tiles = nullptr;
  int experts = 0;  // E
};
// Builds the groups and the indices of rows [R] in them, ascending within an expert.
struct GroupRowsArguments {
  ExpertChoice choice;  // 3 k <= stride
  std::int64_t rows = 0;
  ExpertGroups groups;
};
void launch_group_rows(const GroupRowsArguments& a, rt::Stream& stream);
// grouped [R] = x [T], each row at its index in the groups.
struct GroupInputsArguments {
  CodeRows x, grouped;  // of one format
  ExpertChoice choice;
  std::int64_t rows = 0;
};
void launch_group_inputs(const GroupInputsArguments& a, rt::Stream& stream);

// out [R] = the linear of each row's expert.
struct ExpertMatmul {
  IntMatmul matmul;                       // shapes and formats of all; x and out
  const CodeSegment* segments = nullptr;  // [E][matmul.segment_count]
  ExpertChoice choice;
  std::int64_t rows = 0;       // R
  bool has_row_each = false;   // x has R rows; else T
  bool in_groups = false;      // x has R rows; those of x and out are in groups
  std::int64_t first_row = 0;  // of a launch
};
void launch_expert_matmul(const ExpertMatmul& a, rt::Stream& stream);
// The same on tensor cores, with rows of x and of out in groups: bit-identical.
bool has_expert_gemm(const IntMatmul& a);
void launch_expert_gemm(const ExpertMatmul& a, const ExpertGroups& groups, rt::Stream& stream);

// x [T][W] += weight * products [T k][W], in sequence. `weights`, `places`: of token 0, in rows of
// `stride`; places null: products are in the order of tokens.
struct AddExpertsArguments {
  FloatRows x, products;
  const float* weights = nullptr;
  const std::int32_t* places = nullptr;
  std::int64_t stride = 0;
  std::int64_t tokens = 0, width = 0;
  int active = 0;  // k
};
void launch_add_experts(const AddExpertsArguments& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU

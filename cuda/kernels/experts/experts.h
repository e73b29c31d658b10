// Experts on the device: the router's choice, the linears of the chosen experts, and the weighted
// sum. There are T tokens, E experts, k chosen for each token, and R = T k rows. Row t k + i is
// token t for its expert number i in ascending order, so that the host need not read the choice. In
// steps of many rows, rows are reordered so that the rows of an expert are contiguous.
#pragma once

#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

inline constexpr int kMaxExperts = 1024;

// p = softmax(logits); the k largest are chosen, of equal ones the lowest numbers. Weights are p,
// or p divided by the sum of the chosen p (docs/numerics.md). The weight of a shared expert is the
// sigmoid of logit E. A non-finite row is reported.
struct RoutedLinear {
  // f32 weights; logits [T][E], or [T][E + 1] with a shared expert, overwritten by ExpertChoice
  FloatMatmul matmul;
  int active = 0;   // k
  int experts = 0;  // E <= kMaxExperts, 2 k <= stride; 3 k < stride with a shared expert
  bool normalized = false, has_shared = false;
  Fault fault;
  unsigned* tickets = nullptr;         // kTickets zeros, as those of OutputCodes
  bool sigmoid = false;                // p = sigmoid(logits), not softmax
  const float* choice_bias = nullptr;  // [E], added to p to choose; null: none
  float sum_offset = 0;                // added to the sum by which weights are divided
  float weight_scale = 1;
  const float* scales = nullptr;  // [E] factors on weights; null: none
};
void launch_route(const RoutedLinear& a, rt::Stream& stream);

// The groups of a step, as arrays of E + 1: expert e has rows first[e] ... first[e + 1] - 1 and
// tiles tiles[e] ... tiles[e + 1] - 1 of tile_rows rows.
inline constexpr int kSmallExpertTile = 16, kExpertTile = 64;
struct ExpertGroups {
  std::int32_t* first = nullptr;
  std::int32_t* tiles = nullptr;
  int experts = 0;  // E
  int tile_rows = kExpertTile;
};
// Small tiles waste fewer products on missing rows, large ones read weights less often.
constexpr int expert_tile_rows(std::int64_t rows, int experts) {
  return rows <= std::int64_t{kSmallExpertTile} * experts ? kSmallExpertTile : kExpertTile;
}
// Builds the groups and each row's index in them; rows of an expert keep their order.
struct GroupRowsArguments {
  ExpertChoice choice;  // 3 k <= stride
  std::int64_t rows = 0;
  ExpertGroups groups;
};
void launch_group_rows(const GroupRowsArguments& a, rt::Stream& stream);
// Copies each row of x [T] to its index in the groups: grouped [R].
struct GroupInputsArguments {
  CodeRows x, grouped;  // both of one format
  ExpertChoice choice;
  std::int64_t rows = 0;
};
void launch_group_inputs(const GroupInputsArguments& a, rt::Stream& stream);

// out [R] = the linear of each row's expert, applied to the row.
struct ExpertMatmul {
  IntMatmul matmul;                       // x, out, and the shapes and formats of all experts
  const CodeSegment* segments = nullptr;  // [E][matmul.segment_count]
  ExpertChoice choice;
  std::int64_t rows = 0;       // R
  bool has_row_each = false;   // true: x has R rows; false: T rows
  bool in_groups = false;      // x has R rows; rows of x and of out are in groups
  std::int64_t first_row = 0;  // the launch's first row
  // Used if adds(*this): the last block that computes some columns of a token adds these. The
  // tickets are those of OutputCodes.
  AddExpertsArguments add;
  unsigned* add_tickets = nullptr;  // null: the products are not added
};
void launch_expert_matmul(const ExpertMatmul& a, rt::Stream& stream);
// Returns whether launch_expert_matmul can quantize its outputs (matmul.codes).
bool makes_codes(const ExpertMatmul& a);
// Returns whether launch_expert_matmul can add the products.
bool adds(const ExpertMatmul& a);
// Computes ExpertMatmul on tensor cores, with rows of x and out in groups; bit-identical results.
bool has_expert_gemm(const IntMatmul& a);
void launch_expert_gemm(const ExpertMatmul& a, const ExpertGroups& groups, rt::Stream& stream);

}  // namespace leq::LEQ_GPU

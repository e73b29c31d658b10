// Programs that run exported ONNX graphs, and the limitations of each program.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "export/onnx_model.h"
#include "model/open_model.h"

namespace leq {

struct ExportTarget {
  std::string_view name;
  bool contrib = false;          // uses MatMulNBits and GroupQueryAttention of com.microsoft
  bool float_embedding = false;  // rows are looked up in f32, not in codes
  bool dynamic_inputs =
      true;  // inputs of linears may be quantized with scales that are computed in the graph
  bool zero_points = true;            // codes with zero points are supported
  bool grouped_int8 = true;           // 8-bit weights may have scales per group
  bool one_scale = false;             // 8-bit weights need one scale for the whole weight
  bool static_inputs_only = false;    // all linears of layers need inputs with a stored scale
  bool fixed_shape = false;           // no dynamic sizes: one sequence of fixed length, no past
  std::vector<int> int4_blocks = {};  // block sizes of 4-bit weights; empty: unsupported
  std::vector<std::string_view> operators = {};  // all supported operators; empty: not checked
};

std::span<const ExportTarget> export_targets();
// Throws Error naming the unknown target and listing the known ones.
const ExportTarget& find_export_target(std::string_view name);

// Throws Error naming the first tensor that the target does not support, and a type to use.
void check_export_target(const Model& model, const ExportTarget& target, bool quantized_inputs);
// Performs these checks on the finished graph: operators and dynamic sizes.
void check_graph_operators(const OnnxModel& graph, const ExportTarget& target);

}  // namespace leq

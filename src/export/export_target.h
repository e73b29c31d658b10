// Programs that run exported ONNX graphs, and the limits of each.
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
  bool contrib = false;          // MatMulNBits and GroupQueryAttention of com.microsoft
  bool float_embedding = false;  // rows are looked up in f32, not among codes
  bool dynamic_inputs =
      true;                  // inputs of linears may be quantized with scales computed in the graph
  bool zero_points = true;   // codes with zero points are supported
  bool grouped_int8 = true;  // 8-bit weights may have scales of groups
  bool one_scale = false;    // 8-bit weights need a single scale for a whole weight
  bool static_inputs_only = false;    // every linear of a layer has inputs with a stored scale
  bool fixed_shape = false;           // no sizes left open: one sequence of a fixed length, no past
  std::vector<int> int4_blocks = {};  // block sizes of 4-bit weights; empty: no 4 bits
  std::vector<std::string_view> operators = {};  // all that it supports; empty: not checked
};

std::span<const ExportTarget> export_targets();
// Throws Error naming the unknown target and listing the known ones.
const ExportTarget& find_export_target(std::string_view name);

// Throws Error naming the first tensor that the target lacks support for, and a type to use.
void check_export_target(const Model& model, const ExportTarget& target, bool quantized_inputs);
// The same checks on the finished graph: operators and dynamic sizes.
void check_graph_operators(const OnnxModel& graph, const ExportTarget& target);

}  // namespace leq

// Linears and embeddings of a .leq file as nodes of an ONNX graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "export/export_target.h"
#include "export/graph_builder.h"
#include "format/leq_reader.h"
#include "model/linear_sites.h"

namespace leq {

class GraphLinears {
 public:
  // `quantized_inputs`: inputs are quantized as the file says; else they are f32.
  GraphLinears(const LeqReader& file, GraphBuilder& graph, const ExportTarget& target,
               bool quantized_inputs)
      : file_(file), graph_(graph), target_(target), quantized_inputs_(quantized_inputs) {}

  // x [.., K] -> [.., N] of each linear `prefix + name`, in the order of `names`. They read one
  // input: smoothed and quantized once.
  std::vector<Value> outputs(const std::string& prefix, const std::vector<std::string>& names,
                             Value x);
  // The head, whose weight may be that of the embedding.
  Value logits(Value x, bool tied);
  // Rows of a table: ids [..] -> [.., W] f32.
  Value lookup(const std::string& table, const Value& ids);
  // A vector of the file, by its name; "" where it has none.
  Value vector(const std::string& name);

 private:
  const StoredTensor& stored(const std::string& name) const;
  Value quantized(Value x, const StoredTensor& first);
  Value dynamic(const Value& x, std::int64_t columns, std::int64_t group);
  Value multiplied(const Value& x, const StoredTensor& weight, bool is_table);
  Value by_blocks(const Value& x, const StoredTensor& weight);
  Value dequantized(const StoredTensor& weight, bool is_table);
  Value codes_of_table(const StoredTensor& table);

  const LeqReader& file_;
  GraphBuilder& graph_;
  const ExportTarget& target_;
  bool quantized_inputs_;
};

}  // namespace leq

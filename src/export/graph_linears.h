// Linears and embeddings of a .leq file as nodes of an ONNX graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "export/export_target.h"
#include "export/graph_builder.h"
#include "export/weight_codes.h"
#include "format/leq_reader.h"
#include "model/linear_sites.h"

namespace leq {

class GraphLinears {
 public:
  // `quantized_inputs`: inputs are quantized as in the file; otherwise f32. `tokens`: the length of
  // a graph of fixed shape, whose linears multiply [tokens, K] matrices; 0: dynamic sizes.
  GraphLinears(const LeqReader& file, GraphBuilder& graph, const ExportTarget& target,
               bool quantized_inputs, std::int64_t tokens)
      : file_(file),
        graph_(graph),
        target_(target),
        quantized_inputs_(quantized_inputs),
        tokens_(tokens) {}

  // x [.., K] -> [.., N] for each linear `prefix + name`, in the order of `names`. They share one
  // input, which is smoothed and quantized once.
  std::vector<Value> outputs(const std::string& prefix, const std::vector<std::string>& names,
                             Value x);
  // The logits; the head's weight may be that of the embedding.
  Value logits(Value x, bool tied);
  // Looks up rows of a table: ids [..] -> [.., W] f32.
  Value lookup(const std::string& table, const Value& ids);
  // A vector of the file by its name; "" if the file has none.
  Value vector(const std::string& name);

 private:
  const StoredTensor& stored(const std::string& name) const;
  Value input(Value x, const StoredTensor& first);
  Value output(const Value& y, std::int64_t outputs);
  Value quantized(Value x, const StoredTensor& first);
  Value dynamically_quantized(const Value& x, std::int64_t columns, std::int64_t group);
  Value multiplied(const Value& x, const StoredTensor& weight, bool is_table);
  Value matmul_nbits(const Value& x, const StoredTensor& weight);
  Value dequantized(const StoredTensor& weight, bool is_table);
  Value dequantized_table(const StoredTensor& table, const WeightCodes& codes);
  Value float_matrix(const StoredTensor& weight, bool is_table);
  Value as_f32(const Value& x, const WeightView& stored);
  Value codes_of_table(const StoredTensor& table);

  const LeqReader& file_;
  GraphBuilder& graph_;
  const ExportTarget& target_;
  bool quantized_inputs_;
  std::int64_t tokens_;
};

}  // namespace leq

// A decoder as an ONNX graph: model/decoder.h in operators of ai.onnx and, for onnxruntime-genai,
// also of com.microsoft.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "export/export_target.h"
#include "export/graph_builder.h"
#include "export/graph_linears.h"
#include "model/open_model.h"

namespace leq {

struct GraphOptions {
  bool past = true;               // keys and values of earlier positions are inputs and outputs
  bool quantized_inputs = false;  // quantize inputs of linears as in the file
  std::int64_t tokens = 0;        // sequence length of a graph with fixed shape
  std::int64_t context = 0;       // number of positions with rotary frequencies
};

// Inputs: input_ids [B, S], attention_mask [B, P + S] (1: a token, 0: padding), position_ids [B,
// S], past_key_values.I.key and .value [B, H_kv, P, d]; outputs: logits [B, S, V], present.I.key
// and .value [B, H_kv, P + S, d]. Without a past, the tensors with P are absent; a graph of fixed
// shape has only input_ids [1, S].
class DecoderGraph {
 public:
  DecoderGraph(const Model& model, const ExportTarget& target, const GraphOptions& options,
               GraphBuilder& graph);
  void build();

 private:
  // Values shared by all layers.
  struct Shared {
    Value ids, positions, attention_mask;
    Value cosines, sines;                 // [B or 1, 1, S, d/2]; contrib: tables [context, d/2]
    std::map<std::int32_t, Value> masks;  // by window: [B or 1, 1, G S, P + S], added to scores
    Value past_lengths, total_length;     // contrib
  };

  void add_inputs();
  void add_rotary();
  void add_fixed_rotary(const std::vector<float>& inv_freq, float factor, std::int64_t rows);
  void add_lengths();
  Value mask_of(std::int32_t window);
  Value fixed_mask(std::int32_t window);
  Value grouped_mask(const Value& mask);

  Value embedding();
  Value norm(const Value& x, const std::string& name, NormKind kind);
  Value mixer(std::int64_t layer, Value x);
  Value mlp(std::int64_t layer, Value x);

  Value heads_of(const Value& x, std::int64_t heads);
  Value roped(const Value& x);
  Value with_past(std::int64_t layer, const char* part, const Value& x);
  Value attention(std::int64_t layer, Value q, Value k, Value v, std::int32_t window);
  Value contrib_attention(std::int64_t layer, const std::vector<Value>& qkv,
                          const AttentionConfig& attention);
  void add_past_input(std::int64_t layer, const char* part);

  const Model& model_;
  const ModelConfig& config_;
  const ExportTarget& target_;
  GraphOptions options_;
  GraphBuilder& graph_;
  GraphLinears linears_;
  Shared shared_;
};

}  // namespace leq

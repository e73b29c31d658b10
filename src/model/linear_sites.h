// The linear sites of a layer: the places where linears read one input. All that
// works on the linears of a model iterates over its sites: the list of tensors, binding, workspace,
// calibration, folds, quantizing, sharding, plans and synthetic models. A kind of layer lists its
// sites in linear_sites.cpp and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/decoder_parts.h"
#include "model/model_config.h"

namespace leq {

// What the rows of a weight, or the columns of an input, belong to: ranks divide a model by these
// (sharding.h).
enum class Axis : std::uint8_t {
  stream,       // W
  query_heads,  // H d
  kv_heads,     // H_kv d
  mlp,          // F
  vocabulary,   // V
};

struct NormSpec {
  std::string name;        // "attention_norm"
  std::int64_t width = 0;  // of its gain
  NormKind kind = NormKind::rms;
};

struct LinearSpec {
  std::string name;          // "q"
  std::int64_t outputs = 0;  // N
  Axis axis = Axis::stream;  // of its rows
  bool bias = false;
};

struct LinearSite {
  std::string name;  // "qkv"; the same in all layers of a kind
  Sublayer sublayer = Sublayer::mixer;
  std::int64_t inputs = 0;          // K of all its weights
  Axis axis = Axis::stream;         // of the inputs
  std::vector<LinearSpec> weights;  // in the order of the joined outputs
  // The norm of the residual stream that makes the input; nullopt: an operation of the sublayer
  // makes it, each rank its own columns.
  std::optional<NormSpec> norm;
  // The linear of an earlier site whose rows the input's columns are proportional to ("v", "up"),
  // so that a scale of a column can move there; empty: none.
  std::string producer;
  std::vector<NormSpec> head_norms;  // of the outputs, over each head: "q_norm", "k_norm"
};

// In the order of a forward pass.
std::vector<LinearSite> linear_sites(const ModelConfig& config, std::int64_t layer);

}  // namespace leq

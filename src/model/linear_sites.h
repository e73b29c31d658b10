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

// The axis along which ranks divide the rows of a weight, or the columns of an input
// (sharding.h).
enum class Axis : std::uint8_t {
  stream,          // W
  query_heads,     // H d
  kv_heads,        // H_kv d
  mlp,             // F
  vocabulary,      // V
  delta_channels,  // 2 H_k d_k + H_v d_v: q, k and v of Gated DeltaNet, each in its heads
  delta_values,    // H_v d_v
  whole,           // every rank has all of it: a router's outputs
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
  // A few rows that are never quantized: a router, gates. Stored in f32; they read the rows of the
  // site before these are quantized.
  bool exact = false;
  double share = 1;  // of a step's rows that meet it, where a router decides: k / E
};

// Numbers beside the linears that an operation of the sublayer computes with: stored in f32.
struct VectorSpec {
  std::string name;  // "delta_conv"
  std::int64_t count = 0;
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
  std::vector<NormSpec> head_norms;      // of the outputs, over each head: "q_norm", "k_norm"
  std::vector<VectorSpec> vectors = {};  // that the operation after the linears computes with
  // The name that sites with one block of activations share, "experts.down": they are adjacent,
  // none reads another's output, and their inputs have one format. Empty: the site is alone.
  std::string block = {};

  const std::string& block_name() const { return block.empty() ? name : block; }
  double share() const;  // of a step's rows that it sees
  // Those that are quantized.
  std::vector<LinearSpec> coded_weights() const;
};

// Parts of a layer with experts: "experts.3.gate", "shared.up".
std::string expert_part(std::int64_t expert, std::string_view part);

// In the order of a forward pass.
std::vector<LinearSite> linear_sites(const ModelConfig& config, std::int64_t layer);

}  // namespace leq

// Writes small models as GGUF files: an imported checkpoint with llama.cpp's names and order of
// rows, and with tensors of any type.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "convert/imported_model.h"
#include "format/gguf_types.h"
#include "format/gguf_writer.h"

namespace leq::test {

// Adds a byte tokenizer of printable letters, like RandomCheckpoint's, followed by an end token.
inline void add_letters(GgufWriter& writer) {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  for (int i = 0; i < 94; ++i) {
    tokens.emplace_back(1, static_cast<char>('!' + i));
    types.push_back(1);
  }
  tokens.emplace_back("<|im_end|>");
  types.push_back(3);
  writer.text("tokenizer.ggml.model", "gpt2");
  writer.text("tokenizer.ggml.pre", "gpt-2");
  writer.texts("tokenizer.ggml.tokens", tokens);
  writer.list("tokenizer.ggml.token_type", kI32, types);
  writer.texts("tokenizer.ggml.merges", {});
  writer.u32("tokenizer.ggml.eos_token_id", 94);
}

// Maps leq's names without the ending to llama.cpp's, written by hand.
inline std::string name_in_gguf(const std::string& leq) {
  static const std::map<std::string, std::string> kNames = {{"token_embedding", "token_embd"},
                                                            {"position_embedding", "position_embd"},
                                                            {"final_norm", "output_norm"},
                                                            {"head", "output"},
                                                            {"attention_norm", "attn_norm"},
                                                            {"q", "attn_q"},
                                                            {"k", "attn_k"},
                                                            {"v", "attn_v"},
                                                            {"q_norm", "attn_q_norm"},
                                                            {"k_norm", "attn_k_norm"},
                                                            {"o", "attn_output"},
                                                            {"mlp_norm", "ffn_norm"},
                                                            {"router", "ffn_gate_inp"},
                                                            {"gate", "ffn_gate"},
                                                            {"up", "ffn_up"},
                                                            {"down", "ffn_down"}};
  std::string name = leq, ending = ".weight", block;
  if (name.ends_with(".bias")) {
    ending = ".bias";
    name.resize(name.size() - 5);
  }
  if (name.starts_with("layers.")) {
    const std::size_t end = name.find('.', 7);
    block = "blk." + name.substr(7, end - 7) + ".";
    name = name.substr(end + 1);
  }
  return block + kNames.at(name) + ending;
}

struct Rows {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;
};

// Reorders rows as llama.cpp does: the rows of a head's two halves alternate.
inline Rows paired(const Rows& in, std::int64_t heads) {
  Rows out = in;
  const std::int64_t head = in.rows / heads;
  std::int64_t to = 0;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < head / 2; ++i) {
      for (const std::int64_t from : {h * head + i, h * head + head / 2 + i}) {
        for (std::int64_t k = 0; k < in.columns; ++k) {
          out.values[static_cast<std::size_t>(to * in.columns + k)] =
              in.values[static_cast<std::size_t>(from * in.columns + k)];
        }
        ++to;
      }
    }
  }
  return out;
}

inline Rows rows_of(const TensorInput& tensor) {
  Rows rows = {tensor.shape[0], tensor.shape.size() == 2 ? tensor.shape[1] : 1, {}};
  rows.values.resize(static_cast<std::size_t>(rows.rows * rows.columns));
  tensor.read(0, rows.rows, rows.values);
  return rows;
}

inline std::string f32_bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Adds the keys of one family's configuration.
inline void add_config(GgufWriter& writer, const ModelConfig& config, const std::string& arch) {
  const auto u32 = [&](const std::string& key, std::int64_t value) {
    writer.u32(arch + "." + key, static_cast<std::uint32_t>(value));
  };
  writer.text("general.architecture", arch);
  u32("block_count", config.layer_count());
  u32("embedding_length", config.width);
  u32("context_length", config.context);
  if (arch != "gemma4") u32("feed_forward_length", config.widest_mlp());
  u32("attention.head_count", config.heads);
  const bool two_heads = arch == "gemma4";  // written by the caller
  if (config.kv_heads != config.heads && !two_heads)
    u32("attention.head_count_kv", config.kv_heads);
  for (const LayerConfig& layer : config.layers) {
    const ExpertsMlpConfig* experts = layer.experts_mlp();
    if (experts == nullptr) continue;
    u32("expert_count", experts->experts);
    u32("expert_used_count", experts->active);
    u32("expert_feed_forward_length", experts->hidden);
    break;
  }
  if (!two_heads && (config.head_dim * config.heads != config.width || arch.starts_with("qwen3"))) {
    u32("attention.key_length", config.head_dim);
    u32("attention.value_length", config.head_dim);
  }
  writer.f32(arch + (config.norm == NormKind::rms ? ".attention.layer_norm_rms_epsilon"
                                                  : ".attention.layer_norm_epsilon"),
             config.norm_eps);
  if (!config.ropes().empty()) {  // of two, the second is that of layers without a window
    writer.f32(arch + ".rope.freq_base", static_cast<float>(config.ropes().back().theta));
  }
  if (config.window(0) > 0) {
    u32("attention.sliding_window", config.window(0));
  }
}

// Returns Q8_0 blocks of 32 elements with an f16 scale.
inline std::string q8_0_bytes(const std::vector<float>& values) {
  std::string bytes;
  for (std::size_t first = 0; first < values.size(); first += 32) {
    float largest = 0;
    for (std::size_t i = first; i < first + 32; ++i)
      largest = std::max(largest, std::fabs(values[i]));
    const std::uint16_t half = f32_to_f16(largest / 127);
    bytes += raw(half);
    const float scale = f16_to_f32(half);
    for (std::size_t i = first; i < first + 32; ++i) {
      const float code =
          scale == 0 ? 0 : std::clamp(std::nearbyint(values[i] / scale), -127.0f, 127.0f);
      bytes += raw(static_cast<std::int8_t>(code));
    }
  }
  return bytes;
}

enum class WriteAs : std::uint8_t { f32, q8_0 };  // only matrices of whole blocks
enum class WriteExperts : std::uint8_t { stacked, single };

// Adds all tensors. `pairs`: rows of q and k are in llama.cpp's order for architecture llama.
inline void add_tensors(GgufWriter& writer, const ImportedModel& model, bool pairs,
                        WriteAs as = WriteAs::f32, WriteExperts experts = WriteExperts::stacked) {
  const auto put = [&](const std::string& name, std::vector<std::uint64_t> dims,
                       const std::vector<float>& values) {
    if (as == WriteAs::q8_0 && dims.size() >= 2 && dims[0] % 32 == 0) {
      writer.tensor(name, dims, 8, q8_0_bytes(values));
    } else {
      writer.tensor(name, dims, 0, f32_bytes(values));
    }
  };
  std::map<std::string, std::vector<Rows>> stacks;  // by name, the rows of all experts
  for (const TensorInput& tensor : model.tensors) {
    Rows rows = rows_of(tensor);
    if (const std::size_t at = tensor.name.find(".experts."); at != std::string::npos) {
      const std::string rest = tensor.name.substr(at + 9);  // "3.gate"
      const std::string block = "blk." + tensor.name.substr(7, at - 7) + ".ffn_";
      const std::string part = rest.substr(rest.find('.') + 1);
      if (experts == WriteExperts::stacked) {
        stacks[block + part + "_exps.weight"].push_back(rows);
      } else {
        put(block + part + "." + rest.substr(0, rest.find('.')) + ".weight",
            {static_cast<std::uint64_t>(rows.columns), static_cast<std::uint64_t>(rows.rows)},
            rows.values);
      }
      continue;
    }
    std::string name = name_in_gguf(tensor.name);
    const bool q = name.find(".attn_q.") != std::string::npos;
    const bool k = name.find(".attn_k.") != std::string::npos;
    const bool v = name.find(".attn_v.") != std::string::npos;
    if (pairs && q) rows = paired(rows, model.config.heads);
    if (pairs && k) rows = paired(rows, model.config.kv_heads);
    if (model.config.ropes().empty() && (q || k || v)) {
      static std::map<std::string, Rows> parts;
      const std::string ending = name.substr(name.rfind('.'));
      Rows& all = parts[ending];
      if (q) all = {};
      all.columns = rows.columns;
      all.rows += rows.rows;
      all.values.insert(all.values.end(), rows.values.begin(), rows.values.end());
      if (!v) continue;
      name = name.substr(0, name.find(".attn_v")) + ".attn_qkv" + ending;
      rows = all;
    }
    std::vector<std::uint64_t> dims = {static_cast<std::uint64_t>(rows.rows)};
    if (tensor.shape.size() == 2)
      dims.insert(dims.begin(), static_cast<std::uint64_t>(rows.columns));
    put(name, dims, rows.values);
  }
  for (const auto& [name, stack] : stacks) {
    std::vector<float> values;
    for (const Rows& rows : stack) {
      values.insert(values.end(), rows.values.begin(), rows.values.end());
    }
    put(name,
        {static_cast<std::uint64_t>(stack[0].columns), static_cast<std::uint64_t>(stack[0].rows),
         stack.size()},
        values);
  }
}

}  // namespace leq::test

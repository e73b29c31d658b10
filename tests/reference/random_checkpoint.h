// Writes small Hugging Face checkpoints with random weights to a folder, with shapes and spellings
// that none of the trained models here has.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/random.h"

namespace leq::test {

// Returns config.json for LLaMA-like families: two layers with shapes that do not fill a panel.
inline Json small_config(const std::string& type = "llama",
                         const std::string& architecture = "LlamaForCausalLM", int heads = 6,
                         int kv_heads = 2) {
  return {{"model_type", type},
          {"architectures", {architecture}},
          {"hidden_size", 96},
          {"intermediate_size", 200},
          {"num_hidden_layers", 2},
          {"num_attention_heads", heads},
          {"num_key_value_heads", kv_heads},
          {"vocab_size", 131},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"hidden_act", "silu"}};
}

// The same of a LLaMA with other values for some keys.
inline Json small_config_with(const Json& changes) {
  Json config = small_config();
  config.update(changes);
  return config;
}

class RandomCheckpoint {
 public:
  // by_name: a tensor's numbers are derived from its name, so that another program can compute them
  // (mtp_vectors.py).
  enum class Numbers { normal, by_name };
  explicit RandomCheckpoint(std::filesystem::path folder, std::uint64_t seed = 7,
                            Numbers numbers = Numbers::normal)
      : folder_(std::move(folder)), random_(seed), numbers_(numbers) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  void add(const std::string& name, std::vector<std::int64_t> shape, float scale,
           float offset = 0) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    std::vector<float> values;
    std::uint64_t x = 0xcbf29ce484222325;  // FNV-1a
    for (const char byte : name) x = (x ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    for (std::int64_t i = 0; i < count; ++i) {
      if (numbers_ == Numbers::normal) {
        values.push_back(offset + scale * random_.normal());
        continue;
      }
      x = x * 6364136223846793005 + 1442695040888963407;
      const double u = static_cast<double>(x >> 40) / (1 << 23) - 1;
      values.push_back(static_cast<float>(double{offset} + double{scale} * u));
    }
    add_values(name, std::move(shape), values);
  }

  void add_values(const std::string& name, std::vector<std::int64_t> shape,
                  const std::vector<float>& values) {
    const std::size_t first = data_.size();
    data_.insert(data_.end(), values.begin(), values.end());
    header_[name] = {
        {"dtype", "F32"}, {"shape", shape}, {"data_offsets", {first * 4, data_.size() * 4}}};
  }

  // Returns the numbers of a tensor added before, which the caller may change.
  std::span<float> values_of(const std::string& name) {
    const auto at = header_[name]["data_offsets"].get<std::vector<std::size_t>>();
    return std::span(data_).subspan(at[0] / 4, (at[1] - at[0]) / 4);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, entry] : header_.items()) all.push_back(name);
    return all;
  }

  // Renames every tensor whose name begins with `from` so that it begins with `to`.
  void rename(const std::string& from, const std::string& to) {
    Json renamed = Json::object();
    for (const auto& [name, entry] : header_.items()) {
      renamed[name.starts_with(from) ? to + name.substr(from.size()) : name] = entry;
    }
    header_ = renamed;
  }

  // Adds a LLaMA-like checkpoint in config.json's shape, with the requested biases and norms.
  enum class Experts { none, single, stacked, mixtral };  // how their tensors are spelled
  struct Extras {
    bool qkv_bias = false, o_bias = false, mlp_bias = false, qk_norm = false;
    Experts experts = Experts::none;  // in all layers except mlp_only_layers
  };
  void add_llama(const Json& config, const Extras& extras) {
    const auto width = config.at("hidden_size").get<std::int64_t>();
    const auto heads = config.at("num_attention_heads").get<std::int64_t>();
    const auto kv_heads = config.at("num_key_value_heads").get<std::int64_t>();
    const auto dim = config.value("head_dim", width / heads);
    const auto hidden = config.at("intermediate_size").get<std::int64_t>();
    const auto vocab = config.at("vocab_size").get<std::int64_t>();
    add("model.embed_tokens.weight", {vocab, width}, 1.0f);
    for (int l = 0; l < config.at("num_hidden_layers").get<int>(); ++l) {
      const std::string at = "model.layers." + std::to_string(l) + ".";
      const auto linear = [&](const std::string& name, std::int64_t n, std::int64_t k,
                              bool biased) {
        add(at + name + ".weight", {n, k}, 0.3f / std::sqrt(static_cast<float>(k) / 16.0f));
        if (biased) add(at + name + ".bias", {n}, 0.3f);
      };
      add(at + "input_layernorm.weight", {width}, 0.1f, 1.0f);
      linear("self_attn.q_proj", heads * dim, width, extras.qkv_bias);
      linear("self_attn.k_proj", kv_heads * dim, width, extras.qkv_bias);
      linear("self_attn.v_proj", kv_heads * dim, width, extras.qkv_bias);
      if (extras.qk_norm) {
        add(at + "self_attn.q_norm.weight", {dim}, 0.1f, 1.0f);
        add(at + "self_attn.k_norm.weight", {dim}, 0.1f, 1.0f);
      }
      linear("self_attn.o_proj", width, heads * dim, extras.o_bias);
      add(at + "post_attention_layernorm.weight", {width}, 0.1f, 1.0f);
      if (extras.experts != Experts::none && !is_dense(config, l)) {
        add_experts(config, at, extras.experts);
        continue;
      }
      linear("mlp.gate_proj", hidden, width, extras.mlp_bias);
      linear("mlp.up_proj", hidden, width, extras.mlp_bias);
      linear("mlp.down_proj", width, hidden, extras.mlp_bias);
    }
    add("model.norm.weight", {width}, 0.1f, 1.0f);
    if (!config.value("tie_word_embeddings", false)) add("lm_head.weight", {vocab, width}, 0.3f);
  }

  // Adds tensors like Qwen 3.5's: Gated DeltaNet except in every fourth layer (or another
  // interval); experts, if any, are in all layers with a shared one.
  void add_qwen3_5(const Json& config, Experts spelling, int attention_interval = 4) {
    const auto get = [&](const char* key) { return config.at(key).get<std::int64_t>(); };
    const std::int64_t width = get("hidden_size");
    const std::int64_t keys = get("linear_num_key_heads") * get("linear_key_head_dim");
    const std::int64_t value_heads = get("linear_num_value_heads");
    const std::int64_t values = value_heads * get("linear_value_head_dim");
    add("model.embed_tokens.weight", {get("vocab_size"), width}, 1.0f);
    for (int l = 0; l < get("num_hidden_layers"); ++l) {
      const std::string at = "model.layers." + std::to_string(l) + ".";
      const auto linear = [&](const std::string& name, std::int64_t n, std::int64_t k) {
        add(at + name + ".weight", {n, k}, 0.3f / std::sqrt(static_cast<float>(k) / 16.0f));
      };
      add(at + "input_layernorm.weight", {width}, 0.1f);
      if ((l + 1) % attention_interval == 0) {
        add_gated_attention(config, at);
      } else {
        linear("linear_attn.in_proj_qkv", 2 * keys + values, width);
        linear("linear_attn.in_proj_z", values, width);
        linear("linear_attn.in_proj_b", value_heads, width);
        linear("linear_attn.in_proj_a", value_heads, width);
        add(at + "linear_attn.conv1d.weight", {2 * keys + values, 1, 4}, 0.5f);
        add(at + "linear_attn.A_log", {value_heads}, 0.5f);
        add(at + "linear_attn.dt_bias", {value_heads}, 0.5f);
        add(at + "linear_attn.norm.weight", {get("linear_value_head_dim")}, 0.1f, 1.0f);
        linear("linear_attn.out_proj", width, values);
      }
      add(at + "post_attention_layernorm.weight", {width}, 0.1f);
      if (spelling == Experts::none) {
        add_gated_mlp(config, at);
        continue;
      }
      const std::int64_t shared = get("shared_expert_intermediate_size");
      add_experts(config, at, spelling);
      linear("mlp.shared_expert.gate_proj", shared, width);
      linear("mlp.shared_expert.up_proj", shared, width);
      linear("mlp.shared_expert.down_proj", width, shared);
      linear("mlp.shared_expert_gate", 1, width);
    }
    add("model.norm.weight", {width}, 0.1f);
    add("lm_head.weight", {get("vocab_size"), width}, 0.3f);
  }

  // Adds tensors like LFM2's: attention in the layers of full_attn_idxs, short convolutions of 3
  // taps in others.
  void add_lfm2(const Json& config) {
    const auto get = [&](const char* key) { return config.at(key).get<std::int64_t>(); };
    const std::int64_t width = get("hidden_size"), hidden = get("intermediate_size");
    const std::int64_t dim = width / get("num_attention_heads");
    const std::int64_t keys = dim * get("num_key_value_heads");
    add("model.embed_tokens.weight", {get("vocab_size"), width}, 1.0f);
    for (int l = 0; l < get("num_hidden_layers"); ++l) {
      const std::string at = "model.layers." + std::to_string(l) + ".";
      add(at + "operator_norm.weight", {width}, 0.1f, 1.0f);
      const auto full = config.at("full_attn_idxs").get<std::vector<int>>();
      if (std::find(full.begin(), full.end(), l) != full.end()) {
        add_linear(at + "self_attn.q_proj", width, width);
        add_linear(at + "self_attn.k_proj", keys, width);
        add_linear(at + "self_attn.v_proj", keys, width);
        add_linear(at + "self_attn.out_proj", width, width);
        add(at + "self_attn.q_layernorm.weight", {dim}, 0.1f, 1.0f);
        add(at + "self_attn.k_layernorm.weight", {dim}, 0.1f, 1.0f);
      } else {
        add_linear(at + "conv.in_proj", 3 * width, width);
        add(at + "conv.conv.weight", {width, 1, 3}, 0.5f);
        add_linear(at + "conv.out_proj", width, width);
      }
      add(at + "ffn_norm.weight", {width}, 0.1f, 1.0f);
      add_linear(at + "feed_forward.w1", hidden, width);
      add_linear(at + "feed_forward.w3", hidden, width);
      add_linear(at + "feed_forward.w2", width, hidden);
    }
    add("model.embedding_norm.weight", {width}, 0.1f, 1.0f);
  }

  // Adds a multi-token prediction head like Qwen 3.5's, with a dense MLP.
  void add_mtp(const Json& config) {
    const auto width = config.at("hidden_size").get<std::int64_t>();
    const std::string at = "mtp.layers.0.";
    for (const char* norm : {"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"}) {
      add("mtp." + std::string(norm) + ".weight", {width}, 0.1f);
    }
    add_linear("mtp.fc", width, 2 * width);
    add(at + "input_layernorm.weight", {width}, 0.1f);
    add_gated_attention(config, at);
    add(at + "post_attention_layernorm.weight", {width}, 0.1f);
    add_gated_mlp(config, at);
  }

  void add_linear(const std::string& name, std::int64_t n, std::int64_t k) {
    add(name + ".weight", {n, k}, 0.3f / std::sqrt(static_cast<float>(k) / 16.0f));
  }

  // Adds attention as in Qwen 3.5, with a gate for each query.
  void add_gated_attention(const Json& config, const std::string& at) {
    const auto get = [&](const char* key) { return config.at(key).get<std::int64_t>(); };
    const std::int64_t width = get("hidden_size"), dim = get("head_dim");
    const std::int64_t heads = get("num_attention_heads"), kv_heads = get("num_key_value_heads");
    add_linear(at + "self_attn.q_proj", 2 * heads * dim, width);
    add_linear(at + "self_attn.k_proj", kv_heads * dim, width);
    add_linear(at + "self_attn.v_proj", kv_heads * dim, width);
    add(at + "self_attn.q_norm.weight", {dim}, 0.1f);
    add(at + "self_attn.k_norm.weight", {dim}, 0.1f);
    add_linear(at + "self_attn.o_proj", width, heads * dim);
  }

  void add_gated_mlp(const Json& config, const std::string& at) {
    const auto width = config.at("hidden_size").get<std::int64_t>();
    const auto hidden = config.at("intermediate_size").get<std::int64_t>();
    add_linear(at + "mlp.gate_proj", hidden, width);
    add_linear(at + "mlp.up_proj", hidden, width);
    add_linear(at + "mlp.down_proj", width, hidden);
  }

  static bool is_dense(const Json& config, int layer) {
    if (!config.contains("mlp_only_layers")) return false;
    const auto dense = config.at("mlp_only_layers").get<std::vector<int>>();
    return std::find(dense.begin(), dense.end(), layer) != dense.end();
  }

  // Adds experts, with the same numbers in every spelling.
  void add_experts(const Json& config, const std::string& at, Experts spelling) {
    const bool mixtral = spelling == Experts::mixtral;
    const auto width = config.at("hidden_size").get<std::int64_t>();
    const auto hidden =
        config.value("moe_intermediate_size", config.at("intermediate_size")).get<std::int64_t>();
    const auto count = config.at("num_local_experts").get<std::int64_t>();
    const auto numbers = [&](std::int64_t n, std::int64_t k) {
      std::vector<float> values;
      const float scale = 0.3f / std::sqrt(static_cast<float>(k) / 16.0f);
      for (std::int64_t i = 0; i < n * k; ++i) values.push_back(scale * random_.normal());
      return values;
    };
    add_values(at + (mixtral ? "block_sparse_moe.gate.weight" : "mlp.gate.weight"), {count, width},
               numbers(count, width));
    std::vector<float> gate_up, downs;
    for (std::int64_t e = 0; e < count; ++e) {
      const auto gate = numbers(hidden, width), up = numbers(hidden, width),
                 down = numbers(width, hidden);
      gate_up.insert(gate_up.end(), gate.begin(), gate.end());
      gate_up.insert(gate_up.end(), up.begin(), up.end());
      downs.insert(downs.end(), down.begin(), down.end());
      if (spelling == Experts::stacked) continue;
      const std::string of =
          at + (mixtral ? "block_sparse_moe" : "mlp") + ".experts." + std::to_string(e) + ".";
      add_values(of + (mixtral ? "w1" : "gate_proj") + ".weight", {hidden, width}, gate);
      add_values(of + (mixtral ? "w3" : "up_proj") + ".weight", {hidden, width}, up);
      add_values(of + (mixtral ? "w2" : "down_proj") + ".weight", {width, hidden}, down);
    }
    if (spelling != Experts::stacked) return;
    add_values(at + "mlp.experts.gate_up_proj", {count, 2 * hidden, width}, gate_up);
    add_values(at + "mlp.experts.down_proj", {count, width, hidden}, downs);
  }

  void add_gpt2(const Json& config, const std::string& prefix) {
    const auto width = config.at("n_embd").get<std::int64_t>();
    add(prefix + "wte.weight", {config.at("vocab_size").get<std::int64_t>(), width}, 0.5f);
    add(prefix + "wpe.weight", {config.at("n_positions").get<std::int64_t>(), width}, 0.5f);
    for (int l = 0; l < config.at("n_layer").get<int>(); ++l) {
      const std::string at = prefix + "h." + std::to_string(l) + ".";
      const auto linear = [&](const std::string& name, std::int64_t n, std::int64_t k) {
        add(at + name + ".weight", {k, n}, 0.3f / std::sqrt(static_cast<float>(k) / 16.0f));
        add(at + name + ".bias", {n}, 0.3f);
      };
      const auto norm = [&](const std::string& name) {
        add(at + name + ".weight", {width}, 0.1f, 1.0f);
        add(at + name + ".bias", {width}, 0.1f);
      };
      norm("ln_1");
      linear("attn.c_attn", 3 * width, width);
      linear("attn.c_proj", width, width);
      norm("ln_2");
      linear("mlp.c_fc", config.value("n_inner", 4 * width), width);
      linear("mlp.c_proj", width, config.value("n_inner", 4 * width));
    }
    add(prefix + "ln_f.weight", {width}, 0.1f, 1.0f);
    add(prefix + "ln_f.bias", {width}, 0.1f);
    if (!config.value("tie_word_embeddings", true)) {
      add("lm_head.weight", {config.at("vocab_size").get<std::int64_t>(), width}, 0.3f);
    }
  }

  // Writes config.json, model.safetensors and a tokenizer of 256 bytes; returns the folder.
  std::filesystem::path write(const Json& config) {
    std::ofstream(folder_ / "config.json") << config.dump(2);
    const std::string header = header_.dump();
    const std::uint64_t bytes = header.size();
    std::ofstream file(folder_ / "model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&bytes), 8);
    file << header;
    file.write(reinterpret_cast<const char*>(data_.data()),
               static_cast<std::streamsize>(data_.size() * 4));
    Json vocab = Json::object();
    for (int i = 0; i < 94; ++i) vocab[std::string(1, static_cast<char>('!' + i))] = i;
    std::ofstream(folder_ / "vocab.json") << vocab.dump();
    std::ofstream(folder_ / "merges.txt") << "#version: 0.2\n";
    return folder_;
  }

 private:
  std::filesystem::path folder_;
  Random random_;
  Numbers numbers_;
  Json header_ = Json::object();
  std::vector<float> data_;
};

}  // namespace leq::test

// Hybrids, experts and Ministral 3 in GGUF: seeded checkpoints, written to GGUF as llama.cpp's
// converter does, must compute the same as transformers does with the checkpoint.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/random.h"
#include "convert/gguf_import.h"
#include "engine/engine.h"
#include "convert/gguf_models.h"
#include "convert/hf_import.h"
#include "errors.h"
#include "format/gguf_source.h"
#include "reference/family_golden.h"
#include "reference/small_hybrid.h"

namespace leq {
namespace {

using test::GgufWriter;

struct Written {
  std::string arch;
  bool tiled = false;       // value heads interleaved across key heads
  bool fused = false;       // gate and up of all experts in one tensor
  bool joined = false;      // b and a in one tensor
  bool pairs = false;       // q and k in rotary pairs
  std::int64_t drafts = 0;  // number of multi-token prediction layers
  bool phi = false;         // q, k, v and gate, up are joined
  std::int64_t period = 0;  // of layers without a window; 0: a flag for each layer
  bool k_out = false;       // delta_out in blocks of Q4_K with random codes
  bool ollama = false;      // Ollama's names and keys, and its tensors of other models
  test::WriteAs as = test::WriteAs::f32;
};

// The factors of the checkpoint tests/golden/families/granite, which leq folds into others.
constexpr double kEmbeddings = 0.5, kQueries = 0.35, kOutputs = 0.7, kLogits = 3;

// Names of tensors in leq and in llama.cpp, written by hand.
const std::map<std::string, std::string> kNames = {
    {"attention_norm", "attn_norm.weight"},
    {"attention_sinks", "attn_sinks.weight"},
    {"delta_in_norm", "attn_norm.weight"},
    {"k", "attn_k.weight"},
    {"v", "attn_v.weight"},
    {"q_norm", "attn_q_norm.weight"},
    {"k_norm", "attn_k_norm.weight"},
    {"o", "attn_output.weight"},
    {"attention_gate", "attn_gate.weight"},
    {"attention_post_norm", "post_attention_norm.weight"},
    {"mlp_post_norm", "post_ffw_norm.weight"},
    {"joined_post_norm", "post_ffw_norm.weight"},
    {"experts_norm", "pre_ffw_norm_2.weight"},
    {"experts_post_norm", "post_ffw_norm_2.weight"},
    {"router_norm", "ffn_gate_inp.scale"},
    {"router_scales", "ffn_down_exps.scale"},
    {"layer_scale", "layer_output_scale.weight"},
    {"input_gate", "inp_gate.weight"},
    {"input_projection", "proj.weight"},
    {"input_post_norm", "post_norm.weight"},
    {"delta_qkv", "attn_qkv.weight"},
    {"delta_z", "attn_gate.weight"},
    {"delta_b", "ssm_beta.weight"},
    {"delta_a", "ssm_alpha.weight"},
    {"delta_conv", "ssm_conv1d.weight"},
    {"delta_a_log", "ssm_a"},
    {"delta_dt_bias", "ssm_dt.bias"},
    {"delta_norm", "ssm_norm.weight"},
    {"delta_out", "ssm_out.weight"},
    {"conv_in_norm", "attn_norm.weight"},
    {"conv_out", "shortconv.out_proj.weight"},
    {"router", "ffn_gate_inp.weight"},
    {"choice_bias", "exp_probs_b.bias"},
    {"shared_gate", "ffn_gate_inp_shexp.weight"},
    {"shared.gate", "ffn_gate_shexp.weight"},
    {"shared.up", "ffn_up_shexp.weight"},
    {"shared.down", "ffn_down_shexp.weight"},
    {"gate", "ffn_gate.weight"},
    {"up", "ffn_up.weight"},
    {"down", "ffn_down.weight"}};

class Converter {
 public:
  Converter(const ImportedModel& model, const Written& how) : model_(model), how_(how) {
    for (const TensorInput& tensor : model.tensors) tensors_[tensor.name] = test::rows_of(tensor);
  }

  std::string bytes() {
    add_keys();
    test::add_letters(writer_);
    put("token_embd.weight", tensors_.at("token_embedding"));
    if (is_granite()) {
      for (float& gain : tensors_.at("final_norm").values) gain *= static_cast<float>(kLogits);
    }
    put(is_lfm2() ? "token_embd_norm.weight" : "output_norm.weight", tensors_.at("final_norm"));
    if (model_.config.layer_input > 0) {
      put("per_layer_token_embd.weight", tensors_.at("layer_embedding"));
      put("per_layer_model_proj.weight", tensors_.at("layer_projection"));
      put("per_layer_proj_norm.weight", tensors_.at("layer_projection_norm"));
    }
    if (!model_.config.tied) put("output.weight", tensors_.at("head"));
    if (model_.config.embedding_projection) add_dense();
    for (std::int64_t layer = 0; layer < model_.config.layer_count(); ++layer) add_layer(layer);
    for (std::int64_t i = 0; i < how_.drafts; ++i) {
      const std::string at = "blk." + std::to_string(model_.config.layer_count() + i) + ".";
      put(at + "attn_k.weight", tensors_.at("token_embedding"));
      put(at + "nextn.eh_proj.weight", tensors_.at("token_embedding"));
    }
    if (how_.ollama) {
      for (const char* name : {"v.blk.0.attn_q.weight", "v.patch_embed.weight", "mm.0.weight",
                               "mtp.layers.0.attn_k.weight", "mtp.fc.weight"}) {
        put(name, tensors_.at("token_embedding"));
      }
    }
    return writer_.bytes();
  }

 private:
  void u32(const std::string& key, std::int64_t value) {
    writer_.u32(how_.arch + "." + key, static_cast<std::uint32_t>(value));
  }

  void add_keys() {
    const ModelConfig& config = model_.config;
    ModelConfig written = config;
    written.layers.resize(config.layers.size() + static_cast<std::size_t>(how_.drafts));
    if (how_.ollama || is_lfm2()) written.kv_heads = written.heads;  // writes no key
    if (is_granite()) {
      written.norm_eps = static_cast<float>(double{config.norm_eps} * kOutputs * kOutputs);
      writer_.f32("granite.attention.scale", static_cast<float>(kQueries));
      writer_.f32("granite.embedding_scale", static_cast<float>(kEmbeddings));
      writer_.f32("granite.residual_scale", static_cast<float>(kOutputs));
      writer_.f32("granite.logit_scale", static_cast<float>(kLogits));
    }
    for (LayerConfig& layer : written.layers) {  // files have the width of both directions
      AttentionConfig* attention = layer.attention();
      const bool wide = attention != nullptr && attention->both_ways && attention->window > 0;
      if (wide) attention->window = 2 * (attention->window - 1);
    }
    test::add_config(writer_, written, how_.arch);
    if (how_.drafts > 0) u32("nextn_predict_layers", how_.drafts);
    if (how_.ollama || is_lfm2()) {
      std::vector<std::uint32_t> heads;  // 0 in layers without attention
      for (std::int64_t i = 0; i < config.layer_count(); ++i) {
        const bool attends = config.layer(i).attention() != nullptr;
        heads.push_back(attends ? static_cast<std::uint32_t>(config.kv_heads) : 0);
      }
      writer_.list(how_.arch + ".attention.head_count_kv", test::kU32, heads);
    }
    if (is_lfm2()) u32("shortconv.l_cache", config.layer(0).short_conv()->taps);
    if (const ExpertsMlpConfig* of_lfm2 = config.layers.back().experts_mlp();
        of_lfm2 != nullptr && of_lfm2->sigmoid) {
      u32("expert_gating_func", 2);
      writer_.f32(how_.arch + ".expert_weights_scale", static_cast<float>(of_lfm2->weight_scale));
    }
    if (how_.ollama) {
      writer_.flag(how_.arch + ".ssm.v_head_reordered", how_.tiled);
      u32("vision.block_count", 1);
    }
    if (how_.arch == "gemma4") return add_gemma4_keys();
    u32("rope.dimension_count", config.rope_dims(config.ropes().at(0)));
    const ExpertsMlpConfig* experts = config.layer(0).experts_mlp();
    if (experts != nullptr && experts->shared_hidden > 0) {
      u32("expert_shared_feed_forward_length", experts->shared_hidden);
    }
    if (const DeltaNetConfig* delta = config.delta_net()) {
      u32("ssm.conv_kernel", delta->conv_taps);
      u32("ssm.state_size", delta->key_dim);
      u32("ssm.group_count", delta->key_heads);
      u32("ssm.time_step_rank", delta->value_heads);
      u32("ssm.inner_size", delta->values());
      u32("full_attention_interval", 4);
    }
    if (config.logit_cap.cap > 0) {
      writer_.f32(how_.arch + ".logit_scale", static_cast<float>(config.logit_cap.scale));
      writer_.f32(how_.arch + ".final_logit_softcapping", static_cast<float>(config.logit_cap.cap));
    }
    if (config.post_norm_eps > 0) add_pattern();
    const RopeScaling scaling = config.ropes().back().scaling;
    if (scaling.kind == RopeScalingKind::none) return;
    const std::string rope = how_.arch + ".rope.scaling.";
    if (scaling.kind == RopeScalingKind::longrope) {
      u32("rope.scaling.original_context_length", scaling.original_context);
      const double stretch = std::log(scaling.factor) / std::log(scaling.original_context);
      writer_.f32(rope + "attn_factor", static_cast<float>(std::sqrt(1 + stretch)));
      const auto put_factors = [&](const std::string& name, const std::vector<double>& factors) {
        put(name, {factors.size()}, std::vector<float>(factors.begin(), factors.end()));
      };
      put_factors("rope_factors_long.weight", scaling.long_factor);
      put_factors("rope_factors_short.weight", scaling.short_factor);
      return;
    }
    writer_.text(rope + "type", rope_scaling_name(scaling.kind));
    writer_.f32(rope + "factor", static_cast<float>(scaling.factor));
    if (scaling.kind != RopeScalingKind::yarn) return;
    u32("rope.scaling.original_context_length", scaling.original_context);
    writer_.f32(rope + "yarn_beta_fast", static_cast<float>(scaling.beta_fast));
    writer_.f32(rope + "yarn_beta_slow", static_cast<float>(scaling.beta_slow));
    writer_.f32(rope + "yarn_log_multiplier", static_cast<float>(scaling.mscale_all_dim));
    writer_.f32(how_.arch + ".attention.temperature_scale",
                static_cast<float>(config.temperature().beta));
  }

  void add_gemma4_keys() {
    const ModelConfig& config = model_.config;
    const RopeConfig near = config.ropes().at(0);
    const std::int64_t wide = config.ropes().at(1).dims;
    std::vector<std::uint32_t> heads;
    for (const LayerConfig& layer : config.layers) {
      heads.push_back(static_cast<std::uint32_t>(config.kv_heads_of(*layer.attention()).count));
    }
    writer_.list("gemma4.attention.head_count_kv", test::kU32, heads);
    for (const std::string part : {"attention.key_length", "attention.value_length"}) {
      u32(part, wide);
      u32(part + "_swa", config.head_dim);
    }
    u32("rope.dimension_count", wide);
    u32("rope.dimension_count_swa", config.head_dim);
    const std::int64_t shared =
        std::ssize(config.attention_layers()) - std::ssize(config.cache_layers());
    u32("attention.shared_kv_layers", shared);
    u32("embedding_length_per_layer_input", config.layer_input);
    std::vector<std::uint32_t> hidden;
    for (const LayerConfig& layer : config.layers) {
      const ExpertsMlpConfig* experts = layer.experts_mlp();
      const std::int64_t width = experts ? experts->dense_hidden : layer.dense_mlp()->hidden;
      hidden.push_back(static_cast<std::uint32_t>(width));
    }
    if (shared > 0) {
      writer_.list("gemma4.feed_forward_length", test::kU32, hidden);
    } else {
      u32("feed_forward_length", hidden[0]);
    }
    writer_.f32("gemma4.rope.freq_base_swa", static_cast<float>(near.theta));
    writer_.f32("gemma4.final_logit_softcapping", static_cast<float>(config.logit_cap.cap));
    std::vector<float> divisors(static_cast<std::size_t>(wide / 2), 1e30f);
    std::fill_n(divisors.begin(), wide / 8, 1.0f);  // a quarter of the pairs rotates
    put("rope_freqs.weight", {divisors.size()}, divisors);
    add_pattern();
  }

  bool is_granite() const { return how_.arch == "granite"; }
  bool is_lfm2() const { return how_.arch.starts_with("lfm2"); }

  void add_pattern() {
    const ModelConfig& config = model_.config;
    const std::string pattern = how_.arch + ".attention.sliding_window_pattern";
    std::vector<std::uint8_t> near;
    for (std::int64_t i = 0; i < config.layer_count(); ++i) near.push_back(config.window(i) > 0);
    if (how_.period == 0) {
      writer_.list(pattern, test::kBool, near);
    } else {
      writer_.u32(pattern, static_cast<std::uint32_t>(how_.period));
    }
  }

  // Two matrices with the projection as their product.
  void add_dense() {
    const auto width = static_cast<std::uint64_t>(model_.config.width);
    std::vector<float> identity(width * width);
    for (std::size_t i = 0; i < width; ++i) identity[i * width + i] = 1;
    put("dense_2.weight", {width, width}, tensors_.at("embedding_projection").values);
    put("dense_3.weight", {width, width}, identity);
  }

  void put(const std::string& name, const test::Rows& rows) {
    std::vector<std::uint64_t> dims = {static_cast<std::uint64_t>(rows.columns),
                                       static_cast<std::uint64_t>(rows.rows)};
    if (rows.columns == 1) dims.erase(dims.begin());
    if (rows.rows == 1) dims = {static_cast<std::uint64_t>(rows.columns)};  // as converters do
    put(name, dims, rows.values);
  }
  void put(const std::string& name, const std::vector<std::uint64_t>& dims,
           const std::vector<float>& values) {
    if (how_.k_out && name.find("ssm_out") != std::string::npos) {
      return writer_.tensor(name, dims, 12, any_q4_k_blocks(values.size() / 256));
    }
    const bool coded = how_.as == test::WriteAs::q8_0 && dims.size() >= 2 && dims[0] % 32 == 0 &&
                       name.find("ssm_conv1d") == std::string::npos;
    if (coded) {
      writer_.tensor(name, dims, 8, test::q8_0_bytes(values));
    } else {
      writer_.tensor(name, dims, 0, test::f32_bytes(values));
    }
  }

  static std::string any_q4_k_blocks(std::size_t count) {
    std::string bytes(count * 144, '\0');
    Random random(9);
    for (char& byte : bytes) byte = static_cast<char>(random.bits());
    for (std::size_t block = 0; block < count; ++block) {  // each of the two f16 numbers below 1
      for (const std::size_t at : {1, 3}) bytes[block * 144 + at] &= '\x37';
    }
    return bytes;
  }

  // Interleaves the rows of value heads: the j-th value head of each key head, for ascending j.
  test::Rows in_turns(const test::Rows& in, std::int64_t first, std::int64_t each) const {
    const DeltaNetConfig& delta = *model_.config.delta_net();
    if (!how_.tiled) return in;
    test::Rows out = in;
    auto to = out.values.begin() + first * in.columns;
    const std::int64_t group = delta.value_heads / delta.key_heads;
    for (std::int64_t j = 0; j < group; ++j) {
      for (std::int64_t k = 0; k < delta.key_heads; ++k) {
        const auto from = in.values.begin() + (first + (k * group + j) * each) * in.columns;
        to = std::copy(from, from + each * in.columns, to);
      }
    }
    return out;
  }

  static test::Rows transposed(const test::Rows& in) {
    test::Rows out = {in.columns, in.rows, in.values};
    for (std::int64_t r = 0; r < in.rows; ++r) {
      for (std::int64_t c = 0; c < in.columns; ++c) {
        out.values[static_cast<std::size_t>(c * in.rows + r)] =
            in.values[static_cast<std::size_t>(r * in.columns + c)];
      }
    }
    return out;
  }

  test::Rows stored(const std::string& part, test::Rows rows) const {
    if (how_.pairs && part == "k") return test::paired(rows, model_.config.kv_heads);
    const AttentionConfig* attention = model_.config.layer(0).attention();
    if (part == "router_norm") {  // stored without its division
      for (float& gain : rows.values) gain *= std::sqrt(static_cast<float>(model_.config.width));
    }
    if (part == "q_norm" && how_.arch != "gemma4" && attention != nullptr &&
        attention->query_scale != 0) {
      // GGUF has no scale of queries, which gains of their norm can replace.
      const double root = std::sqrt(static_cast<double>(model_.config.head_dim));
      for (float& gain : rows.values) gain *= static_cast<float>(attention->query_scale * root);
    }
    if (part.rfind("delta_", 0) != 0) return rows;
    const DeltaNetConfig& delta = *model_.config.delta_net();
    const std::int64_t keys = 2 * delta.keys();
    if (part == "delta_qkv") return in_turns(rows, keys, delta.value_dim);
    if (part == "delta_z") return in_turns(rows, 0, delta.value_dim);
    if (part == "delta_out") return transposed(in_turns(transposed(rows), 0, delta.value_dim));
    if (part == "delta_conv") {  // leq stores [taps][channels]
      const test::Rows taps = {delta.conv_taps, delta.channels(), rows.values};
      return in_turns(transposed(taps), keys, delta.value_dim);
    }
    if (part == "delta_a_log") {
      for (float& value : rows.values) value = -std::exp(value);
    }
    const bool of_heads = part != "delta_in_norm" && part != "delta_norm";
    return of_heads ? in_turns(rows, 0, 1) : rows;
  }

  void add_layer(std::int64_t layer) {
    const std::string from = "layers." + std::to_string(layer) + ".";
    const std::string to = "blk." + std::to_string(layer) + ".";
    std::map<std::string, std::vector<test::Rows>> experts;
    for (const TensorInput& tensor : model_.tensors) {
      if (tensor.name.rfind(from, 0) != 0) continue;
      const std::string part = tensor.name.substr(from.size());
      const test::Rows& rows = tensors_.at(tensor.name);
      if (part.rfind("experts.", 0) == 0) {
        experts[part.substr(part.find('.', 8) + 1)].push_back(rows);
      } else if (part.ends_with(".bias")) {
        const std::string weight =
            part == "q.bias" ? "attn_q.weight" : kNames.at(part.substr(0, part.size() - 5));
        put(to + weight.substr(0, weight.size() - 6) + "bias", rows);
      } else if (how_.phi && (part == "q" || part == "up")) {
        put(to + (part == "q" ? "attn_qkv.weight" : "ffn_up.weight"),
            part == "q" ? joined(from, {"q", "k", "v"}) : joined(from, {"gate", "up"}));
      } else if (how_.phi && (part == "k" || part == "v" || part == "gate")) {
        continue;
      } else if (part == "conv_b") {
        put(to + "shortconv.in_proj.weight", joined(from, {"conv_b", "conv_c", "conv_x"}));
      } else if (part == "conv_c" || part == "conv_x") {
        continue;
      } else if (part == "conv_taps") {  // leq stores [taps][channels]
        const std::int64_t width = model_.config.width;
        put(to + "shortconv.conv.weight",
            transposed({std::ssize(rows.values) / width, width, rows.values}));
      } else if (how_.arch == "gemma4" && is_left_out(layer, part)) {
        continue;
      } else if (part == "mlp_post_norm" && model_.config.layer(layer).experts_mlp() != nullptr) {
        put(to + "post_ffw_norm_1.weight", rows);
      } else if (part == "q") {
        put(to + "attn_q.weight", joined_query(from, rows));
      } else if (part == "mlp_norm") {
        const bool after = model_.config.delta_net() || how_.arch == "gpt-oss";
        put(to + (after ? "post_attention_norm.weight" : "ffn_norm.weight"), rows);
      } else if (how_.joined && (part == "delta_b" || part == "delta_a")) {
        if (part == "delta_b") put(to + "ssm_ba.weight", joined_gates(from));
      } else if (part != "attention_gate" || !joins_gate()) {
        const bool plain = how_.ollama && part == "delta_dt_bias";
        put(to + (plain ? "ssm_dt" : kNames.at(part)), stored(part, rows));
      }
    }
    if (!experts.empty()) add_experts(to, experts);
  }

  test::Rows joined(const std::string& from, const std::vector<std::string>& parts) const {
    test::Rows all;
    for (const std::string& part : parts) {
      const test::Rows& rows = tensors_.at(from + part);
      all.rows += rows.rows;
      all.columns = rows.columns;
      all.values.insert(all.values.end(), rows.values.begin(), rows.values.end());
    }
    return all;
  }

  // Gains of one, and values that are keys.
  bool is_left_out(std::int64_t layer, const std::string& part) const {
    const bool keys = model_.config.layer_input == 0;
    return part == "v_norm" || (keys && part == "v" && model_.config.window(layer) == 0);
  }
  bool joins_gate() const { return model_.config.delta_net() != nullptr; }

  // Joins, for each head, the rows of the query and the rows of the gate.
  test::Rows joined_query(const std::string& from, const test::Rows& query) const {
    if (!tensors_.contains(from + "attention_gate") || !joins_gate()) {
      return how_.pairs ? test::paired(query, model_.config.heads) : query;
    }
    const test::Rows& gate = tensors_.at(from + "attention_gate");
    test::Rows all = {2 * query.rows, query.columns, {}};
    const std::int64_t each = model_.config.head_dim * query.columns;
    for (std::int64_t head = 0; head < model_.config.heads; ++head) {
      for (const test::Rows* part : {&query, &gate}) {
        const auto first = part->values.begin() + head * each;
        all.values.insert(all.values.end(), first, first + each);
      }
    }
    return all;
  }

  // For each key head, joins the rows of b of its value heads and then the rows of a.
  test::Rows joined_gates(const std::string& from) const {
    const test::Rows &b = tensors_.at(from + "delta_b"), &a = tensors_.at(from + "delta_a");
    const DeltaNetConfig& delta = *model_.config.delta_net();
    const std::int64_t each = delta.value_heads / delta.key_heads * b.columns;
    test::Rows all = {2 * b.rows, b.columns, {}};
    for (std::int64_t head = 0; head < delta.key_heads; ++head) {
      for (const test::Rows* part : {&b, &a}) {
        const auto first = part->values.begin() + head * each;
        all.values.insert(all.values.end(), first, first + each);
      }
    }
    return all;
  }

  void add_experts(const std::string& to, std::map<std::string, std::vector<test::Rows>>& experts) {
    const auto put_all = [&](const std::string& name, const std::vector<std::string>& parts) {
      std::vector<float> values;
      std::int64_t rows = 0;
      const std::size_t count = experts.at(parts[0]).size();
      for (std::size_t e = 0; e < count; ++e) {
        for (const std::string& part : parts) {
          const test::Rows& one = experts.at(part)[e];
          values.insert(values.end(), one.values.begin(), one.values.end());
          if (e == 0) rows += one.rows;
        }
      }
      std::vector<std::uint64_t> dims = {
          static_cast<std::uint64_t>(experts.at(parts[0])[0].columns),
          static_cast<std::uint64_t>(rows), count};
      if (parts[0].ends_with(".bias")) dims.erase(dims.begin());
      put(to + name, dims, values);
    };
    for (const std::string part : {"gate", "up", "down"}) {
      if (!experts.contains(part + ".bias")) break;
      put_all("ffn_" + part + "_exps.bias", {part + ".bias"});
    }
    if (how_.fused) {
      put_all("ffn_gate_up_exps.weight", {"gate", "up"});
    } else {
      put_all("ffn_gate_exps.weight", {"gate"});
      put_all("ffn_up_exps.weight", {"up"});
    }
    put_all("ffn_down_exps.weight", {"down"});
  }

  const ImportedModel& model_;
  Written how_;
  std::map<std::string, test::Rows> tensors_;
  GgufWriter writer_;
};

struct GoldenFile {
  const char* golden;
  Written how;
};

TEST(GgufFamilies, ComputeWhatTransformersComputesWithTheirCheckpoints) {
  for (const GoldenFile& one : std::vector<GoldenFile>{
           {"qwen3.5-moe", {.arch = "qwen35moe", .tiled = true}},
           {"qwen3.5-moe", {.arch = "qwen35moe", .tiled = true, .fused = true}},
           {"qwen3.5-moe", {.arch = "qwen35moe", .tiled = true, .ollama = true}},
           {"qwen3-next", {.arch = "qwen3next", .joined = true}},
           {"qwen3-next", {.arch = "qwen3next", .joined = true, .ollama = true}},
           {"ministral-3", {.arch = "mistral3", .pairs = true}},
           {"muse-glimmer", {.arch = "muse-glimmer", .pairs = true}},
           {"smollm3", {.arch = "smollm3", .pairs = true}},
           {"gpt-oss", {.arch = "gpt-oss"}},
           {"granite", {.arch = "granite", .pairs = true}},
           {"phi-3", {.arch = "phi3", .phi = true}},
           {"phi-3-short", {.arch = "phi3", .phi = true}},
           {"lfm2", {.arch = "lfm2"}},
           {"lfm2-moe", {.arch = "lfm2moe"}},
           {"gemma-3", {.arch = "gemma3"}},
           {"gemma-3", {.arch = "gemma3", .period = 3}},
           {"gemma-4", {.arch = "gemma4"}},
           {"gemma-4", {.arch = "gemma4", .period = 3}},
           {"gemma-4-moe", {.arch = "gemma4", .fused = true}},
           {"gemma-4-shared", {.arch = "gemma4"}},
           {"mixtral", {.arch = "llama", .pairs = true}}}) {
    SCOPED_TRACE(one.golden);
    const ImportedModel want = import_hf(test::family_folder(one.golden));
    const test::TemporaryFolder folder;
    const std::string path = folder.write("m.gguf", Converter(want, one.how).bytes());
    EXPECT_EQ(describe(import_gguf_config(path)), describe(want.config));
    const Model model = test::f32_model(path, folder);
    const test::FamilyGolden golden(one.golden);
    const auto backend = make_backend({.device = "cpu", .threads = 2});
    EXPECT_LT(golden.difference(golden.run(model, *backend, 512)), 1e-4);
  }
}

TEST(GgufFamilies, EmbeddingGemmaGivesTheEmbeddingsOfItsCheckpoint) {
  const auto checkpoint =
      std::filesystem::path(LEQ_SOURCE_DIR) / "tests/golden/embedding-gemma";
  const ImportedModel want = import_hf(checkpoint);
  const test::TemporaryFolder folder, other;
  const std::string path =
      folder.write("m.gguf", Converter(want, {.arch = "gemma-embedding"}).bytes());
  EXPECT_EQ(describe(import_gguf(path).config), describe(want.config));
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto embedding = [&](const std::filesystem::path& file, const test::TemporaryFolder& to) {
    const Model model = test::f32_model(file, to);
    RunLimits limits;
    limits.context = 64;
    Session session(model, *backend, resolve_limits(limits, model.config()));
    return Engine(session, model.tokenizer(), {}).embed(std::vector<Token>{5, 9, 60, 7, 8, 33, 2});
  };
  const auto have = embedding(path, folder), expected = embedding(checkpoint, other);
  ASSERT_EQ(have.size(), 32u);
  for (std::size_t i = 0; i < have.size(); ++i) EXPECT_NEAR(have[i], expected[i], 2e-4);
}

// A Qwen 3.5 with random weights and three experts, written to `folder`.
ImportedModel hybrid_with_experts(const test::TemporaryFolder& folder,
                                  const test::SmallDelta& delta) {
  const Json config = test::small_hybrid_config(delta, 3, 64, 64);
  test::RandomCheckpoint checkpoint(folder.path() / "hf");
  checkpoint.add_qwen3_5(config, test::RandomCheckpoint::Experts::stacked);
  return import_hf(checkpoint.write(config));
}

// In Q8_0, codes and scales are permuted together when value heads are interleaved; this also
// applies to the columns of the output projection.
TEST(GgufFamilies, CodesOfHybridsAreKept) {
  const test::TemporaryFolder folder;
  const ImportedModel want = hybrid_with_experts(folder, {.value_heads = 6, .value_dim = 32});
  const Written how = {.arch = "qwen35moe", .tiled = true, .as = test::WriteAs::q8_0};
  const ImportedModel got = import_gguf(folder.write("m.gguf", Converter(want, how).bytes()));
  int carried = 0;
  for (std::size_t i = 0; i < got.tensors.size(); ++i) {
    const TensorInput& tensor = got.tensors[i];
    const std::vector<float> values = test::rows_of(tensor).values;
    const std::vector<float> exact = test::rows_of(want.tensors[i]).values;
    for (std::size_t k = 0; k < values.size(); ++k) {
      ASSERT_NEAR(values[k], exact[k], 0.02 + 0.02 * std::fabs(exact[k]))
          << tensor.name << " " << k;
    }
    ChosenCodes codes;
    if (!tensor.own_scheme || tensor.own_scheme->is_float()) continue;
    ASSERT_TRUE(tensor.read_codes(*tensor.own_scheme, 0, tensor.shape[0], codes)) << tensor.name;
    for (std::size_t k = 0; k < values.size(); ++k) {
      ASSERT_EQ(codes.scales[k / 32] * static_cast<float>(codes.codes[k] - codes.zeros[k / 32]),
                values[k])
          << tensor.name << " " << k;
    }
    carried += tensor.name.find("delta_out") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(carried, 3);
}

TEST(GgufFamilies, HybridsMayHaveOneKeyHead) {
  const test::TemporaryFolder folder;
  const ImportedModel want = hybrid_with_experts(folder, {.key_heads = 1, .value_heads = 2});
  const Written how = {.arch = "qwen35moe", .tiled = true};
  const std::string path = folder.write("m.gguf", Converter(want, how).bytes());
  EXPECT_EQ(describe(import_gguf_config(path)), describe(want.config));
}

// The pattern in a file is a flag for each layer, or a number n (here 4): every n-th layer, counted
// from the first, has full attention.
TEST(GgufFamilies, WindowsOfMuseGlimmerComeFromTheirPattern) {
  const ImportedModel want = import_hf(test::family_folder("muse-glimmer"));
  const test::TemporaryFolder folder;
  const auto windows = [&](std::int64_t period) {
    const Written how = {.arch = "muse-glimmer", .pairs = true, .period = period};
    const ModelConfig config =
        import_gguf_config(folder.write("m.gguf", Converter(want, how).bytes()));
    std::vector<std::int32_t> all;
    for (std::int64_t i = 0; i < config.layer_count(); ++i) {
      all.push_back(config.window(i));
      EXPECT_EQ(config.layer(i).attention()->rope.has_value(), config.window(i) > 0) << i;
    }
    return all;
  };
  EXPECT_EQ(windows(0), (std::vector<std::int32_t>{8, 0, 8, 8, 8, 0}));
  EXPECT_EQ(windows(4), (std::vector<std::int32_t>{8, 8, 8, 0, 8, 8}));
}

// Files of Gemma 3 do not have the scale of queries; that of 27B, with 62 layers, is another.
TEST(GgufFamilies, QueryScaleOfGemma3FollowsFromTheNumberOfLayers) {
  ImportedModel want = import_hf(test::family_folder("gemma-3"));
  const test::TemporaryFolder folder;
  const auto query_scale = [&](std::size_t layers) {
    want.config.layers.resize(layers, want.config.layer(0));
    const Written how = {.arch = "gemma3", .period = 6};
    const ModelConfig config =
        import_gguf_config(folder.write("m.gguf", Converter(want, how).bytes()));
    EXPECT_EQ(config.layer(5).attention()->rope->theta, 1e6);
    return config.layer(0).attention()->query_scale;
  };
  EXPECT_EQ(query_scale(7), 0);  // 1 / sqrt(head_dim)
  EXPECT_DOUBLE_EQ(query_scale(62), 1 / std::sqrt(32.0 / 4));
}

// A superblock of 256 columns spans two heads that are moved apart, so its codes cannot be kept.
TEST(GgufFamilies, KTypesWhoseColumnsMoveAreReadAsNumbers) {
  const test::TemporaryFolder folder;
  const Json config = test::small_hybrid_config({.value_dim = 128});
  test::RandomCheckpoint checkpoint(folder.path() / "hf");
  checkpoint.add_qwen3_5(config, test::RandomCheckpoint::Experts::none);
  const ImportedModel want = import_hf(checkpoint.write(config));
  const Written how = {.arch = "qwen35", .tiled = true, .k_out = true};
  const std::string path = folder.write("m.gguf", Converter(want, how).bytes());
  const ImportedModel got = import_gguf(path);
  const auto out = std::ranges::find(got.tensors, "layers.0.delta_out", &TensorInput::name);
  ASSERT_NE(out, got.tensors.end());
  EXPECT_FALSE(out->own_scheme.has_value());
  const GgufSource source(path);
  const SourceTensor* stored = source.find("blk.0.ssm_out.weight");
  ASSERT_NE(stored, nullptr);
  std::vector<float> raw(static_cast<std::size_t>(out->shape[0] * 512));
  source.read(*stored, 0, raw);
  const std::vector<float> values = test::rows_of(*out).values;
  ASSERT_EQ(values.size(), raw.size());
  constexpr std::array<std::size_t, 4> kPlaces = {0, 2, 1, 3};  // positions of the value heads
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t row = i / 512, head = i % 512 / 128;
    ASSERT_EQ(values[i], raw[row * 512 + kPlaces[head] * 128 + i % 128]) << i;
  }
}

TEST(GgufFamilies, OllamasFilesSayWhatIsLeftOutAndAreRefusedByTheirKeys) {
  const ImportedModel want = import_hf(test::family_folder("qwen3.5-moe"));
  const test::TemporaryFolder folder;
  const auto path = [&](bool tiled) {
    const Written how = {.arch = "qwen35moe", .tiled = tiled, .ollama = true};
    return folder.write("m.gguf", Converter(want, how).bytes());
  };
  const ImportedModel got = import_gguf(path(true));
  ASSERT_EQ(got.notes.size(), 1u);
  EXPECT_EQ(got.notes[0],
            "left out: 2 tensors of a head of multi-token prediction, 2 tensors of a vision tower, "
            "1 tensor of its projector; the text model alone is run");
  test::expect_error([&] { import_gguf(path(false)); }, {"ssm.v_head_reordered is false"});
}

// block_count includes multi-token prediction layers, which are reported and not imported.
TEST(GgufFamilies, LayersThatGuessAheadAreLeftOut) {
  const ImportedModel want = import_hf(test::family_folder("qwen3.5-moe"));
  const test::TemporaryFolder folder;
  const auto read = [&](std::int64_t drafts) {
    const Written how = {.arch = "qwen35moe", .tiled = true, .drafts = drafts};
    return import_gguf(folder.write("m.gguf", Converter(want, how).bytes()));
  };
  EXPECT_TRUE(read(0).notes.empty());
  const ImportedModel got = read(1);
  EXPECT_EQ(got.config, want.config);
  EXPECT_EQ(got.tensors.size(), want.tensors.size());
  ASSERT_EQ(got.notes.size(), 1u);
  EXPECT_NE(got.notes[0].find("1 layers that guess ahead"), std::string::npos) << got.notes[0];
}

}  // namespace
}  // namespace leq

#include "tools/bench/parts/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/hf_import.h"
#include "format/leq_writer.h"
#include "format/loaded_file.h"
#include "model/linear_sites.h"
#include "model/open_model.h"
#include "quantize/run/quantize.h"
#include "tools/bench/parts/synthetic_fill.h"

namespace leq {
namespace {

constexpr std::string_view kPrefix = "synthetic:";

constexpr std::uint64_t kPlaneAlignment = 64;

// The keys that most families have in config.json, and a text with the others.
struct PublishedShape {
  std::string_view name;
  std::string_view model_type;
  std::int64_t layers, width, heads, kv_heads, head_dim, hidden, vocab, context;
  double rope_theta, norm_eps;
  bool tied;
  std::string_view others = "{}";
};

// Published configurations. A test checks that their parameter counts equal the published ones.
constexpr std::array<PublishedShape, 18> kShapes = {{
    {"gpt2-124m", "gpt2", 12, 768, 12, 12, 64, 3072, 50257, 1024, 10000, 1e-5, true,
     R"({"n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024,
         "activation_function": "gelu_new"})"},
    {"llama-110m", "llama", 12, 768, 12, 12, 64, 2048, 32000, 1024, 10000, 1e-5, true},
    {"tinyllama-1.1b", "llama", 22, 2048, 32, 4, 64, 5632, 32000, 2048, 10000, 1e-5, false},
    {"llama-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000, 2048, 10000, 1e-6, false},
    {"llama-13b", "llama", 40, 5120, 40, 40, 128, 13824, 32000, 2048, 10000, 1e-6, false},
    {"mistral-7b", "mistral", 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1e6, 1e-5, false,
     R"({"sliding_window": null})"},
    {"qwen2.5-1.5b", "qwen2", 28, 1536, 12, 2, 128, 8960, 151936, 32768, 1e6, 1e-6, true},
    {"qwen3-14b", "qwen3", 40, 5120, 40, 8, 128, 17408, 151936, 40960, 1e6, 1e-6, false},
    {"mixtral-8x7b", "mixtral", 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1e6, 1e-5, false,
     R"({"num_local_experts": 8, "num_experts_per_tok": 2})"},
    {"qwen3-30b-a3b", "qwen3_moe", 48, 2048, 32, 4, 128, 6144, 151936, 40960, 1e6, 1e-6, false,
     R"({"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
         "norm_topk_prob": true})"},
    {"qwen3.5-0.8b", "qwen3_5_text", 24, 1024, 8, 2, 256, 3584, 248320, 262144, 1e7, 1e-6, true,
     R"({"linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
         "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4})"},
    {"qwen3.5-9b", "qwen3_5_text", 32, 4096, 16, 4, 256, 12288, 248320, 262144, 1e7, 1e-6, false,
     R"({"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
         "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4})"},
    {"qwen3.6-35b-a3b", "qwen3_5_moe_text", 40, 2048, 16, 2, 256, 512, 248320, 262144, 1e7, 1e-6,
     false,
     R"({"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
         "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 256,
         "num_experts_per_tok": 8, "moe_intermediate_size": 512,
         "shared_expert_intermediate_size": 512})"},
    {"ministral-8b", "ministral3", 34, 4096, 32, 8, 128, 14336, 131072, 262144, 1e6, 1e-5, false},
    {"gemma-3-4b", "gemma3_text", 34, 2560, 8, 4, 256, 10240, 262208, 131072, 1e6, 1e-6, true,
     R"({"sliding_window": 1024, "rope_scaling": {"rope_type": "linear", "factor": 8}})"},
    {"gemma-4-12b", "gemma4_unified_text", 48, 3840, 16, 8, 256, 15360, 262144, 262144, 0, 1e-6,
     true,
     R"({"sliding_window": 1024, "num_global_key_value_heads": 1, "attention_k_eq_v": true,
         "final_logit_softcapping": 30})"},
    {"gemma-4-26b-a4b", "gemma4_text", 30, 2816, 16, 8, 256, 2112, 262144, 262144, 0, 1e-6, true,
     R"({"sliding_window": 1024, "num_global_key_value_heads": 2, "attention_k_eq_v": true,
         "final_logit_softcapping": 30, "hidden_size_per_layer_input": 0,
         "enable_moe_block": true, "num_experts": 128, "top_k_experts": 8,
         "moe_intermediate_size": 704})"},
    {"gpt-oss-20b", "gpt_oss", 24, 2880, 64, 8, 64, 2880, 201088, 131072, 150000, 1e-5, false,
     R"({"num_local_experts": 32, "num_experts_per_tok": 4})"},
}};

// The shape's config.json.
Json config_json_of(const PublishedShape& shape) {
  Json json = parse_json(shape.others, shape.name);
  json["model_type"] = shape.model_type;
  json["num_hidden_layers"] = shape.layers;
  json["hidden_size"] = shape.width;
  json["num_attention_heads"] = shape.heads;
  json["num_key_value_heads"] = shape.kv_heads;
  json["head_dim"] = shape.head_dim;
  json["intermediate_size"] = shape.hidden;
  json["vocab_size"] = shape.vocab;
  json["max_position_embeddings"] = shape.context;
  json["rms_norm_eps"] = shape.norm_eps;
  json["tie_word_embeddings"] = shape.tied;
  // Else the family's own rules, one for each kind of layer.
  if (shape.rope_theta > 0) json["rope_theta"] = shape.rope_theta;
  return json;
}

// A tensor whose planes have offsets from 0; its views get addresses later.
StoredTensor laid_out(const TensorSpec& tensor, const TensorPlan& plan, std::uint64_t& offset) {
  StoredTensor stored;
  stored.name = tensor.name;
  stored.shape = tensor.shape;
  stored.method = "random";
  stored.view.scheme = plan.scheme;
  if (plan.scheme.scaling == Scaling::tensor) stored.view.scheme.scaling = Scaling::row;
  stored.view.act = plan.act;
  stored.view.rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
  stored.view.columns = tensor.shape.back();
  const PlaneBytes bytes =
      plane_bytes(plan.scheme, plan.act, stored.view.rows, stored.view.columns);
  const std::array<std::pair<const char*, std::uint64_t>, 4> planes = {{{"codes", bytes.codes},
                                                                        {"scales", bytes.scales},
                                                                        {"zeros", bytes.zeros},
                                                                        {"sums", bytes.sums}}};
  for (const auto& [name, size] : planes) {
    if (size == 0) continue;
    stored.planes.push_back({name, offset, size, 0});
    offset = round_up(offset + size, kPlaneAlignment);
  }
  return stored;
}

void place(StoredTensor& tensor, std::byte* memory) {
  for (const StoredPlane& plane : tensor.planes) {
    const std::byte* data = memory + plane.offset;
    if (plane.name == "codes") tensor.view.codes = data;
    if (plane.name == "scales") tensor.view.scales = data;
    if (plane.name == "zeros") tensor.view.zeros = reinterpret_cast<const std::uint8_t*>(data);
    if (plane.name == "sums") tensor.view.sums = data;
  }
}

// Copies a tensor's planes into the type that the writer takes.
PackedWeight packed(const StoredTensor& tensor, const std::byte* memory) {
  PackedWeight weight;
  weight.scheme = tensor.view.scheme;
  weight.act = tensor.view.act;
  weight.rows = tensor.view.rows;
  weight.columns = tensor.view.columns;
  weight.scale_mul = tensor.view.scale_mul;
  for (const StoredPlane& plane : tensor.planes) {
    const std::byte* first = memory + plane.offset;
    const std::byte* last = first + plane.bytes;
    if (plane.name == "codes") weight.codes.assign(first, last);
    if (plane.name == "scales") weight.scales.assign(first, last);
    if (plane.name == "zeros") weight.zeros.assign(first, last);
    if (plane.name == "sums") weight.sums.assign(first, last);
  }
  return weight;
}

}  // namespace

bool is_synthetic(std::string_view model) { return model.starts_with(kPrefix); }

SyntheticSpec parse_synthetic(std::string_view model) {
  const auto parts = split(model, ":");
  require(is_synthetic(model) && parts.size() >= 3 && parts.size() <= 4, "model ", printable(model),
          ": expected synthetic:SHAPE:TYPE[:layers=N], SHAPE one of ", join(synthetic_shapes()));
  SyntheticSpec spec;
  spec.shape = std::string(parts[1]);
  spec.type = require_scheme(parts[2], model);
  if (parts.size() == 4) {
    constexpr std::string_view kLayers = "layers=";
    const std::int64_t layers =
        parts[3].starts_with(kLayers) ? parse_int(parts[3].substr(kLayers.size())).value_or(0) : 0;
    require(layers >= 1, "model ", printable(model), ": \"", printable(parts[3]),
            "\": expected layers=N with N of at least 1");
    spec.layers = layers;
  }
  synthetic_config(spec.shape, spec.layers);  // throws for an unknown shape before loading
  return spec;
}

std::vector<std::string> synthetic_shapes() {
  std::vector<std::string> names;
  for (const PublishedShape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

ModelConfig synthetic_config(std::string_view name, std::int64_t layers) {
  const auto found = std::find_if(kShapes.begin(), kShapes.end(),
                                  [&](const PublishedShape& shape) { return shape.name == name; });
  require(found != kShapes.end(), "synthetic shape \"", printable(name),
          "\" is unknown; use one of ", join(synthetic_shapes()));
  require(layers >= 0 && layers <= found->layers, "synthetic shape ", name, ": layers=", layers,
          ": expected 1 to ", found->layers);
  ModelConfig config = import_hf_config(config_json_of(*found).dump(), name);
  if (const std::vector<std::int64_t> attending = config.attention_layers();
      config.delta_net() != nullptr) {
    require(layers == 0 || layers > attending[0], "synthetic shape ", name, ": layers=", layers,
            ": expected at least ", attending[0] + 1, ", of which one attends");
    config.mtp = config.layer(attending[0]);
  }
  if (layers > 0) config.layers.resize(static_cast<std::size_t>(layers));
  return config;
}

std::vector<StoredTensor> synthetic_layout(const ModelConfig& config, const QuantScheme& type) {
  std::vector<StoredTensor> tensors;
  std::uint64_t offset = 0;
  for (const TensorSpec& tensor : tensor_list(config)) {
    const TensorPlan plan = plan_tensor(tensor.role, type, config, ActChoice::automatic);
    tensors.push_back(laid_out(tensor, plan, offset));
  }
  return tensors;
}

SyntheticModel::SyntheticModel(const SyntheticSpec& spec, std::int64_t context, ThreadPool& pool)
    : name_(std::string(kPrefix) + spec.shape + ":" + scheme_name(spec.type)),
      type_(spec.type),
      config_(synthetic_config(spec.shape, spec.layers)) {
  if (spec.layers != 0) name_ += ":layers=" + std::to_string(spec.layers);
  config_.context = std::max(config_.context, context);
  tensors_ = synthetic_layout(config_, spec.type);
  const StoredPlane& last = tensors_.back().planes.back();
  const std::uint64_t bytes = round_up(last.offset + last.bytes, kPlaneAlignment);
  const auto available = available_memory();
  require(bytes < available.value_or(UINT64_MAX), ErrorKind::no_memory, name_, ": needs ",
          human_bytes(bytes), " of memory, ", human_bytes(available.value_or(0)),
          " are free; cut it with :layers=N");
  memory_ = HugeBuffer(bytes, name_.c_str());
  for (StoredTensor& tensor : tensors_) place(tensor, memory_.data());
  for (std::size_t i = 0; i < tensors_.size(); ++i) places_[tensors_[i].name] = i;
  fill_random(tensors_, memory_.data(), pool);
}

const StoredTensor* SyntheticModel::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &tensors_[found->second];
}

std::uint64_t SyntheticModel::write(const std::filesystem::path& path,
                                    const std::optional<TokenizerSpec>& tokenizer) const {
  if (tokenizer) {
    require(std::ssize(tokenizer->pieces) <= config_.vocab, name_, ": has ", config_.vocab,
            " ids, the tokenizer ", tokenizer->pieces.size(), "; use another shape");
  }
  LeqWriter writer(path);
  for (const StoredTensor& tensor : tensors_) {
    writer.add_tensor(tensor.name, tensor.shape, packed(tensor, memory_.data()),
                      {.method = tensor.method});
  }
  if (tokenizer) {
    for (const NamedBlob& table : tokenizer_tables(*tokenizer)) {
      writer.add_blob(table.name, table.bytes);
    }
  }
  Json metadata = Json::object();
  for (const std::string& feature : required_features(config_)) writer.add_requirement(feature);
  metadata["config"] = config_to_json(config_);
  metadata["generation"] = generation_to_json({});
  metadata["tokenizer"] = tokenizer.has_value();
  metadata["provenance"] = {
      {"tool", "leq-bench"}, {"source", name_}, {"type", scheme_name(type_)}, {"method", "random"}};
  return writer.finish(metadata);
}

}  // namespace leq

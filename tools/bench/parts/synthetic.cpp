#include "tools/bench/parts/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "format/leq_writer.h"
#include "format/loaded_file.h"
#include "model/linear_sites.h"
#include "model/open_model.h"
#include "quantize/run/quantize.h"
#include "tools/bench/parts/synthetic_fill.h"

namespace leq {
namespace {

constexpr std::string_view kPrefix = "synthetic:";

enum class Family : std::uint8_t {
  gpt2,
  llama,
  mistral,
  qwen2,
  qwen3,
  mixtral,
  qwen3_moe,
  qwen3_5,
  qwen3_5_moe,
  ministral3,
  gemma3
};

// Published configurations. A test checks that their parameter counts equal the published ones.
struct PublishedShape {
  std::string_view name;
  Family family;
  std::int64_t layers, width, heads, kv_heads, head_dim, hidden, vocab, context;
  double rope_theta;
  float norm_eps;
  bool tied;
  std::int64_t experts = 0, active = 0;  // per layer; `hidden` is then F of one expert
  DeltaNetConfig delta = {};             // for layers without attention (three of four), if set
  std::int64_t shared_hidden = 0;        // F of the shared expert
  std::int32_t window = 0;               // of all layers but every `interval`th, which sees all
  std::int64_t interval = 1;
};
constexpr std::int64_t kAttentionInterval = 4;
constexpr std::uint64_t kPlaneAlignment = 64;

constexpr std::array<PublishedShape, 15> kShapes = {{
    {"gpt2-124m", Family::gpt2, 12, 768, 12, 12, 64, 3072, 50257, 1024, 10000, 1e-5f, true},
    {"llama-110m", Family::llama, 12, 768, 12, 12, 64, 2048, 32000, 1024, 10000, 1e-5f, true},
    {"tinyllama-1.1b", Family::llama, 22, 2048, 32, 4, 64, 5632, 32000, 2048, 10000, 1e-5f, false},
    {"llama-7b", Family::llama, 32, 4096, 32, 32, 128, 11008, 32000, 2048, 10000, 1e-6f, false},
    {"llama-13b", Family::llama, 40, 5120, 40, 40, 128, 13824, 32000, 2048, 10000, 1e-6f, false},
    {"mistral-7b", Family::mistral, 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1e6, 1e-5f, false},
    {"qwen2.5-1.5b", Family::qwen2, 28, 1536, 12, 2, 128, 8960, 151936, 32768, 1e6, 1e-6f, true},
    {"qwen3-14b", Family::qwen3, 40, 5120, 40, 8, 128, 17408, 151936, 40960, 1e6, 1e-6f, false},
    {"mixtral-8x7b", Family::mixtral, 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1e6, 1e-5f, false,
     8, 2},
    {"qwen3-30b-a3b", Family::qwen3_moe, 48, 2048, 32, 4, 128, 768, 151936, 40960, 1e6, 1e-6f,
     false, 128, 8},
    {"qwen3.5-0.8b",
     Family::qwen3_5,
     24,
     1024,
     8,
     2,
     256,
     3584,
     248320,
     262144,
     1e7,
     1e-6f,
     true,
     0,
     0,
     {16, 16, 128, 128, 4}},
    {"qwen3.5-9b",
     Family::qwen3_5,
     32,
     4096,
     16,
     4,
     256,
     12288,
     248320,
     262144,
     1e7,
     1e-6f,
     false,
     0,
     0,
     {16, 32, 128, 128, 4}},
    {"qwen3.6-35b-a3b",
     Family::qwen3_5_moe,
     40,
     2048,
     16,
     2,
     256,
     512,
     248320,
     262144,
     1e7,
     1e-6f,
     false,
     256,
     8,
     {16, 32, 128, 128, 4},
     512},
    {"ministral-8b", Family::ministral3, 34, 4096, 32, 8, 128, 14336, 131072, 262144, 1e6, 1e-5f,
     false},
    {"gemma-3-4b",
     Family::gemma3,
     34,
     2560,
     8,
     4,
     256,
     10240,
     262208,
     131072,
     1e6,
     1e-6f,
     true,
     0,
     0,
     {},
     0,
     1024,
     6},
}};
constexpr std::array<std::string_view, 11> kFamilyNames = {
    "gpt2",      "llama",   "mistral",     "qwen2",      "qwen3", "mixtral",
    "qwen3_moe", "qwen3.5", "qwen3.5_moe", "ministral3", "gemma3"};

// RoPE scaling of Ministral 3, the same in all sizes.
RopeScaling ministral_rope() {
  RopeScaling scaling = {.kind = RopeScalingKind::yarn, .factor = 16};
  scaling.original_context = 16384;
  scaling.mscale = scaling.mscale_all_dim = 1;
  return scaling;
}

// What the layers of Gemma 3 have beside the parts of LLaMA.
void complete_gemma3(const PublishedShape& shape, ModelConfig& config) {
  config.post_norm_eps = shape.norm_eps;
  config.embedding_scale = std::sqrt(static_cast<double>(shape.width));
  for (std::int64_t i = 0; i < config.layer_count(); ++i) {
    LayerConfig& layer = config.layers[static_cast<std::size_t>(i)];
    AttentionConfig& attention = *layer.attention();
    layer.dense_mlp()->activation = Activation::gelu_tanh;
    if ((i + 1) % shape.interval != 0) {
      attention.window = shape.window;
      attention.rope->theta = 10000;
    } else {
      attention.rope->scaling = {.kind = RopeScalingKind::linear, .factor = 8};
    }
  }
}

// If the shape has Gated DeltaNet, three of four layers use it; if it has experts, all layers do.
void place_layers(const PublishedShape& shape, std::vector<LayerConfig>& layers) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (shape.experts > 0) {
      layers[i].mlp = ExpertsMlpConfig{.experts = shape.experts,
                                       .active = shape.active,
                                       .hidden = shape.hidden,
                                       .normalized = true,
                                       .shared_hidden = shape.shared_hidden};
    }
    const bool attends =
        shape.delta.key_heads == 0 || (i + 1) % std::size_t{kAttentionInterval} == 0;
    if (!attends) layers[i].mixer = shape.delta;
  }
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
  const bool gpt2 = found->family == Family::gpt2;
  ModelConfig config;
  config.family = kFamilyNames[static_cast<std::size_t>(found->family)];
  UniformLayers uniform;
  uniform.count = layers == 0 ? found->layers : layers;
  uniform.attention = {.rope = RopeConfig{.theta = found->rope_theta},
                       .qk_norm = found->family == Family::qwen3 ||
                                  found->family == Family::qwen3_moe ||
                                  found->family == Family::gemma3,
                       .qkv_bias = gpt2 || found->family == Family::qwen2,
                       .output_bias = gpt2};
  if (gpt2) uniform.attention.rope.reset();
  uniform.mlp = {.hidden = found->hidden,
                 .gated = !gpt2,
                 .activation = gpt2 ? Activation::gelu_tanh : Activation::silu,
                 .bias = gpt2};
  if (found->delta.key_heads > 0) {
    require(uniform.count >= kAttentionInterval, "synthetic shape ", name, ": layers=", layers,
            ": expected at least ", kAttentionInterval, ", of which one attends");
    uniform.attention.qk_norm = uniform.attention.output_gate = true;
    uniform.attention.rope->dims = static_cast<std::int32_t>(found->head_dim / 4);
  }
  if (found->family == Family::ministral3) {
    uniform.attention.rope->scaling = ministral_rope();
    uniform.attention.temperature = {.beta = 0.1,
                                     .period = uniform.attention.rope->scaling.original_context};
  }
  config.layers = uniform.layers();
  place_layers(*found, config.layers);
  if (found->delta.key_heads > 0) config.mtp = config.layers[kAttentionInterval - 1];
  config.width = found->width;
  config.heads = found->heads;
  config.kv_heads = found->kv_heads;
  config.head_dim = found->head_dim;
  config.vocab = found->vocab;
  config.context = found->context;
  config.norm = gpt2 ? NormKind::layer : NormKind::rms;
  config.norm_eps = found->norm_eps;
  config.learned_positions = gpt2;
  config.tied = found->tied;
  if (found->family == Family::gemma3) complete_gemma3(*found, config);
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

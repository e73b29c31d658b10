#include "model/weights.h"

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "backend/step_times.h"
#include "base/error.h"
#include "base/text.h"
#include "model/kv_layers.h"
#include "model/linear_sites.h"
#include "tensor/weight_layout.h"

namespace leq {
namespace {

// Binds tensors by name and checks their shapes against those that the configuration implies.
class Binder {
 public:
  Binder(const TensorFinder& find, std::string_view source, const ModelConfig& config,
         DeviceMemory& memory, const RankShare& share)
      : find_(find), source_(source), config_(config), memory_(memory), share_(share) {
    for (TensorSpec& spec : tensor_list(config)) shapes_[spec.name] = std::move(spec.shape);
  }

  Weights bind() {
    Weights& weights = weights_;
    weights.token_embedding = matrix("token_embedding");
    if (config_.learned_positions) weights.position_embedding = matrix("position_embedding");
    if (config_.reads_hidden) weights.mtp_input = mtp_input();
    if (config_.layer_input > 0) {
      weights.layer_embedding = matrix("layer_embedding");
      weights.layer_projection = plain_linear("layer_projection", Axis::whole);
      weights.layer_projection_norm = norm("layer_projection_norm", config_.norm);
      // Instead of dividing its input by sqrt(width).
      weights.layer_projection_norm.eps *= static_cast<float>(config_.width);
    }
    for (std::int64_t i = 0; i < config_.layer_count(); ++i) weights.layers.push_back(layer(i));
    weights.final_norm = norm("final_norm", config_.norm);
    weights.head = head();
    if (config_.embedding_projection) {
      const std::string name(kEmbeddingProjection);
      const WeightView& view = stored_vector(name, shapes_.at(name)).view;
      const auto* first = reinterpret_cast<const float*>(view.codes);
      weights.embedding_projection.assign(first, first + view.columns);
    }
    return std::move(weights_);
  }

 private:
  // A layer's sites and the prefix of its tensor names.
  struct LayerPlace {
    std::int64_t index;
    std::vector<LinearSite> sites;

    std::string at(std::string_view part) const { return layer_tensor(index, part); }
  };

  LayerWeights layer(std::int64_t index) {
    const LayerPlace place = {index, linear_sites(config_, index)};
    std::size_t site = 0;  // first site of the current sublayer
    LayerWeights layer;
    std::visit([&](const auto& kind) { layer.mixer = sublayer(kind, place, site); },
               config_.layer(index).mixer);
    while (place.sites[site].sublayer == Sublayer::mixer) ++site;
    std::visit([&](const auto& kind) { layer.mlp = sublayer(kind, place, site); },
               config_.layer(index).mlp);
    if (config_.layer_input > 0) {
      layer.input = LayerInputWeights{plain_linear(place.at("input_gate"), Axis::whole),
                                      plain_linear(place.at("input_projection"), Axis::stream),
                                      post_norm(place.at("input_post_norm")).value()};
    }
    if (config_.layer_scales) {
      const StoredTensor& scale = stored_vector(place.at("layer_scale"), {1});
      layer.scale = *reinterpret_cast<const float*>(scale.view.codes);
    }
    return layer;
  }

  AttentionWeights sublayer(const AttentionConfig& config, const LayerPlace& place,
                            std::size_t site) {
    AttentionWeights attention;
    attention.config = config;
    attention.norm = norm_of(place, site);
    attention.qkv = linear(place, site);
    place_key_centre(config, place, attention);
    if (config.qk_norm) {
      attention.q_norm = norm(place.at("q_norm"), config_.norm);
      if (config.kv_of < 0) attention.k_norm = norm(place.at("k_norm"), config_.norm);
    }
    if (config.v_norm && config.kv_of < 0)
      attention.v_norm = norm(place.at("v_norm"), config_.norm);
    if (config.sinks) attention.sinks = vector(place.at("attention_sinks"), {config_.heads});
    attention.o = linear(place, site + 1);
    attention.post_norm = post_norm(place.at("attention_post_norm"));
    return attention;
  }

  DeltaNetWeights sublayer(const DeltaNetConfig& config, const LayerPlace& place,
                           std::size_t site) {
    const auto numbers = [&](std::string_view part) {
      const std::string name = place.at(part);
      return vector(name, shapes_.at(name));
    };
    DeltaNetWeights delta;
    delta.config = config;
    delta.norm = norm_of(place, site);
    delta.in = linear(place, site);
    delta.gates = linear(place, site, Segments::exact);
    // Then one norm makes the rows of both.
    delta.in.values_too = is_coded(delta.in.act) && delta.in.inv_smooth == nullptr;
    delta.conv = numbers("delta_conv");
    delta.a_log = numbers("delta_a_log");
    delta.dt_bias = numbers("delta_dt_bias");
    delta.head_norm = norm(place.at("delta_norm"), NormKind::rms);
    delta.out = linear(place, site + 1);
    return delta;
  }

  ShortConvWeights sublayer(const ShortConvConfig& config, const LayerPlace& place,
                            std::size_t site) {
    const std::string taps = place.at("conv_taps");
    return {config, norm_of(place, site), linear(place, site), linear(place, site + 1),
            vector(taps, shapes_.at(taps))};
  }

  DenseMlpWeights sublayer(const DenseMlpConfig& config, const LayerPlace& place,
                           std::size_t site) {
    DenseMlpWeights mlp;
    mlp.config = config;
    mlp.norm = norm_of(place, site);
    mlp.gate_up = linear(place, site);
    mlp.down = linear(place, site + 1);
    mlp.post_norm = post_norm(place.at("mlp_post_norm"));
    return mlp;
  }

  ExpertsMlpWeights sublayer(const ExpertsMlpConfig& config, const LayerPlace& place,
                             std::size_t site) {
    ExpertsMlpWeights mlp;
    mlp.config = config;
    if (config.dense_hidden > 0) {
      const DenseMlpConfig dense = {.hidden = config.dense_hidden, .activation = config.activation};
      mlp.beside =
          BesideWeights{.dense = sublayer(dense, place, site),
                        .router_norm = norm(place.at("router_norm"), NormKind::rms),
                        .experts_post_norm = post_norm(place.at("experts_post_norm")).value(),
                        .joined_post_norm = post_norm(place.at("joined_post_norm")).value(),
                        .router_scales = vector(place.at("router_scales"), {config.experts})};
      site += 2;
    }
    mlp.norm = norm_of(place, site);
    mlp.router = empty_linear(place, site, "router");
    if (mlp.beside) mlp.router.site_name = "router";  // reads a block of its own
    mlp.router.exact = true;
    add_exact(mlp.router.name, mlp.router);
    if (config.choice_bias) mlp.choice_bias = vector(place.at("choice_bias"), {config.experts});
    for (std::int64_t e = 0; e < config.experts; ++e) {
      mlp.gate_up.push_back(gated_linear(place, site, expert_part(e, ""), config.hidden));
      mlp.down.push_back(linear(place, site + 1 + static_cast<std::size_t>(e)));
      mlp.down.back().rows_per_token = config.active;
      require_like_first(mlp.gate_up, true);
      require_like_first(mlp.down, false);
    }
    if (config.shared_hidden == 0) return mlp;
    SharedExpertWeights& shared = mlp.shared.emplace();
    add_exact(place.at("shared_gate"), mlp.router);
    shared.gate_up = gated_linear(place, site, "shared.", config.shared_hidden);
    shared.down = linear(place, site + 1 + static_cast<std::size_t>(config.experts));
    require_same_input(mlp.gate_up.front(), shared.gate_up, true);
    return mlp;
  }

  LayerLinear empty_linear(const LayerPlace& place, std::size_t index, std::string_view name) {
    const LinearSite& site = place.sites[index];
    LayerLinear linear;
    linear.name = place.at(name);
    linear.site = index;
    linear.site_name = site.block_name();
    linear.axis = site.axis;
    linear.inputs = site.inputs;
    return linear;
  }

  // A linear in f32 that reads the stream or what is made of it; `axis`: of its rows.
  LayerLinear plain_linear(const std::string& name, Axis axis) {
    LayerLinear linear;
    linear.name = linear.site_name = name;
    linear.exact = true;
    const Shape& shape = shapes_.at(name);
    linear.inputs = shape[1];
    const StoredTensor& stored = tensor(name, shape);
    require(stored.view.scheme.kind == CodeKind::f32, source_, ": tensor ", name,
            ": expected f32, file has ", scheme_name(stored.view.scheme));
    add_segment(linear, name, share_.of(axis, shape[0]));
    return linear;
  }

  void add_exact(const std::string& name, LayerLinear& linear) {
    const StoredTensor& stored = tensor(name, shapes_.at(name));
    require(stored.view.scheme.kind == CodeKind::f32, source_, ": tensor ", name,
            ": expected f32, file has ", scheme_name(stored.view.scheme));
    add_segment(linear, name, {0, stored.view.rows});
  }

  // gate and up of the expert with prefix `of` ("experts.3.", "shared."); experts share a block.
  LayerLinear gated_linear(const LayerPlace& place, std::size_t index, const std::string& of,
                           std::int64_t hidden) {
    LayerLinear linear = empty_linear(place, index, of + "gate_up");
    for (const char* part : {"gate", "up"}) {
      add_segment(linear, place.at(of + part), share_.of(Axis::mlp, hidden));
    }
    require(linear.inv_smooth == nullptr, source_, ": tensor ",
            inv_smooth_tensor(place.at(of + "gate")),
            ": experts read their norm's rows as they are");
    linear.values_too = true;
    return linear;
  }

  void require_like_first(const std::vector<LayerLinear>& linears, bool one_scale) {
    require_same_input(linears.front(), linears.back(), one_scale);
  }

  // Checks that two expert linears whose rows share one block read the same input format.
  void require_same_input(const LayerLinear& first, const LayerLinear& linear, bool one_scale) {
    const bool one_for_all = has_stored_scale(linear.act) || has_moving_scale(linear.act);
    require(share_.ranks == 1 || !one_for_all, source_, ": ", linear.name,
            ": act tensor and act online of experts are not supported on several ranks; quantize ",
            "with ", Setting{"act"}, " row");
    require(linear.act == first.act &&
                format(linear.segments[0].weight) == format(first.segments[0].weight) &&
                (!one_scale || linear.act_scale == first.act_scale),
            source_, ": ", first.name, " and ", linear.name,
            " share a block of inputs but want it in different formats");
  }

  const StoredTensor& tensor(const std::string& name, const Shape& shape) {
    const StoredTensor* found = find_(name);
    require(found != nullptr, source_, ": tensor ", name, " is missing, which the configuration ",
            "calls for");
    require(found->shape == shape, source_, ": tensor ", name, ": expected shape ",
            shape_text(shape), ", file has ", shape_text(found->shape));
    return *found;
  }

  // Uploads a tensor only once even if it is used repeatedly, for example a tied table or a vector
  // of q, k and v. Only a rank's slice of a tied table is stored in addition to the whole table.
  WeightView place(const WeightView& weight) {
    const auto [found, is_new] = placed_.try_emplace({weight.codes, weight.rows});
    if (is_new) found->second = memory_.place(weight, weights_.memory);
    return found->second;
  }

  WeightView matrix(const std::string& name) { return place(tensor(name, shapes_.at(name)).view); }

  const StoredTensor& stored_vector(const std::string& name, const Shape& shape) {
    const StoredTensor& found = tensor(name, shape);
    require(found.view.scheme.kind == CodeKind::f32, source_, ": tensor ", name,
            ": expected f32, file has ", scheme_name(found.view.scheme));
    return found;
  }

  const float* vector(const std::string& name, const Shape& shape) {
    return reinterpret_cast<const float*>(place(stored_vector(name, shape).view).codes);
  }

  // Sets the common part of a layer's keys: their mean if the file has it, otherwise their bias if
  // the configuration has one.
  void place_key_centre(const AttentionConfig& config, const LayerPlace& place,
                        AttentionWeights& attention) {
    const std::string bias = place.at("k.bias"), mean = place.at(kKeyMean);
    const auto numbers = [](const WeightView& view) {
      const auto* first = reinterpret_cast<const float*>(view.codes);
      return std::vector<float>(first, first + view.columns);
    };
    const KvHeads heads = config_.kv_heads_of(config);
    const Shape shape = {heads.count * heads.dims};
    WeightView view;
    if (shapes_.contains(bias)) {
      view = stored_vector(bias, shape).view;
      attention.key_bias = numbers(view);
    }
    if (!config.qk_norm && find_(mean) != nullptr) view = stored_vector(mean, shape).view;
    if (view.codes == nullptr) return;
    attention.key_centre = key_centre(config_, config, numbers(view));
    if (attention.key_centre.empty()) return;
    view.codes = reinterpret_cast<const std::byte*>(attention.key_centre.data());
    attention.key_offset = reinterpret_cast<const float*>(this->place(view).codes);
  }

  // Returns nullptr if the configuration has no such bias.
  const float* bias(const std::string& of) {
    const auto found = shapes_.find(of + ".bias");
    return found == shapes_.end() ? nullptr : vector(found->first, found->second);
  }

  Norm norm(const std::string& name, NormKind kind) {
    const Shape& shape = shapes_.at(name);  // [width]
    return {kind, vector(name, shape), bias(name), config_.norm_eps, shape[0]};
  }

  std::optional<Norm> post_norm(const std::string& name) {
    if (config_.post_norm_eps == 0) return std::nullopt;
    Norm found = norm(name, NormKind::rms);
    found.eps = config_.post_norm_eps;
    return found;
  }

  Norm norm_of(const LayerPlace& place, std::size_t site) {
    const NormSpec& norm_site = place.sites[site].norm.value();
    return norm(place.at(norm_site.name), norm_site.kind);
  }

  // Selects a site's weights: those that may be quantized, or those that never are.
  enum class Segments : std::uint8_t { usual, exact };

  LayerLinear linear(const LayerPlace& place, std::size_t index, Segments which = Segments::usual) {
    const LinearSite& site = place.sites[index];
    const bool single = site.weights.size() == 1, exact = which == Segments::exact;
    LayerLinear linear = empty_linear(place, index, single ? site.weights[0].name : site.name);
    if (exact) linear.name += ".exact";
    linear.exact = exact;
    for (const LinearSpec& weight : site.weights) {
      if (weight.exact != exact) continue;
      for (const Slice& rows : share_.rows(site, weight)) {
        add_segment(linear, place.at(weight.name), rows);
      }
    }
    return linear;
  }

  MtpInput mtp_input() {
    const auto norm_before = [&](const char* name) { return norm(name, config_.norm); };
    const auto linear_of = [&](const char* name) {
      LayerLinear linear;
      linear.name = linear.site_name = name;
      linear.inputs = config_.width;
      add_segment(linear, name, {0, config_.width});
      return linear;
    };
    return {norm_before("embedding_norm"), norm_before("hidden_norm"), linear_of("fc_embedding"),
            linear_of("fc_hidden")};
  }

  LayerLinear head() {
    LayerLinear head;
    head.name = head.site_name = "head";
    head.inputs = config_.width;
    add_segment(head, config_.tied ? "token_embedding" : "head", share_.vocabulary);
    return head;
  }

  // Appends the rows of a tensor that this rank computes as a new segment.
  void add_segment(Linear& linear, const std::string& name, const Slice& rows) {
    const StoredTensor& stored = tensor(name, shapes_.at(name));  // [outputs][inputs]
    LinearSegment& segment = linear.segments.emplace_back();
    segment.weight = place(slice_rows(stored.view, rows));
    segment.bias = bias(name);
    if (segment.bias != nullptr) segment.bias += rows.first;
    linear.outputs += rows.count();
    const std::string smooth = inv_smooth_tensor(name);
    if (linear.segments.size() == 1) {
      first_ = name;
      linear.act = stored.view.act;
      linear.act_scale = stored.act_scale;
      linear.online_mode = stored.online_mode;
      if (find_(smooth) != nullptr) linear.inv_smooth = vector(smooth, {linear.inputs});
      return;
    }
    const WeightView& first = linear.segments[0].weight;
    require(segment.weight.act == first.act && format(segment.weight) == format(first) &&
                stored.act_scale == linear.act_scale && stored.online_mode == linear.online_mode,
            source_, ": tensors ", first_, " and ", name,
            " share their input but want it in different formats");
    require(name == first_ || find_(smooth) == nullptr, source_, ": tensor ", smooth, ": ", name,
            " shares its input, expected ", inv_smooth_tensor(first_));
  }

  // Besides act, a linear's input format contains whether it has sums of codes, and the number of
  // columns per sum.
  static std::int64_t format(const WeightView& weight) {
    return weight.scheme.is_offset() ? sum_group(weight.scheme, weight.act, weight.columns) : 0;
  }

  const TensorFinder& find_;
  std::string_view source_;
  const ModelConfig& config_;
  DeviceMemory& memory_;
  const RankShare& share_;
  std::map<std::string, Shape> shapes_;  // from tensor_list
  Weights weights_;
  std::string first_;  // first tensor of the current linear
  std::map<std::pair<const std::byte*, std::int64_t>, WeightView> placed_;  // key: codes, rows
};

// A memory for weights that are only checked: returns views unchanged and allocates nothing.
class NoMemory final : public DeviceMemory {
 public:
  NoMemory() : DeviceMemory(1) {}
  std::optional<DeviceMemoryInfo> info() const override { return std::nullopt; }
  void plan(std::size_t, std::size_t) override {}
  WeightView place(const WeightView& weight, std::vector<Buffer>&) override { return weight; }
  UploadReport finish_placing() override { return {}; }
  void copy(std::byte*, const std::byte*, std::size_t) override {}
  void write(std::byte*, std::span<const std::byte>) override {}
  void read(const std::byte*, std::span<std::byte>) override {}

 private:
  std::byte* allocate_block(std::size_t) override {
    fail(ErrorKind::internal, "weights take memory");
  }
  void free_block(std::byte*, std::size_t) noexcept override {}
};

}  // namespace

std::string inv_smooth_tensor(std::string_view linear) {
  return std::string(linear) + ".inv_smooth";
}

Weights bind_weights(const LeqReader& file, const ModelConfig& config, DeviceMemory& memory) {
  const auto find = [&](std::string_view name) { return file.find(name); };
  return bind_weights(find, file.name(), config, memory);
}

Weights bind_weights(const TensorFinder& find, std::string_view source, const ModelConfig& config,
                     DeviceMemory& memory) {
  return bind_weights(find, source, config, memory, place_of(config, 0, 1));
}

Weights bind_weights(const TensorFinder& find, std::string_view source, const ModelConfig& config,
                     DeviceMemory& memory, const RankPlace& place) {
  const std::size_t before = memory.allocated();
  Weights weights = Binder(find, source, config, memory, place.own()).bind();
  weights.memory_bytes = memory.allocated() - before;
  weights.upload = memory.finish_placing();
  return weights;
}

TensorFinder mtp_tensors(TensorFinder find) {
  return [find = std::move(find)](std::string_view name) {
    return find(is_shared_with_mtp(name) ? std::string(name) : std::string(kMtp).append(name));
  };
}

void check_tensors(const LeqReader& file, const ModelConfig& config) {
  std::set<const StoredTensor*> used;
  const auto find = [&](std::string_view name) {
    const StoredTensor* found = file.find(name);
    used.insert(found);
    return found;
  };
  NoMemory memory;
  bind_weights(find, file.name(), config, memory);
  if (config.mtp) bind_weights(mtp_tensors(find), file.name(), mtp_model(config), memory);
  for (const StoredTensor& tensor : file.tensors()) {
    require(used.contains(&tensor), file.name(), ": tensor ", printable(tensor.name), " ",
            shape_text(tensor.shape), " has no place in a model of this configuration; the file ",
            "was changed, convert the model again");
  }
}

// Lists of the linears of bound weights, and the number of weight bytes that a step reads.

namespace {

void add_linears(const AttentionWeights& attention, std::vector<const LayerLinear*>& all) {
  all.insert(all.end(), {&attention.qkv, &attention.o});
}
void add_linears(const DeltaNetWeights& delta, std::vector<const LayerLinear*>& all) {
  all.insert(all.end(), {&delta.in, &delta.gates, &delta.out});
}
void add_linears(const ShortConvWeights& conv, std::vector<const LayerLinear*>& all) {
  all.insert(all.end(), {&conv.in, &conv.out});
}
void add_linears(const DenseMlpWeights& mlp, std::vector<const LayerLinear*>& all) {
  all.insert(all.end(), {&mlp.gate_up, &mlp.down});
}

void add_linears(const ExpertsMlpWeights& mlp, std::vector<const LayerLinear*>& all) {
  if (mlp.beside) add_linears(mlp.beside->dense, all);
  for (const LayerLinear& linear : mlp.gate_up) all.push_back(&linear);
  if (mlp.shared) all.push_back(&mlp.shared->gate_up);
  for (const LayerLinear& linear : mlp.down) all.push_back(&linear);
  if (mlp.shared) all.push_back(&mlp.shared->down);
}

// Expected share of experts used by `tokens` tokens if each token is routed to `active` random
// experts.
double used_share(const ExpertsMlpConfig& config, std::int64_t tokens) {
  const double missed =
      1 - static_cast<double>(config.active) / static_cast<double>(config.experts);
  return 1 - std::pow(missed, static_cast<double>(tokens));
}

std::uint64_t bytes_of_layer(const LayerWeights& layer, std::int64_t tokens) {
  std::uint64_t bytes = 0, routed = 0;
  for (const LayerLinear* linear : layer.linears()) bytes += moved_bytes(*linear);
  if (layer.input) bytes += moved_bytes(layer.input->gate) + moved_bytes(layer.input->projection);
  const ExpertsMlpWeights* mlp = layer.experts_mlp();
  if (mlp == nullptr) return bytes;
  for (std::size_t e = 0; e < mlp->gate_up.size(); ++e) {
    routed += moved_bytes(mlp->gate_up[e]) + moved_bytes(mlp->down[e]);
  }
  bytes += moved_bytes(mlp->router) - routed;
  return bytes +
         static_cast<std::uint64_t>(static_cast<double>(routed) * used_share(mlp->config, tokens));
}

}  // namespace

std::vector<const LayerLinear*> LayerWeights::linears() const {
  std::vector<const LayerLinear*> all;
  const auto add = [&](const auto& kind) { add_linears(kind, all); };
  std::visit(add, mixer);
  std::visit(add, mlp);
  return all;
}

std::uint64_t Weights::bytes_of_step(std::int64_t tokens) const {
  std::uint64_t bytes = moved_bytes(head) + moved_bytes(layer_projection);
  for (const LayerWeights& layer : layers) bytes += bytes_of_layer(layer, tokens);
  return bytes;
}

}  // namespace leq

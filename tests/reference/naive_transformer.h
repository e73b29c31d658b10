// A naive transformer in double precision, written from the papers, which shares no code with the
// engine except the import of a checkpoint's names. It is the reference for families, shapes and
// scalings without golden files.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "convert/hf_import.h"

namespace leq::test {

class NaiveTransformer {
 public:
  explicit NaiveTransformer(const ImportedModel& model) : c_(model.config) {
    for (const TensorInput& tensor : model.tensors) {
      const std::int64_t rows = tensor.shape[0];
      const std::int64_t columns = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
      std::vector<float> values(static_cast<std::size_t>(rows * columns));
      if (tensor.shape.size() == 2)
        tensor.read(0, rows, values);
      else
        tensor.read(0, rows, values);
      tensors_[tensor.name] = {values.begin(), values.end()};
    }
  }

  // Creates the transformer from tensors by name, each of them row-major.
  NaiveTransformer(const ModelConfig& config, std::map<std::string, std::vector<double>> tensors)
      : c_(config), tensors_(std::move(tensors)) {}

  // Maps the name of a linear ("layers.0.q") to the largest |x| of each of its input channels over
  // all calls of forward.
  const std::map<std::string, std::vector<double>>& input_absmax() const { return absmax_; }

  using Matrix = std::vector<std::vector<double>>;

  // Called with each row that linears of a block read and a name such as "layers.0.qkv" or
  // "layers.0.down"; it may change the row.
  std::function<void(const std::string& input, std::vector<double>& row)> on_input;

  // Returns logits of every position of one sequence.
  Matrix forward(const std::vector<std::int32_t>& ids) const {
    Matrix x;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      x.push_back(row("token_embedding", ids[t], c_.width));
      for (double& number : x.back()) number *= c_.embedding_scale;
      if (!c_.learned_positions) continue;
      const auto position = row("position_embedding", static_cast<std::int64_t>(t), c_.width);
      for (std::size_t i = 0; i < position.size(); ++i) x.back()[i] += position[i];
    }
    for (std::int64_t l = 0; l < c_.layer_count(); ++l) layer(l, x);
    Matrix logits;
    for (const auto& state : x) {
      logits.push_back(
          linear(norm(state, "final_norm"), c_.tied ? "token_embedding" : "head", c_.vocab));
      if (const auto& [scale, cap] = c_.logit_cap; cap > 0) {
        for (double& logit : logits.back()) logit = cap * std::tanh(scale * logit / cap);
      }
    }
    return logits;
  }

 private:
  const std::vector<double>& tensor(const std::string& name) const { return tensors_.at(name); }

  std::vector<double> row(const std::string& name, std::int64_t index, std::int64_t width) const {
    const auto& table = tensor(name);
    return {table.begin() + index * width, table.begin() + (index + 1) * width};
  }

  std::vector<double> linear(const std::vector<double>& x, const std::string& name,
                             std::int64_t outputs) const {
    const auto& w = tensor(name);
    const auto bias = tensors_.find(name + ".bias");
    auto& absmax = absmax_[name];
    absmax.resize(x.size());
    for (std::size_t k = 0; k < x.size(); ++k) absmax[k] = std::max(absmax[k], std::abs(x[k]));
    std::vector<double> y(static_cast<std::size_t>(outputs));
    for (std::size_t n = 0; n < y.size(); ++n) {
      for (std::size_t k = 0; k < x.size(); ++k) y[n] += x[k] * w[n * x.size() + k];
      if (bias != tensors_.end()) y[n] += bias->second[n];
    }
    return y;
  }

  std::vector<double> norm(std::vector<double> x, const std::string& name) const {
    return norm(std::move(x), name, c_.norm_eps);
  }

  std::vector<double> norm(std::vector<double> x, const std::string& name, double eps) const {
    const auto& gain = tensor(name);
    const auto n = static_cast<double>(x.size());
    double mean = 0, square = 0;
    if (c_.norm == NormKind::layer) {
      for (const double v : x) mean += v / n;
    }
    for (double& v : x) {
      v -= mean;
      square += v * v / n;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = x[i] / std::sqrt(square + eps) * gain[i];
      if (c_.norm == NormKind::layer) x[i] += tensor(name + ".bias")[i];
    }
    return x;
  }

  // Computes stream += y, where y is normalized if the model normalizes sublayer outputs.
  void add(std::vector<double> y, const std::string& post_norm, std::vector<double>& stream) const {
    if (c_.post_norm_eps > 0) y = norm(std::move(y), post_norm, c_.post_norm_eps);
    for (std::size_t i = 0; i < y.size(); ++i) stream[i] += y[i];
  }

  // Returns the angle per position of pair i, and the factor of cosine and sine.
  std::pair<double, double> rotary(const RopeConfig& rope, std::int64_t i,
                                   std::size_t length) const {
    const auto d = static_cast<double>(rope.dims > 0 ? rope.dims : c_.head_dim);
    const RopeScaling& s = rope.scaling;
    double base = rope.theta;
    const auto made_for = static_cast<double>(c_.context);
    if (s.kind == RopeScalingKind::dynamic) {
      const double now = std::max(static_cast<double>(length), made_for);
      base *= std::pow(s.factor * now / made_for - (s.factor - 1), d / (d - 2));
    }
    const double plain = std::pow(base, -2.0 * static_cast<double>(i) / d);
    const double turns = static_cast<double>(s.original_context) * plain / (2 * std::numbers::pi);
    switch (s.kind) {
      case RopeScalingKind::linear:
        return {plain / s.factor, 1.0};
      case RopeScalingKind::proportional:
        return {static_cast<double>(i) < s.rotated * d / 2 ? plain / s.factor : 0.0, 1.0};
      case RopeScalingKind::llama3: {
        // turns over the original context: few = stretched, many = kept, in between interpolated
        if (turns < s.low_freq_factor) return {plain / s.factor, 1.0};
        if (turns > s.high_freq_factor) return {plain, 1.0};
        const double keep = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
        return {(1 - keep) * plain / s.factor + keep * plain, 1.0};
      }
      case RopeScalingKind::yarn: {
        const auto dim_of = [&](double rotations) {
          return d *
                 std::log(static_cast<double>(s.original_context) /
                          (rotations * 2 * std::numbers::pi)) /
                 (2 * std::log(base));
        };
        const double from = dim_of(s.beta_fast), to = dim_of(s.beta_slow);
        const double low = std::max(0.0, s.truncate ? std::floor(from) : from);
        const double high = std::min(d - 1, s.truncate ? std::ceil(to) : to);
        const double stretch =
            std::min(1.0, std::max(0.0, (static_cast<double>(i) - low) / (high - low)));
        double factor = s.attention_factor > 0 ? s.attention_factor : 0.1 * std::log(s.factor) + 1;
        if (s.mscale > 0 && s.mscale_all_dim > 0 && s.attention_factor <= 0) {
          factor = (0.1 * s.mscale * std::log(s.factor) + 1) /
                   (0.1 * s.mscale_all_dim * std::log(s.factor) + 1);
        }
        return {plain / s.factor * stretch + plain * (1 - stretch), factor};
      }
      default:
        return {plain, 1.0};
    }
  }

  void rotate(const AttentionConfig& attention, std::vector<double>& heads, std::size_t position,
              std::size_t length) const {
    const RopeConfig& rope = *attention.rope;
    const std::int64_t dims = c_.kv_heads_of(attention).dims;
    const std::int64_t half = (rope.dims > 0 ? rope.dims : dims) / 2;
    for (std::size_t h = 0; h < heads.size(); h += static_cast<std::size_t>(dims)) {
      for (std::int64_t i = 0; i < half; ++i) {
        const auto [frequency, factor] = rotary(rope, i, length);
        const double angle = static_cast<double>(position) * frequency;
        double& a = heads[h + static_cast<std::size_t>(i)];
        double& b = heads[h + static_cast<std::size_t>(i + half)];
        const double x = a, y = b;
        a = (x * std::cos(angle) - y * std::sin(angle)) * factor;
        b = (y * std::cos(angle) + x * std::sin(angle)) * factor;
      }
    }
  }

  void head_norm(std::vector<double>& heads, const std::string& name) const {
    const auto dims = std::ssize(tensor(name));
    for (auto h = heads.begin(); h != heads.end(); h += dims) {
      const auto normed = norm({h, h + dims}, name);
      std::copy(normed.begin(), normed.end(), h);
    }
  }

  void layer(std::int64_t l, Matrix& x) const {
    const std::string at = "layers." + std::to_string(l) + ".";
    if (c_.layer(l).delta_net() != nullptr) {
      delta_sublayer(*c_.layer(l).delta_net(), at, x);
    } else if (c_.layer(l).short_conv() != nullptr) {
      conv_sublayer(c_.layer(l).short_conv()->taps, at, x);
    } else {
      attention_sublayer(l, at, x);
    }
    mlp_sublayer(c_.layer(l), at, x);
    for (auto& state : x) {
      for (double& value : state) value *= c_.layer_scales ? tensor(at + "layer_scale")[0] : 1;
    }
  }

  void attention_sublayer(std::int64_t l, const std::string& at, Matrix& x) const {
    const AttentionConfig& attention = *c_.layer(l).attention();
    const auto [kv_heads, d] = c_.kv_heads_of(attention);
    Matrix q, k, v, gates;
    for (std::size_t t = 0; t < x.size(); ++t) {
      auto h = norm(x[t], at + "attention_norm");
      if (on_input) on_input(at + "qkv", h);
      q.push_back(linear(h, at + "q", c_.heads * d));
      k.push_back(linear(h, at + "k", kv_heads * d));
      v.push_back(linear(h, at + "v", kv_heads * d));
      if (attention.output_gate) gates.push_back(linear(h, at + "attention_gate", c_.heads * d));
      if (attention.qk_norm) {
        head_norm(q.back(), at + "q_norm");
        head_norm(k.back(), at + "k_norm");
      }
      if (attention.v_norm) head_norm(v.back(), at + "v_norm");
      if (attention.rope) rotate(attention, q.back(), t, x.size());
      if (attention.rope) rotate(attention, k.back(), t, x.size());
      if (const QueryTemperature& sharp = attention.temperature; sharp.period > 0) {
        const auto part = static_cast<double>(t / static_cast<std::size_t>(sharp.period));
        for (double& value : q.back()) value *= 1.0 + sharp.beta * std::log(1.0 + part);
      }
    }
    for (std::size_t t = 0; t < x.size(); ++t) {
      std::vector<double> mixed(static_cast<std::size_t>(c_.heads * d));
      for (std::int64_t h = 0; h < c_.heads; ++h) attend(l, t, h, q, k, v, mixed);
      for (std::size_t i = 0; attention.output_gate && i < mixed.size(); ++i) {
        mixed[i] /= 1 + std::exp(-gates[t][i]);
      }
      if (on_input) on_input(at + "o", mixed);
      add(linear(mixed, at + "o", c_.width), at + "attention_post_norm", x[t]);
    }
  }

  // Gated DeltaNet: a state for each value head, updated token by token.
  void delta_sublayer(const DeltaNetConfig& delta, const std::string& at, Matrix& x) const {
    const std::int64_t channels = delta.channels();
    std::vector<Matrix> states(
        static_cast<std::size_t>(delta.value_heads),
        Matrix(static_cast<std::size_t>(delta.key_dim),
               std::vector<double>(static_cast<std::size_t>(delta.value_dim))));
    Matrix seen;  // inputs of the convolution
    for (auto& stream : x) {
      auto h = norm(stream, at + "delta_in_norm");
      if (on_input) on_input(at + "delta_in", h);
      seen.push_back(linear(h, at + "delta_qkv", channels));
      const auto z = linear(h, at + "delta_z", delta.values());
      const auto b = linear(h, at + "delta_b", delta.value_heads);
      const auto a = linear(h, at + "delta_a", delta.value_heads);
      const auto qkv = convolved(delta, at, seen);
      std::vector<double> out;
      for (std::int64_t head = 0; head < delta.value_heads; ++head) {
        const auto i = static_cast<std::size_t>(head);
        const double decay = std::exp(-std::exp(tensor(at + "delta_a_log")[i]) *
                                      std::log1p(std::exp(a[i] + tensor(at + "delta_dt_bias")[i])));
        const auto o = remembered(delta, head, qkv, decay, 1 / (1 + std::exp(-b[i])), states[i]);
        const auto normed = norm(o, at + "delta_norm");
        for (const double value : normed) {
          const double gate = z[out.size()];
          out.push_back(value * gate / (1 + std::exp(-gate)));
        }
      }
      const auto divided = tensors_.find(at + "delta_out.inv_smooth");
      for (std::size_t i = 0; divided != tensors_.end() && i < out.size(); ++i) {
        out[i] *= divided->second[i];
      }
      if (on_input) on_input(at + "delta_out", out);
      const auto y = linear(out, at + "delta_out", c_.width);
      for (std::size_t i = 0; i < y.size(); ++i) stream[i] += y[i];
    }
  }

  void conv_sublayer(std::int64_t taps, const std::string& at, Matrix& x) const {
    Matrix seen;  // products b x
    const auto width = static_cast<std::size_t>(c_.width);
    for (auto& stream : x) {
      auto h = norm(stream, at + "conv_in_norm");
      if (on_input) on_input(at + "conv_in", h);
      auto b = linear(h, at + "conv_b", c_.width), y = linear(h, at + "conv_x", c_.width);
      for (std::size_t i = 0; i < width; ++i) b[i] *= y[i];
      seen.push_back(b);
      y.assign(width, 0);
      for (std::size_t j = 0; j < static_cast<std::size_t>(taps) && j < seen.size(); ++j) {
        const double* tap =
            &tensor(at + "conv_taps")[(static_cast<std::size_t>(taps) - 1 - j) * width];
        for (std::size_t i = 0; i < width; ++i) y[i] += tap[i] * seen[seen.size() - 1 - j][i];
      }
      const auto c = linear(h, at + "conv_c", c_.width);
      for (std::size_t i = 0; i < width; ++i) y[i] *= c[i];
      if (on_input) on_input(at + "conv_out", y);
      const auto out = linear(y, at + "conv_out", c_.width);
      for (std::size_t i = 0; i < width; ++i) stream[i] += out[i];
    }
  }

  std::vector<double> convolved(const DeltaNetConfig& delta, const std::string& at,
                                const Matrix& seen) const {
    const auto channels = static_cast<std::size_t>(delta.channels());
    const auto taps = static_cast<std::size_t>(delta.conv_taps);
    std::vector<double> out(channels);
    for (std::size_t back = 0; back < taps && back < seen.size(); ++back) {
      const auto& input = seen[seen.size() - 1 - back];
      for (std::size_t ch = 0; ch < channels; ++ch) {
        out[ch] += tensor(at + "delta_conv")[(taps - 1 - back) * channels + ch] * input[ch];
      }
    }
    for (double& value : out) value /= 1 + std::exp(-value);
    return out;
  }

  // Updates a head's state with the token's key and value; returns the output for its query.
  static std::vector<double> remembered(const DeltaNetConfig& delta, std::int64_t head,
                                        const std::vector<double>& qkv, double decay, double rate,
                                        Matrix& state) {
    const std::int64_t key_head = head / (delta.value_heads / delta.key_heads);
    const auto unit = [&](std::int64_t first) {
      std::vector<double> key(qkv.begin() + first, qkv.begin() + first + delta.key_dim);
      double squares = 1e-6;
      for (const double value : key) squares += value * value;
      for (double& value : key) value /= std::sqrt(squares);
      return key;
    };
    const auto q = unit(key_head * delta.key_dim),
               k = unit(delta.keys() + key_head * delta.key_dim);
    const double* v = qkv.data() + 2 * delta.keys() + head * delta.value_dim;
    std::vector<double> out;
    for (std::size_t j = 0; j < static_cast<std::size_t>(delta.value_dim); ++j) {
      double known = 0, read = 0;
      for (std::size_t i = 0; i < k.size(); ++i) known += (state[i][j] *= decay) * k[i];
      for (std::size_t i = 0; i < k.size(); ++i) {
        state[i][j] += k[i] * rate * (v[j] - known);
        read += state[i][j] * q[i] / std::sqrt(static_cast<double>(k.size()));
      }
      out.push_back(read);
    }
    return out;
  }

  void mlp_sublayer(const LayerConfig& layer, const std::string& at, Matrix& x) const {
    for (auto& state : x) {
      const ExpertsMlpConfig* mixture = layer.experts_mlp();
      const std::int64_t beside = mixture != nullptr ? mixture->dense_hidden : 0;
      auto h = norm(state, at + "mlp_norm");
      if (mixture != nullptr && beside == 0) {
        experts(*mixture, at, h, h, state);
        continue;
      }
      const DenseMlpConfig mlp =
          beside == 0 ? *layer.dense_mlp() : DenseMlpConfig{beside, true, mixture->activation};
      if (on_input) on_input(at + "gate_up", h);
      auto up = linear(h, at + "up", mlp.hidden);
      if (mlp.gated) {
        up = gated(mlp.activation, linear(h, at + "gate", mlp.hidden), up);
      } else {
        for (double& u : up) u = activated(mlp.activation, u);
      }
      const auto divided = tensors_.find(at + "down.inv_smooth");
      for (std::size_t i = 0; divided != tensors_.end() && i < up.size(); ++i) {
        up[i] *= divided->second[i];
      }
      if (on_input) on_input(at + "down", up);
      if (beside == 0) {
        add(linear(up, at + "down", c_.width), at + "mlp_post_norm", state);
        continue;
      }
      auto both = norm(linear(up, at + "down", c_.width), at + "mlp_post_norm", c_.post_norm_eps);
      std::vector<double> sum(state.size());
      auto own = norm(state, at + "experts_norm");
      experts(*mixture, at, norm(state, at + "router_norm"), own, sum);
      sum = norm(sum, at + "experts_post_norm", c_.post_norm_eps);
      for (std::size_t i = 0; i < both.size(); ++i) both[i] += sum[i];
      add(both, at + "joined_post_norm", state);
    }
  }

  static double activated(Activation f, double u) {
    if (f == Activation::silu) return u / (1 + std::exp(-u));
    return 0.5 * u * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (u + 0.044715 * u * u * u)));
  }
  static std::vector<double> gated(Activation f, const std::vector<double>& gate,
                                   std::vector<double> up) {
    for (std::size_t i = 0; i < up.size(); ++i) {
      if (f == Activation::clamped_swiglu) {
        const double g = std::min(gate[i], 7.0), u = std::min(7.0, std::max(-7.0, up[i]));
        up[i] = g / (1 + std::exp(-1.702 * g)) * (u + 1);
      } else {
        up[i] *= activated(f, gate[i]);
      }
    }
    return up;
  }

  // state += weight * down(f(gate h) * up h)
  void expert(Activation f, const std::string& at, std::int64_t hidden, double weight,
              const std::vector<double>& h, std::vector<double>& state) const {
    auto up = gated(f, linear(h, at + "gate", hidden), linear(h, at + "up", hidden));
    if (on_input) on_input(at + "down", up);
    const auto y = linear(up, at + "down", c_.width);
    for (std::size_t i = 0; i < y.size(); ++i) state[i] += weight * y[i];
  }

  void experts(const ExpertsMlpConfig& mlp, const std::string& at, const std::vector<double>& read,
               std::vector<double>& h, std::vector<double>& state) const {
    if (on_input) on_input(at + "experts", h);
    auto p = linear(read, at + "router", mlp.experts);
    double sum = 0;
    const double largest = *std::max_element(p.begin(), p.end());
    for (double& value : p) sum += value = std::exp(mlp.sigmoid ? -value : value - largest);
    for (double& value : p) value = mlp.sigmoid ? 1 / (1 + value) : value / sum;
    auto scores = p;
    for (std::size_t e = 0; mlp.choice_bias && e < p.size(); ++e) {
      scores[e] += tensor(at + "choice_bias")[e];
    }
    // Repeatedly chooses the largest remaining score, the first among equals.
    std::map<std::int64_t, double> chosen;
    for (std::int64_t i = 0; i < mlp.active; ++i) {
      const auto best = std::max_element(scores.begin(), scores.end());
      chosen[best - scores.begin()] = p[static_cast<std::size_t>(best - scores.begin())];
      *best = -1e300;
    }
    double total = mlp.sigmoid ? 1e-6 : 0;
    for (const auto& [e, weight] : chosen) total += weight;
    if (!mlp.normalized) total = 1;
    total /= mlp.weight_scale;
    for (const auto& [e, weight] : chosen) {
      const double scale =
          mlp.dense_hidden > 0 ? tensor(at + "router_scales")[static_cast<std::size_t>(e)] : 1;
      expert(mlp.activation, at + "experts." + std::to_string(e) + ".", mlp.hidden,
             weight / total * scale, h, state);
    }
    if (mlp.shared_hidden == 0) return;
    const double gate = linear(h, at + "shared_gate", 1)[0];
    expert(mlp.activation, at + "shared.", mlp.shared_hidden, 1 / (1 + std::exp(-gate)), h, state);
  }

  void attend(std::int64_t l, std::size_t t, std::int64_t h, const Matrix& q, const Matrix& k,
              const Matrix& v, std::vector<double>& mixed) const {
    const auto [kv_heads, dims] = c_.kv_heads_of(*c_.layer(l).attention());
    const auto d = static_cast<std::size_t>(dims);
    const std::size_t from = static_cast<std::size_t>(h) * d;
    const std::size_t kv = static_cast<std::size_t>(h / (c_.heads / kv_heads)) * d;
    const auto window = static_cast<std::size_t>(c_.window(l));
    const std::size_t first = window > 0 && t + 1 > window ? t + 1 - window : 0;
    std::vector<double> score;
    double largest = -1e300, sum = 0;
    for (std::size_t j = first; j <= t; ++j) {
      double dot = 0;
      for (std::size_t i = 0; i < d; ++i) dot += q[t][from + i] * k[j][kv + i];
      const double scale = c_.layer(l).attention()->query_scale;
      score.push_back(scale != 0 ? dot * scale : dot / std::sqrt(static_cast<double>(d)));
      largest = std::max(largest, score.back());
    }
    for (double& s : score) sum += s = std::exp(s - largest);
    if (c_.layer(l).attention()->sinks) {
      const std::string name = "layers." + std::to_string(l) + ".attention_sinks";
      sum += std::exp(tensor(name)[static_cast<std::size_t>(h)] - largest);
    }
    for (std::size_t j = first; j <= t; ++j) {
      for (std::size_t i = 0; i < d; ++i) mixed[from + i] += score[j - first] / sum * v[j][kv + i];
    }
  }

  ModelConfig c_;
  std::map<std::string, std::vector<double>> tensors_;
  mutable std::map<std::string, std::vector<double>> absmax_;
};

}  // namespace leq::test

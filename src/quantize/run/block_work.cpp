#include "quantize/run/block_work.h"

#include <algorithm>
#include <utility>

#include "format/leq_layout.h"
#include "model/weights.h"
#include "quantize/methods/method.h"
#include "quantize/methods/zeroquant.h"
#include "quantize/rewrites/act_rounding.h"
#include "quantize/rewrites/fold.h"

namespace leq {

// Returns nullptr for parts that a fold has added.
const TensorSpec* BlockWork::find_part(const std::string& part) const {
  const auto found = std::ranges::find(specs_, part, &TensorSpec::name);
  return found != specs_.end() ? &*found : nullptr;
}

// The plan of a linear of this block.
TensorPlan BlockWork::plan_of(const std::string& part) const {
  TensorPlan plan = context_.options.plan(layer_tensor(layer_, part), find_part(part)->role);
  const std::size_t site = site_of(sites_, part);
  if (plan.act == ActKind::tensor && by_token_.contains(sites_[site].block_name()))
    plan.act = ActKind::row;
  if (rare_.contains(site) && plan.method != nullptr && plan.method->needs != Needs::nothing) {
    const QuantMethod& rtn = require_method("rtn");
    plan.method = rtn.supports(plan.scheme) ? &rtn : nullptr;
    plan.label.clear();
  }
  return plan;
}

bool BlockWork::is_rare(const std::string& part) const {
  return rare_.contains(site_of(sites_, part));
}

void BlockWork::check_inputs_scale(std::size_t site, const InputStatistics& inputs) {
  count_tokens(site, inputs);
  if (!rare_.contains(site)) return check_static_scale(site, inputs);
  by_token_.insert(sites_[site].block_name());
}

void BlockWork::count_tokens(std::size_t index, const InputStatistics& inputs) {
  const LinearSite& site = sites_[index];
  if (site.share() == 1) return;
  if (experts_.experts == 0 || inputs.tokens < experts_.fewest) {
    experts_.fewest = inputs.tokens;
    experts_.site = input_name(layer_, site);
  }
  ++experts_.experts;
  if (inputs.tokens >= kFewestExpertTokens) return;
  ++experts_.rare;
  rare_.insert(index);
}

void BlockWork::check_static_scale(std::size_t index, const InputStatistics& inputs) {
  if (context_.options.max_static_error == 0) return;
  for (const SmoothingSite& site : smoothing_sites(context_.config, layer_)) {
    if (site_of(sites_, site.consumers.front()) != index) continue;
    const TensorPlan plan = plan_of(site.consumers.front());
    if (plan.act != ActKind::tensor || !plan.scheme.is_integer()) return;
    const ActErrors errors =
        act_errors(make_site(site, block_, inputs, &context_.pool, context_.ranks), plan.scheme,
                   static_act_scale(inputs));
    if (errors.fixed > context_.options.max_static_error * errors.by_token) {
      by_token_.insert(sites_[index].block_name());
    }
  }
}

void BlockWork::fold(Statistics& statistics) {
  const auto plan = [&](const std::string& part) { return plan_of(part); };
  for (const SmoothingSite& site : smoothing_sites(context_.config, layer_)) {
    const std::size_t index = site_of(sites_, site.consumers.front());
    InputStatistics& inputs = statistics.at(index);
    if (sites_[index].share() < 1 && inputs.tokens < kFewestExpertTokens) continue;
    const FoldChoice choice =
        context_.options.fold->choose({site, block_, inputs, plan, context_.pool, context_.ranks});
    const std::vector<float>& scale = choice.scales;
    if (scale.empty()) continue;
    fold_scales(block_, site, scale);
    folds_[site_of(sites_, site.consumers.front())] =
        checksum_text(checksum(std::as_bytes(std::span(scale))));
    for (std::size_t i = 0; i < choice.weights.size(); ++i) {
      block_.at(site.consumers[i]).values = choice.weights[i];
    }
    std::vector<float> of_column(static_cast<std::size_t>(site.columns));
    for (std::size_t k = 0; k < of_column.size(); ++k) {
      of_column[k] = scale[static_cast<std::size_t>(site.scale_of[k])];
    }
    divide_inputs(inputs, of_column);
  }
}

std::int64_t BlockWork::size_of(const std::string& part) const {
  return std::ssize(block_.at(part).values);
}

bool BlockWork::divides_rows(const std::string& part) const {
  return leq::divides_rows(plan_of(part));
}

QuantizedTensor BlockWork::quantize(const std::string& part, const InputStatistics& inputs) const {
  const Matrix& weight = block_.at(part);
  QuantizedTensor result = quantize_values(
      weight.values, weight.rows, weight.columns, plan_of(part), is_rare(part) ? nullptr : &inputs,
      layer_tensor(layer_, part), context_.pool, divides_rows(part) ? context_.ranks : one_rank());
  if (const auto found = folds_.find(site_of(sites_, part)); found != folds_.end()) {
    result.record.fold = found->second;
  }
  return result;
}

void BlockWork::keep(const std::string& part, QuantizedTensor chosen,
                     const InputStatistics& inputs) {
  if (part == "k") note_key_mean(inputs);
  const TensorPlan plan = plan_of(part);
  Matrix& weight = block_.at(part);
  const QuantizedTensor& result = done_[part] = std::move(chosen);
  const std::string bias = part + ".bias";
  const bool corrected = context_.options.correct_bias && plan.method != nullptr &&
                         !plan.scheme.is_float() && block_.has(bias) && !is_rare(part);
  if (corrected) {
    std::vector<float> found(weight.values.size());
    unpack_all(result.weight.view(), found, context_.pool);
    const std::vector<float> gain = bias_correction(
        {weight.values, found, weight.rows, weight.columns, &context_.pool}, inputs);
    std::vector<float>& values = block_.at(bias).values;
    for (std::size_t n = 0; n < gain.size(); ++n) values[n] += gain[n];
  }
  // Changes the values in place, because a run of this block has pointers to them.
  if (context_.sequential) unpack_all(result.weight.view(), weight.values, context_.pool);
}

// Mean of the unquantized k. Undefined with norms of keys, because a norm is not linear.
void BlockWork::note_key_mean(const InputStatistics& inputs) {
  const AttentionConfig* attention = context_.config.layer(layer_).attention();
  if (attention == nullptr || attention->qk_norm) return;
  const Matrix& weight = block_.at("k");
  Matrix mean{1, weight.rows, mean_outputs(weight.values, inputs, context_.pool)};
  if (block_.has("k.bias")) {
    const std::vector<float>& bias = block_.at("k.bias").values;
    for (std::size_t n = 0; n < bias.size(); ++n) mean.values[n] += bias[n];
  }
  block_.parts[std::string(kKeyMean)] = std::move(mean);
}

std::vector<BlockTensor> BlockWork::finish() {
  std::vector<BlockTensor> tensors;
  const auto add_vector = [&](const std::string& part) {
    const Matrix& matrix = block_.at(part);
    const TensorSpec* spec = find_part(part);
    const std::string name = layer_tensor(layer_, part);
    tensors.push_back({name, spec != nullptr ? spec->shape : Shape{matrix.columns},
                       quantize_values(matrix.values, matrix.rows, matrix.columns,
                                       context_.options.plan(name, TensorRole::vector), nullptr,
                                       name, context_.pool)});
  };
  for (const TensorSpec& spec : specs_) {
    if (is_block_linear(spec.role)) {
      tensors.push_back(
          {layer_tensor(layer_, spec.name), spec.shape, std::move(done_.at(spec.name))});
    } else {
      add_vector(spec.name);
    }
  }
  for (const auto& [part, matrix] : block_.parts) {  // not in the list: inv_smooth, key_mean
    if (find_part(part) == nullptr) add_vector(part);
  }
  return tensors;
}

}  // namespace leq

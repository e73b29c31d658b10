// Lists of the linears of bound weights, and the number of weight bytes that a step reads.
#include <cmath>

#include "backend/step_times.h"
#include "model/weights.h"

namespace leq {
namespace {

void add_linears(const AttentionWeights& attention, std::vector<const LayerLinear*>& all) {
  all.insert(all.end(), {&attention.qkv, &attention.o});
}
void add_linears(const DeltaNetWeights& delta, std::vector<const LayerLinear*>& all) {
  all.insert(all.end(), {&delta.in, &delta.gates, &delta.out});
}
void add_linears(const DenseMlpWeights& mlp, std::vector<const LayerLinear*>& all) {
  all.insert(all.end(), {&mlp.gate_up, &mlp.down});
}

void add_linears(const ExpertsMlpWeights& mlp, std::vector<const LayerLinear*>& all) {
  for (const LayerLinear& linear : mlp.gate_up) all.push_back(&linear);
  if (mlp.shared) all.push_back(&mlp.shared->gate_up);
  for (const LayerLinear& linear : mlp.down) all.push_back(&linear);
  if (mlp.shared) all.push_back(&mlp.shared->down);
}

// Expected share of experts used by `tokens` tokens if each token is routed to `active` random
// experts.
double met_share(const ExpertsMlpConfig& config, std::int64_t tokens) {
  const double missed =
      1 - static_cast<double>(config.active) / static_cast<double>(config.experts);
  return 1 - std::pow(missed, static_cast<double>(tokens));
}

std::uint64_t bytes_of_layer(const LayerWeights& layer, std::int64_t tokens) {
  std::uint64_t bytes = 0, routed = 0;
  for (const LayerLinear* linear : layer.linears()) bytes += moved_bytes(*linear);
  const ExpertsMlpWeights* mlp = layer.experts_mlp();
  if (mlp == nullptr) return bytes;
  for (std::size_t e = 0; e < mlp->gate_up.size(); ++e) {
    routed += moved_bytes(mlp->gate_up[e]) + moved_bytes(mlp->down[e]);
  }
  bytes += moved_bytes(mlp->router) - routed;
  if (mlp->shared) bytes += moved_bytes(mlp->shared->gate);
  return bytes +
         static_cast<std::uint64_t>(static_cast<double>(routed) * met_share(mlp->config, tokens));
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
  std::uint64_t bytes = moved_bytes(head);
  for (const LayerWeights& layer : layers) bytes += bytes_of_layer(layer, tokens);
  return bytes;
}

}  // namespace leq

#include "model/layer_config.h"

#include <algorithm>

namespace leq {

std::vector<LayerConfig> UniformLayers::layers() const {
  std::vector<LayerConfig> all(static_cast<std::size_t>(count), LayerConfig{attention, mlp});
  for (std::size_t i = 0; i < windows.size() && i < all.size(); ++i) {
    all[i].attention()->window = windows[i];
  }
  return all;
}

std::optional<UniformLayers> uniform_layers(std::span<const LayerConfig> layers) {
  UniformLayers uniform;
  uniform.count = std::ssize(layers);
  for (const LayerConfig& layer : layers) {
    if (layer.attention() == nullptr || layer.dense_mlp() == nullptr) return std::nullopt;
    uniform.windows.push_back(layer.attention()->window);
  }
  if (layers.empty()) return uniform;
  uniform.attention = *layers[0].attention();
  uniform.attention.window = 0;
  uniform.mlp = *layers[0].dense_mlp();
  if (std::ranges::all_of(uniform.windows, [](std::int32_t w) { return w == 0; })) {
    uniform.windows.clear();
  }
  return std::ranges::equal(uniform.layers(), layers) ? std::optional(uniform) : std::nullopt;
}

}  // namespace leq

#include "convert/hf_weights.h"

#include <algorithm>

#include "convert/quantization_config.h"
#include "format/packed_source.h"
#include "format/safetensors.h"

namespace leq {

std::unique_ptr<TensorSource> open_weights(const std::filesystem::path& folder, const Json& config,
                                           std::vector<std::string>& notes) {
  auto files = open_safetensors(folder, &notes);
  const auto options = read_quantization_config(config, (folder / "config.json").string());
  if (!options) return files;
  auto packed = std::make_unique<PackedSource>(std::move(files), *options);
  notes.push_back(packed->note());
  return packed;
}

// Weights are inexact if they have sorted columns or unusual groups, or are floats of few bits.
void note_inexact(std::span<const TensorInput> tensors, std::vector<std::string>& notes) {
  const auto count = std::ranges::count_if(tensors, [](const TensorInput& tensor) {
    return tensor.role != TensorRole::vector && !tensor.own_scheme && !tensor.source_type.empty();
  });
  if (count == 0) return;
  notes.push_back(std::to_string(count) +
                  " weights have no scheme that holds their numbers as they are: they are read as "
                  "floats and quantized again");
}

// Tensors that are not of a float type, such as masks, are ignored.
DType exact_dtype(const TensorSource& source) {
  const auto holds = [&](DType dtype) {
    return std::ranges::any_of(source.tensors(),
                               [&](const SourceTensor& tensor) { return tensor.dtype == dtype; });
  };
  const bool has_codes = source.tells_types();
  if (has_codes || holds(DType::f32) || holds(DType::f16) == holds(DType::bf16)) return DType::f32;
  return holds(DType::f16) ? DType::f16 : DType::bf16;
}

}  // namespace leq

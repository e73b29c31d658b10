// Models of published shapes with random weights that are generated in memory, for measurements
// without a file: "synthetic:llama-7b:int8", "synthetic:qwen3-14b:int4-g128:layers=8".
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/huge_pages.h"
#include "base/thread_pool.h"
#include "model/model_config.h"
#include "model/weights.h"
#include "tokenizer/spec.h"

namespace leq {

struct SyntheticSpec {
  std::string shape;  // "llama-7b"
  QuantScheme type;
  std::int64_t layers = 0;  // 0 = all layers of the shape
};

// is_synthetic returns whether a model's name denotes synthetic weights. parse_synthetic parses
// such a name and throws Error, with a list of the valid parts, if the name is wrong.
bool is_synthetic(std::string_view model);
SyntheticSpec parse_synthetic(std::string_view model);

// The names of all shapes: "gpt2-124m", "llama-110m", ...
std::vector<std::string> synthetic_shapes();
// The published configuration of a shape, truncated to `layers` layers if that is not 0. Throws
// Error if the shape is unknown or has fewer layers.
ModelConfig synthetic_config(std::string_view shape, std::int64_t layers);

// The tensors of a synthetic model; offsets of planes begin at 0, and views have no addresses yet.
std::vector<StoredTensor> synthetic_layout(const ModelConfig& config, const QuantScheme& type);

// Random codes of the full range. Scales preserve the variance of each linear's input, norm gains
// are near one, so activations stay finite and differ by row. Code sums and padding are exact.
class SyntheticModel {
 public:
  // `context` may exceed the context of the shape, as speed does not depend on trained weights.
  // Throws Error if there is too little memory.
  SyntheticModel(const SyntheticSpec& spec, std::int64_t context, ThreadPool& pool);

  const std::string& name() const { return name_; }  // "synthetic:llama-7b:int8"
  const QuantScheme& type() const { return type_; }
  const ModelConfig& config() const { return config_; }
  std::uint64_t weight_bytes() const { return memory_.size(); }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  // nullptr if there is none
  // Writes the model as a .leq file, for measuring load times. With a tokenizer, which may have
  // fewer ids than the model, it can also be served. Returns the file's size. Throws Error as
  // LeqWriter does, and if the tokenizer has more ids than the model.
  std::uint64_t write(const std::filesystem::path& path,
                      const std::optional<TokenizerSpec>& tokenizer = std::nullopt) const;

 private:
  std::string name_;
  QuantScheme type_;
  ModelConfig config_;
  HugeBuffer memory_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> places_;  // name to index in tensors_
};

}  // namespace leq

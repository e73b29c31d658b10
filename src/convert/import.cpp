#include "convert/import.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "convert/gguf_import.h"
#include "convert/hf_import.h"
#include "format/gguf_source.h"
#include "model/linear_sites.h"

namespace leq {
namespace {

// The type used if none is exact: smaller than int8-g32, which also stores sums of codes.
constexpr QuantScheme kNearest = {CodeKind::uint_, 8, Scaling::group, 32};

bool is_matrix(const TensorInput& tensor) {
  return tensor.role != TensorRole::vector && tensor.role != TensorRole::position_embedding &&
         tensor.role != TensorRole::exact_linear;
}

// Maps each linear to its site, whose linears share an input: "layers.3.q" -> "layers.3.qkv".
std::map<std::string, std::string> sites_of(const ModelConfig& config) {
  std::map<std::string, std::string> sites;
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    for (const LinearSite& site : linear_sites(config, layer)) {
      for (const LinearSpec& weight : site.weights) {
        sites[layer_tensor(layer, weight.name)] = layer_tensor(layer, site.block_name());
      }
    }
  }
  if (!config.mtp) return sites;
  for (const auto& [tensor, site] : sites_of(mtp_model(config))) {
    sites[std::string(kMtp) + tensor] = std::string(kMtp) + site;
  }
  return sites;
}

// The types of all linears that share one input; together they determine its format.
struct Readers {
  bool codes = false;               // some linears are stored as codes
  bool offset = false;              // some need signed codes with sums (int4, uint8, k types)
  bool fine = false;                // some linears keep 8 bits in groups of 32 columns
  bool coarse = false;              // some linears have groups wider than 32 columns
  bool other = false;               // some linears do not have groups of 16 columns
  std::optional<QuantScheme> type;  // the common type if all linears are floats
};

// The type in which one of the linears is stored. Integers never need to be rounded again for a
// shared format, because int8 and uint8, and their groups, represent the same codes.
QuantScheme type_for(const TensorInput& tensor, const Readers& readers) {
  if (!readers.codes) return *readers.type;
  QuantScheme own = tensor.own_scheme.value_or(kNearest);
  // Sums of inputs, which all readers share, are over 16 columns or over more.
  if (own.is_float() || (own.group == 16 && readers.other)) own = kNearest;
  if (own.is_offset() != readers.offset)
    own.kind = readers.offset ? CodeKind::uint_ : CodeKind::int_;
  return own;
}

// Codes that lose less than int8 inputs in groups of 128 columns do.
bool is_fine(const QuantScheme& scheme) {
  return scheme.bits == 8 && scheme.scaling == Scaling::group && scheme.group == 32;
}

// By the input that they share, or their own name where it is no block's input.
class InputReaders {
 public:
  explicit InputReaders(const ImportedModel& model);
  const Readers& of(const TensorInput& tensor) const { return readers_.at(input_of(tensor)); }

 private:
  std::string input_of(const TensorInput& tensor) const {
    const auto found = sites_.find(tensor.name);
    return found == sites_.end() ? tensor.name : found->second;
  }

  std::map<std::string, std::string> sites_;
  std::map<std::string, Readers> readers_;
};

InputReaders::InputReaders(const ImportedModel& model) : sites_(sites_of(model.config)) {
  for (const TensorInput& tensor : model.tensors) {
    if (!is_matrix(tensor)) continue;
    const QuantScheme own = tensor.own_scheme.value_or(kNearest);
    Readers& readers = readers_[input_of(tensor)];
    readers.codes = readers.codes || !own.is_float();
    readers.other = readers.other || own.group != 16;
    readers.offset = readers.offset || own.is_offset();
    if (own.is_float()) readers.type = !readers.type || *readers.type == own ? own : QuantScheme{};
  }
  for (const TensorInput& tensor : model.tensors) {
    if (!is_matrix(tensor)) continue;
    Readers& readers = readers_.at(input_of(tensor));
    const QuantScheme scheme = type_for(tensor, readers);
    readers.fine = readers.fine || is_fine(scheme);
    readers.coarse = readers.coarse || !fits_act(scheme, ActKind::g32);
  }
}

// An ECMAScript pattern that matches this name only.
std::string exactly(const std::string& name) {
  std::string pattern = "^";
  for (const char c : name) {
    if (c == '.') pattern += '\\';
    pattern += c;
  }
  return pattern + "$";
}

}  // namespace

ImportedModel import_checkpoint(const std::filesystem::path& path, ArrivingFiles* arriving) {
  return begins_as_gguf_file(path) ? import_gguf(path) : import_hf(path, arriving);
}

ModelConfig import_config(const std::filesystem::path& path) {
  return begins_as_gguf_file(path) ? import_gguf_config(path) : import_hf_config(path);
}

bool holds_codes(const std::filesystem::path& path) {
  if (!begins_as_gguf_file(path)) return folder_holds_codes(path);
  const GgufSource source(path);
  return std::ranges::any_of(source.tensors(), [&](const SourceTensor& tensor) {
    return tensor.shape.size() >= 2 && source.type(tensor).decode != nullptr;
  });
}

KeptTypes kept_types(const ImportedModel& model) {
  const InputReaders inputs(model);
  const bool narrow = model.config.width < kNarrowWidth;
  std::map<std::string, std::int64_t> numbers;  // count by scheme
  std::vector<TypeOverride> types;
  for (const TensorInput& tensor : model.tensors) {
    if (!is_matrix(tensor)) continue;
    const Readers& readers = inputs.of(tensor);
    const QuantScheme scheme = type_for(tensor, readers);
    types.push_back({exactly(tensor.name), scheme});
    if (narrow && readers.fine && !readers.coarse) types.back().act = ActKind::g32;
    numbers[scheme_name(scheme)] += tensor.shape[0] * tensor.shape[1];
  }
  const auto most = std::ranges::max_element(
      numbers, [](const auto& a, const auto& b) { return a.second < b.second; });
  ensure(most != numbers.end(), model.folder, ": no matrices");
  return {most->first, std::move(types)};
}

}  // namespace leq

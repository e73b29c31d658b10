#include "quantize/pipeline/block_readers.h"

#include "model/weights.h"

namespace leq {
namespace {

constexpr std::array<const char*, 4> kReaderNames = {"qkv", "o", "gate_up", "down"};

}  // namespace

std::string input_name(std::int64_t layer, Reader reader) {
  return layer_tensor(layer, kReaderNames.at(static_cast<std::size_t>(reader)));
}

std::vector<std::string> parts_of(Reader reader, const ModelConfig& config) {
  switch (reader) {
    case Reader::qkv:
      return {"q", "k", "v"};
    case Reader::o:
      return {"o"};
    case Reader::gate_up:
      return config.gated ? std::vector<std::string>{"gate", "up"} : std::vector<std::string>{"up"};
    default:
      return {"down"};
  }
}

Reader reader_of(std::string_view part) {
  if (part == "q" || part == "k" || part == "v") return Reader::qkv;
  if (part == "o") return Reader::o;
  return part == "down" ? Reader::down : Reader::gate_up;
}

}  // namespace leq

// An ONNX model as plain data, and its serialization. Names are those of onnx/onnx.proto.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace leq {

// The values of TensorProto.DataType.
enum class OnnxType : std::uint8_t {
  f32 = 1,
  u8 = 2,
  i8 = 3,
  i32 = 6,
  i64 = 7,
  boolean = 9,
  f16 = 10,
  bf16 = 16,
  u4 = 21,  // two per byte, the first in the low bits; since opset 21
  i4 = 22,
};
// The size in bytes of `elements` elements.
std::uint64_t onnx_bytes(OnnxType type, std::int64_t elements);

using OnnxAttribute = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>>;
using OnnxAttributes = std::map<std::string, OnnxAttribute>;

struct OnnxNode {
  std::string name;
  std::string op;
  std::string domain;               // "" is ai.onnx
  std::vector<std::string> inputs;  // "": an omitted optional input
  std::vector<std::string> outputs;
  OnnxAttributes attributes;
};

// A stored tensor, in the model file itself or in the external data file.
struct OnnxTensor {
  std::string name;
  OnnxType type = OnnxType::f32;
  std::vector<std::int64_t> dims;
  std::string bytes;  // empty if the data is external
  bool external = false;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

using OnnxDim = std::variant<std::int64_t, std::string>;  // a size, or its name
struct OnnxValue {
  std::string name;
  OnnxType type = OnnxType::f32;
  std::vector<OnnxDim> dims;
};

struct OnnxModel {
  std::int64_t opset = 21;
  bool contrib = false;  // imports com.microsoft
  std::string producer_version;
  std::string graph_name;
  std::map<std::string, std::string> metadata;
  std::vector<OnnxNode> nodes;  // in topological order
  std::vector<OnnxTensor> tensors;
  std::vector<OnnxValue> inputs;
  std::vector<OnnxValue> outputs;
};

inline constexpr std::string_view kContribDomain = "com.microsoft";
inline constexpr std::int64_t kFirstOpset = 21;
inline constexpr std::int64_t kLastOpset = 24;

// Serializes a ModelProto. `data_file`: the name of the external data file, in the model's
// folder.
std::string encode_onnx(const OnnxModel& model, const std::string& data_file);

}  // namespace leq

// Opens an exported ONNX model with the tests' own reader.
#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/file.h"
#include "export/wire_reader.h"

namespace leq::test {

// The storyteller, which is part of the project.
inline const std::filesystem::path kStory =
    std::filesystem::path(LEQ_SOURCE_DIR) / "examples" / "storyteller";

struct ReadTensor {
  int type = 0;
  std::vector<std::int64_t> dims;
  std::string bytes;
  bool external = false;
  std::uint64_t offset = 0;

  std::vector<float> floats() const {
    std::vector<float> out(bytes.size() / 4);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  // Returns a code of type int8, uint8, int4 or uint4 (names of TensorProto.DataType).
  int code(std::size_t i) const {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(bytes.at(at)); };
    if (type == 2) return byte(i);
    if (type == 3) return static_cast<signed char>(bytes.at(i));
    const int nibble = byte(i / 2) >> (i % 2 * 4) & 15;
    if (type == 21) return nibble;
    if (type == 22) return nibble >= 8 ? nibble - 16 : nibble;
    throw std::runtime_error("no codes");
  }
};

struct ReadNode {
  std::string op, domain;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, std::int64_t> integers;
};

struct ReadOnnx {
  std::vector<ReadNode> nodes;
  std::map<std::string, ReadTensor> tensors;
  std::vector<std::string> inputs, outputs;

  // Returns the node that reads a tensor.
  const ReadNode& reader_of(const std::string& tensor) const {
    for (const ReadNode& node : nodes) {
      for (const std::string& input : node.inputs) {
        if (input == tensor) return node;
      }
    }
    throw std::runtime_error("nothing reads " + tensor);
  }
  std::size_t count(const std::string& op) const {
    std::size_t found = 0;
    for (const ReadNode& node : nodes) found += node.op == op;
    return found;
  }
};

inline ReadTensor read_tensor(const Message& tensor, const std::string& data) {
  ReadTensor out;
  const auto [first, last] = tensor.equal_range(1);
  for (auto it = first; it != last; ++it) out.dims.push_back(it->second.integer());
  out.type = static_cast<int>(integer_of(tensor, 2));
  out.bytes = text_of(tensor, 9);
  out.external = integer_of(tensor, 14) == 1;
  if (!out.external) return out;
  std::map<std::string, std::string> entries;
  for (const Message& pair : messages_of(tensor, 13)) entries[text_of(pair, 1)] = text_of(pair, 2);
  out.offset = std::stoull(entries.at("offset"));
  out.bytes = data.substr(out.offset, std::stoull(entries.at("length")));
  return out;
}

inline ReadOnnx read_onnx(const std::filesystem::path& folder) {
  const std::string data = read_file(folder / "model.onnx.data", 1 << 28);
  const std::string model = read_file(folder / "model.onnx", 1 << 28);
  const Message graph = messages_of(message_of(model), 7).at(0);
  ReadOnnx out;
  for (const Message& node : messages_of(graph, 1)) {
    ReadNode read = {text_of(node, 4), text_of(node, 7), texts_of(node, 1), texts_of(node, 2), {}};
    for (const Message& attribute : messages_of(node, 5)) {
      read.integers[text_of(attribute, 1)] = integer_of(attribute, 3);
    }
    out.nodes.push_back(std::move(read));
  }
  for (const Message& tensor : messages_of(graph, 5)) {
    out.tensors[text_of(tensor, 8)] = read_tensor(tensor, data);
  }
  for (const Message& value : messages_of(graph, 11)) out.inputs.push_back(text_of(value, 1));
  for (const Message& value : messages_of(graph, 12)) out.outputs.push_back(text_of(value, 1));
  return out;
}

}  // namespace leq::test

// Builds an ONNX graph node by node: each call returns the name of a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "export/onnx_model.h"

namespace leq {

// The name of a value in the graph.
using Value = std::string;

class GraphBuilder {
 public:
  // Tensors larger than a kilobyte are written to `data`, which must outlive the builder.
  GraphBuilder(OnnxModel& model, AtomicFile& data) : model_(model), data_(data) {}

  // Sets the prefix of all following nodes' names: "layers.3.".
  void scope(std::string prefix) { prefix_ = std::move(prefix); }

  // Adds a node with one output.
  Value add(const std::string& op, std::vector<Value> inputs, OnnxAttributes attributes = {});
  // Adds a node of com.microsoft with one output.
  Value add_contrib(const std::string& op, std::vector<Value> inputs, OnnxAttributes attributes);
  // Adds a node with several outputs, from ai.onnx or from `domain`.
  std::vector<Value> add_many(const std::string& op, std::vector<Value> inputs, std::size_t outputs,
                              OnnxAttributes attributes, const std::string& domain = "");
  // Makes a value an output of the graph under the name `name`.
  void output(const Value& value, const std::string& name, OnnxType type,
              std::vector<OnnxDim> dims);
  Value input(const std::string& name, OnnxType type, std::vector<OnnxDim> dims);

  // Adds tensors; their bytes are written immediately. Equal constants share one tensor.
  Value tensor(const std::string& name, OnnxType type, std::vector<std::int64_t> dims,
               std::span<const std::byte> bytes);
  Value floats(const std::string& name, std::vector<std::int64_t> dims,
               std::span<const float> values);
  Value scalar(float value);
  Value integer(std::int64_t value);                        // a scalar
  Value integers(const std::vector<std::int64_t>& values);  // a vector

  bool has_tensor(const std::string& name) const { return names_.contains(name); }

 private:
  std::string unique(const std::string& op);

  OnnxModel& model_;
  AtomicFile& data_;
  std::string prefix_;
  std::map<std::string, int> counts_;
  std::map<std::string, std::size_t> names_;  // name -> index in model_.tensors
};

}  // namespace leq

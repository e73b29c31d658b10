#include "export/graph_builder.h"

#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::size_t kInlineBytes = 1024;
// Alignments; large tensors are page-aligned, because runtimes map the file.
constexpr std::uint64_t kPage = 4096, kLine = 64;

std::vector<std::string> words_of(const std::vector<std::int64_t>& values) {
  std::vector<std::string> words;
  for (const std::int64_t value : values) words.push_back(std::to_string(value));
  return words;
}

}  // namespace

std::string GraphBuilder::unique(const std::string& op) {
  const std::string name = prefix_ + op;
  const int count = counts_[name]++;
  return count == 0 ? name : name + "." + std::to_string(count);
}

std::vector<Value> GraphBuilder::add_many(const std::string& op, std::vector<Value> inputs,
                                          std::size_t outputs, OnnxAttributes attributes,
                                          const std::string& domain) {
  OnnxNode node;
  node.name = unique(op);
  node.op = op;
  node.domain = domain;
  if (!domain.empty()) model_.contrib = true;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  for (std::size_t i = 0; i < outputs; ++i) {
    node.outputs.push_back(node.name + ":" + std::to_string(i));
  }
  model_.nodes.push_back(node);
  return node.outputs;
}

Value GraphBuilder::add(const std::string& op, std::vector<Value> inputs,
                        OnnxAttributes attributes) {
  return add_many(op, std::move(inputs), 1, std::move(attributes)).front();
}

Value GraphBuilder::add_contrib(const std::string& op, std::vector<Value> inputs,
                                OnnxAttributes attributes) {
  return add_many(op, std::move(inputs), 1, std::move(attributes), std::string(kContribDomain))
      .front();
}

void GraphBuilder::output(const Value& value, const std::string& name, OnnxType type,
                          std::vector<OnnxDim> dims) {
  OnnxNode node;
  node.name = unique("output." + name);
  node.op = "Identity";
  node.inputs = {value};
  node.outputs = {name};
  model_.nodes.push_back(std::move(node));
  model_.outputs.push_back({name, type, std::move(dims)});
}

Value GraphBuilder::input(const std::string& name, OnnxType type, std::vector<OnnxDim> dims) {
  model_.inputs.push_back({name, type, std::move(dims)});
  return name;
}

Value GraphBuilder::tensor(const std::string& name, OnnxType type, std::vector<std::int64_t> dims,
                           std::span<const std::byte> bytes) {
  std::int64_t elements = 1;
  for (const std::int64_t size : dims) elements *= size;
  ensure(onnx_bytes(type, elements) == bytes.size(), "onnx: tensor ", name, " has ", bytes.size(),
         " bytes, expected ", onnx_bytes(type, elements));
  ensure(names_.emplace(name, model_.tensors.size()).second, "onnx: two tensors ", name);
  OnnxTensor stored = {name, type, std::move(dims), {}, false, 0, bytes.size()};
  if (bytes.size() <= kInlineBytes) {
    stored.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  } else {
    const std::uint64_t align = bytes.size() >= kPage ? kPage : kLine;
    const std::vector<std::byte> pad((align - data_.size() % align) % align);
    data_.append(pad);
    stored.external = true;
    stored.offset = data_.size();
    data_.append(bytes);
  }
  model_.tensors.push_back(std::move(stored));
  return name;
}

Value GraphBuilder::floats(const std::string& name, std::vector<std::int64_t> dims,
                           std::span<const float> values) {
  return tensor(name, OnnxType::f32, std::move(dims), std::as_bytes(values));
}

Value GraphBuilder::scalar(float value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%a", static_cast<double>(value));
  const std::string name = std::string("const.f32.") + text.data();
  return has_tensor(name) ? name : floats(name, {}, std::span(&value, 1));
}

Value GraphBuilder::integer(std::int64_t value) {
  const std::string name = "const.i64." + std::to_string(value);
  if (has_tensor(name)) return name;
  return tensor(name, OnnxType::i64, {}, std::as_bytes(std::span(&value, 1)));
}

Value GraphBuilder::integers(const std::vector<std::int64_t>& values) {
  const std::string name = "const.i64[" + join(words_of(values), " ") + "]";
  if (has_tensor(name)) return name;
  return tensor(name, OnnxType::i64, {std::ssize(values)}, std::as_bytes(std::span(values)));
}

}  // namespace leq

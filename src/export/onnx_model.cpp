#include "export/onnx_model.h"

#include "base/error.h"
#include "export/protobuf_writer.h"

namespace leq {
namespace {

// Field numbers of onnx.proto, grouped by message.
namespace model_field {
constexpr int ir_version = 1, producer_name = 2, producer_version = 3, graph = 7, opset = 8,
              metadata = 14;
}
namespace graph_field {
constexpr int node = 1, name = 2, initializer = 5, input = 11, output = 12;
}
namespace node_field {
constexpr int input = 1, output = 2, name = 3, op_type = 4, attribute = 5, domain = 7;
}
namespace attribute_field {
constexpr int name = 1, f = 2, i = 3, s = 4, ints = 8, type = 20;
}
namespace tensor_field {
constexpr int dims = 1, data_type = 2, name = 8, raw_data = 9, external_data = 13,
              data_location = 14;
}

constexpr std::int64_t kAttributeFloat = 1, kAttributeInt = 2, kAttributeString = 3,
                       kAttributeInts = 7;
constexpr std::int64_t kExternal = 1;

// The file format version that was introduced with an opset (ONNX's table of releases).
std::int64_t ir_version(std::int64_t opset) {
  if (opset <= 22) return 10;
  return opset - 12;  // 23: 11, 24: 12
}

ProtobufWriter pair_of(std::string_view key, std::string_view value) {
  ProtobufWriter pair;
  pair.text(1, key);
  pair.text(2, value);
  return pair;
}

ProtobufWriter encode(const std::string& name, const OnnxAttribute& attribute) {
  ProtobufWriter out;
  out.text(attribute_field::name, name);
  std::int64_t type = kAttributeInt;
  if (const auto* i = std::get_if<std::int64_t>(&attribute)) {
    out.integer(attribute_field::i, *i);
  } else if (const auto* f = std::get_if<float>(&attribute)) {
    out.real(attribute_field::f, *f);
    type = kAttributeFloat;
  } else if (const auto* s = std::get_if<std::string>(&attribute)) {
    out.text(attribute_field::s, *s);
    type = kAttributeString;
  } else {
    // The numbers are not packed, because this is a repeated field of proto2.
    for (const std::int64_t value : std::get<std::vector<std::int64_t>>(attribute)) {
      out.integer(attribute_field::ints, value);
    }
    type = kAttributeInts;
  }
  out.integer(attribute_field::type, type);
  return out;
}

ProtobufWriter encode(const OnnxNode& node) {
  ProtobufWriter out;
  for (const std::string& input : node.inputs) out.text(node_field::input, input);
  for (const std::string& output : node.outputs) out.text(node_field::output, output);
  out.text(node_field::name, node.name);
  out.text(node_field::op_type, node.op);
  for (const auto& [name, attribute] : node.attributes) {
    out.message(node_field::attribute, encode(name, attribute));
  }
  if (!node.domain.empty()) out.text(node_field::domain, node.domain);
  return out;
}

ProtobufWriter encode(const OnnxTensor& tensor, const std::string& data_file) {
  ProtobufWriter out;
  for (const std::int64_t size : tensor.dims) out.integer(tensor_field::dims, size);
  out.integer(tensor_field::data_type, static_cast<std::int64_t>(tensor.type));
  out.text(tensor_field::name, tensor.name);
  if (!tensor.external) {
    out.text(tensor_field::raw_data, tensor.bytes);
    return out;
  }
  out.message(tensor_field::external_data, pair_of("location", data_file));
  out.message(tensor_field::external_data, pair_of("offset", std::to_string(tensor.offset)));
  out.message(tensor_field::external_data, pair_of("length", std::to_string(tensor.length)));
  out.integer(tensor_field::data_location, kExternal);
  return out;
}

// ValueInfoProto { name = 1, type = 2 { tensor_type = 1 { elem_type = 1, shape = 2 { dim = 1
// { dim_value = 1 | dim_param = 2 } } } } }
ProtobufWriter encode(const OnnxValue& value) {
  ProtobufWriter shape;
  for (const OnnxDim& dim : value.dims) {
    ProtobufWriter out;
    if (const auto* size = std::get_if<std::int64_t>(&dim)) {
      out.integer(1, *size);
    } else {
      out.text(2, std::get<std::string>(dim));
    }
    shape.message(1, out);
  }
  ProtobufWriter tensor, type, out;
  tensor.integer(1, static_cast<std::int64_t>(value.type));
  tensor.message(2, shape);
  type.message(1, tensor);
  out.text(1, value.name);
  out.message(2, type);
  return out;
}

ProtobufWriter opset_of(std::string_view domain, std::int64_t version) {
  ProtobufWriter out;
  out.text(1, domain);
  out.integer(2, version);
  return out;
}

ProtobufWriter encode_graph(const OnnxModel& model, const std::string& data_file) {
  ProtobufWriter graph;
  for (const OnnxNode& node : model.nodes) graph.message(graph_field::node, encode(node));
  graph.text(graph_field::name, model.graph_name);
  for (const OnnxTensor& tensor : model.tensors) {
    graph.message(graph_field::initializer, encode(tensor, data_file));
  }
  for (const OnnxValue& value : model.inputs) graph.message(graph_field::input, encode(value));
  for (const OnnxValue& value : model.outputs) graph.message(graph_field::output, encode(value));
  return graph;
}

}  // namespace

std::uint64_t onnx_bytes(OnnxType type, std::int64_t elements) {
  const auto count = static_cast<std::uint64_t>(elements);
  switch (type) {
    case OnnxType::u4:
    case OnnxType::i4:
      return (count + 1) / 2;
    case OnnxType::f16:
    case OnnxType::bf16:
      return count * 2;
    case OnnxType::f32:
    case OnnxType::i32:
      return count * 4;
    case OnnxType::i64:
      return count * 8;
    case OnnxType::u8:
    case OnnxType::i8:
    case OnnxType::boolean:
      return count;
  }
  return 0;
}

std::string encode_onnx(const OnnxModel& model, const std::string& data_file) {
  ensure(model.opset >= kFirstOpset && model.opset <= kLastOpset, "onnx: opset ", model.opset);
  ProtobufWriter out;
  out.integer(model_field::ir_version, ir_version(model.opset));
  out.text(model_field::producer_name, "leq");
  out.text(model_field::producer_version, model.producer_version);
  out.message(model_field::graph, encode_graph(model, data_file));
  out.message(model_field::opset, opset_of("", model.opset));
  if (model.contrib) out.message(model_field::opset, opset_of(kContribDomain, 1));
  for (const auto& [key, value] : model.metadata) {
    out.message(model_field::metadata, pair_of(key, value));
  }
  return out.bytes();
}

}  // namespace leq

// The wire format, compared with the tests' own reader and with the specification's examples.
#include "export/protobuf_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "export/onnx_model.h"
#include "export/wire_reader.h"

namespace leq::test {
namespace {

TEST(ProtobufWriter, WritesTheSpecificationsExamples) {
  ProtobufWriter a;
  a.integer(1, 150);
  EXPECT_EQ(a.bytes(), std::string("\x08\x96\x01", 3));
  ProtobufWriter b;
  b.text(2, "testing");
  EXPECT_EQ(b.bytes(), "\x12\x07testing");
  ProtobufWriter c;
  c.message(3, a);
  EXPECT_EQ(c.bytes(), std::string("\x1a\x03\x08\x96\x01", 5));
}

TEST(ProtobufWriter, IntegersOfEverySizeComeBack) {
  std::vector<std::int64_t> numbers = {0, -1, std::numeric_limits<std::int64_t>::min(),
                                       std::numeric_limits<std::int64_t>::max()};
  for (int bit = 0; bit < 63; ++bit) {
    const std::int64_t power = std::int64_t{1} << bit;
    numbers.insert(numbers.end(), {power, power - 1, -power});
  }
  ProtobufWriter out;
  for (const std::int64_t number : numbers) out.integer(7, number);
  out.integer(2047, 1);
  auto fields = WireReader(out.bytes()).fields();
  ASSERT_EQ(fields.size(), numbers.size() + 1);
  EXPECT_EQ(fields.back().number, 2047);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(fields[i].integer(), numbers[i]);
  }
}

TEST(ProtobufWriter, FloatsAndBytesComeBack) {
  const std::string bytes("\0\xff\x80nul", 6);
  ProtobufWriter out;
  out.real(1, -0.0f);
  out.real(2, 1e-40f);
  out.text(3, bytes);
  out.text(4, "");
  out.text(6, std::string(300, 'x'));
  const Message message = message_of(out.bytes());
  EXPECT_EQ(message.find(1)->second.value, 0x80000000u);
  EXPECT_EQ(message.find(2)->second.real(), 1e-40f);
  EXPECT_EQ(text_of(message, 3), bytes);
  EXPECT_EQ(message.count(4), 1u);
  EXPECT_EQ(message.count(5), 0u);
  EXPECT_EQ(text_of(message, 6).size(), 300u);
}

OnnxModel small_model() {
  OnnxModel model;
  model.graph_name = "g";
  model.producer_version = "9";
  model.contrib = true;
  model.metadata = {{"key", "value"}};
  model.nodes.push_back({"n",
                         "Op",
                         "com.microsoft",
                         {"x", ""},
                         {"y"},
                         {{"a", std::int64_t{-1}},
                          {"b", 0.5f},
                          {"c", std::string("s")},
                          {"d", std::vector<std::int64_t>{1, -2}}}});
  model.tensors.push_back({"t", OnnxType::i4, {3}, std::string("\x21\x03", 2), false, 0, 2});
  model.tensors.push_back({"u", OnnxType::f32, {2, 5}, "", true, 4096, 40});
  model.inputs.push_back({"x", OnnxType::i64, {"batch", std::int64_t{7}}});
  model.outputs.push_back({"y", OnnxType::f32, {}});
  return model;
}

// The model is read by the field numbers of onnx.proto.
TEST(OnnxModel, IsAModelProto) {
  OnnxModel model = small_model();
  for (const auto& [opset, ir] : {std::pair{21, 10}, {22, 10}, {23, 11}, {24, 12}}) {
    model.opset = opset;
    const Message top = message_of(encode_onnx(model, "data"));
    EXPECT_EQ(integer_of(top, 1), ir);
    EXPECT_EQ(text_of(top, 2), "leq");
    const auto opsets = messages_of(top, 8);
    ASSERT_EQ(opsets.size(), 2u);
    EXPECT_EQ(integer_of(opsets[0], 2), opset);
    EXPECT_EQ(text_of(opsets[1], 1), "com.microsoft");
    EXPECT_EQ(text_of(messages_of(top, 14)[0], 2), "value");
  }
}

TEST(OnnxModel, NodesTensorsAndValuesAreThoseOfTheGraph) {
  const Message graph = messages_of(message_of(encode_onnx(small_model(), "data")), 7)[0];
  const Message node = messages_of(graph, 1)[0];
  EXPECT_EQ(texts_of(node, 1), (std::vector<std::string>{"x", ""}));
  EXPECT_EQ(text_of(node, 4), "Op");
  const auto attributes = messages_of(node, 5);
  ASSERT_EQ(attributes.size(), 4u);
  EXPECT_EQ(integer_of(attributes[0], 3), -1);
  EXPECT_EQ(integer_of(attributes[0], 20), 2);
  EXPECT_EQ(attributes[1].find(2)->second.real(), 0.5f);
  EXPECT_EQ(text_of(attributes[2], 4), "s");
  EXPECT_EQ(attributes[3].count(8), 2u);
  EXPECT_EQ(integer_of(attributes[3], 20), 7);
  const auto tensors = messages_of(graph, 5);
  EXPECT_EQ(integer_of(tensors[0], 2), 22);
  EXPECT_EQ(text_of(tensors[0], 9), std::string("\x21\x03", 2));
  EXPECT_EQ(integer_of(tensors[1], 14), 1);
  const auto entries = messages_of(tensors[1], 13);
  EXPECT_EQ(text_of(entries[0], 2), "data");
  EXPECT_EQ(text_of(entries[1], 2), "4096");
  EXPECT_EQ(text_of(entries[2], 2), "40");
  const Message tensor_type = messages_of(messages_of(messages_of(graph, 11)[0], 2)[0], 1)[0];
  EXPECT_EQ(integer_of(tensor_type, 1), 7);
  const auto dims = messages_of(messages_of(tensor_type, 2)[0], 1);
  EXPECT_EQ(text_of(dims[0], 2), "batch");
  EXPECT_EQ(integer_of(dims[1], 1), 7);
}

}  // namespace
}  // namespace leq::test

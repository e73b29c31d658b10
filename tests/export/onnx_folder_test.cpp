// Exported graphs: their integers are those of the file, every value is produced before it is used,
// and errors name the features that a consumer does not support.
#include "export/onnx_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "export/exported_onnx.h"
#include "models_fixture.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "tensor/pack.h"

namespace leq::test {
namespace {

std::filesystem::path story(const std::string& type, ActChoice act = ActChoice::none) {
  return quantized(kStory, type, act);
}

ReadOnnx exported(const std::filesystem::path& file, const OnnxOptions& options) {
  const TemporaryFolder folder;
  export_onnx(Model(file, {}), options, folder.path());
  return read_onnx(folder.path());
}

class OnnxCodes : public ::testing::TestWithParam<const char*> {};

// DequantizeLinear reads [K][N]: codes with scales and zero points by row or by blocks of K.
TEST_P(OnnxCodes, AreTheFilesOwn) {
  const Model model(story(GetParam()), {});
  const TemporaryFolder folder;
  export_onnx(model, {}, folder.path());
  const ReadOnnx graph = read_onnx(folder.path());
  for (const char* name : {"layers.0.q", "layers.5.down"}) {
    const WeightView& view = model.file().find(name)->view;
    const ReadTensor& codes = graph.tensors.at(name);
    const ReadTensor& scales = graph.tensors.at(std::string(name) + ".scales");
    ASSERT_EQ(codes.dims, (std::vector<std::int64_t>{view.columns, view.rows}));
    const ReadNode& node = graph.reader_of(name);
    ASSERT_EQ(node.op, "DequantizeLinear");
    const bool grouped = node.integers.contains("block_size");
    ASSERT_EQ(grouped, view.scheme.scaling == Scaling::group);
    EXPECT_EQ(node.integers.at("axis"), grouped ? 0 : 1);
    const std::int64_t block = grouped ? node.integers.at("block_size") : view.columns;
    const std::vector<float> scale = scales.floats();
    ASSERT_EQ(std::ssize(scale), view.rows * ((view.columns + block - 1) / block));
    for (std::int64_t row = 0; row < view.rows; ++row) {
      for (std::int64_t k = 0; k < view.columns; ++k) {
        ASSERT_EQ(codes.code(static_cast<std::size_t>(k * view.rows + row)), code_at(view, row, k))
            << name << ' ' << row << ' ' << k;
        const auto at = static_cast<std::size_t>(k / block * view.rows + row);
        ASSERT_EQ(scale[at], scale_at(view, row, k));
        if (node.inputs.size() < 3) continue;
        ASSERT_EQ(graph.tensors.at(std::string(name) + ".zeros").code(at), zero_at(view, row, k));
      }
    }
    EXPECT_EQ(node.inputs.size() == 3, view.scheme.kind == CodeKind::uint_);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, OnnxCodes,
                         ::testing::Values("int8", "uint8", "int8-g128", "int4-g64", "uint4-g32",
                                           "int3-g32", "uint2-g64"));

// MatMulNBits reads unsigned codes in blocks of a row; without a zero point, it is 8 or 128.
TEST_P(OnnxCodes, OfMatMulNBitsStandForTheSameNumbers) {
  const Model model(story(GetParam()), {});
  const TemporaryFolder folder;
  OnnxOptions options;
  options.target = "genai";
  export_onnx(model, options, folder.path());
  const ReadOnnx graph = read_onnx(folder.path());
  for (const std::string name : {"layers.0.q", "layers.5.down"}) {
    const WeightView& view = model.file().find(name)->view;
    const ReadTensor& blocks = graph.tensors.at(name + ".blocks");
    const std::vector<float> scales = graph.tensors.at(name + ".blocks.scales").floats();
    const ReadNode& node = graph.reader_of(name + ".blocks");
    ASSERT_EQ(node.op, "MatMulNBits");
    EXPECT_EQ(node.domain, "com.microsoft");
    EXPECT_EQ(node.integers.at("K"), view.columns);
    EXPECT_EQ(node.integers.at("N"), view.rows);
    const std::int64_t bits = node.integers.at("bits"), block = node.integers.at("block_size");
    const std::int64_t count = (view.columns + block - 1) / block;
    ASSERT_EQ(blocks.dims, (std::vector<std::int64_t>{view.rows, count, block * bits / 8}));
    std::vector<float> row_values(static_cast<std::size_t>(view.columns));
    for (std::int64_t row = 0; row < view.rows; row += 17) {
      unpack_row(view, row, row_values);
      for (std::int64_t k = 0; k < view.columns; ++k) {
        const auto at = static_cast<std::size_t>(row * count * block + k);
        const auto byte = static_cast<unsigned char>(blocks.bytes[bits == 8 ? at : at / 2]);
        const int code = bits == 8 ? byte : byte >> (at % 2 * 4) & 15;
        int zero = 1 << (bits - 1);
        if (node.inputs.size() > 3) {
          const ReadTensor& zeros = graph.tensors.at(name + ".blocks.zeros");
          const auto first = static_cast<std::size_t>(row * zeros.dims[1]);
          const auto i = static_cast<std::size_t>(k / block);
          const auto packed =
              static_cast<unsigned char>(zeros.bytes[first + (bits == 8 ? i : i / 2)]);
          zero = bits == 8 ? packed : packed >> (i % 2 * 4) & 15;
        }
        const float scale = scales[static_cast<std::size_t>(row * count + k / block)];
        ASSERT_EQ(static_cast<float>(code - zero) * scale, row_values[static_cast<std::size_t>(k)]);
      }
    }
  }
}

// Each value must be produced once, before its use; nodes read only values, tensors and inputs.
void expect_whole(const ReadOnnx& graph) {
  std::set<std::string> known(graph.inputs.begin(), graph.inputs.end());
  for (const auto& [name, tensor] : graph.tensors) known.insert(name);
  for (const ReadNode& node : graph.nodes) {
    for (const std::string& input : node.inputs) {
      EXPECT_TRUE(input.empty() || known.contains(input)) << node.op << " reads " << input;
    }
    for (const std::string& output : node.outputs) {
      EXPECT_TRUE(known.insert(output).second) << output;
    }
  }
  for (const std::string& output : graph.outputs) EXPECT_TRUE(known.contains(output)) << output;
}

TEST(OnnxGraph, IsWholeWithAndWithoutPastAndOfFixedShape) {
  const auto file = story("int4-g64");
  OnnxOptions options;
  const ReadOnnx past = exported(file, options);
  expect_whole(past);
  EXPECT_EQ(past.outputs.size(), 13u);
  EXPECT_EQ(past.outputs.front(), "logits");
  EXPECT_EQ(past.inputs.size(), 15u);
  options.past = false;
  const ReadOnnx alone = exported(file, options);
  expect_whole(alone);
  EXPECT_EQ(alone.inputs,
            (std::vector<std::string>{"input_ids", "attention_mask", "position_ids"}));
  EXPECT_EQ(alone.outputs, std::vector<std::string>{"logits"});
  options.tokens = 16;
  const ReadOnnx fixed = exported(file, options);
  expect_whole(fixed);
  EXPECT_EQ(fixed.inputs, std::vector<std::string>{"input_ids"});
}

TEST(OnnxGraph, LargeTensorsBeginWithAPageOfTheDataFile) {
  for (const auto& [name, tensor] : exported(story("int8"), {}).tensors) {
    if (!tensor.external) {
      EXPECT_LE(tensor.bytes.size(), 1024u) << name;
    } else {
      EXPECT_EQ(tensor.offset % (tensor.bytes.size() >= 4096 ? 4096 : 64), 0u) << name;
    }
  }
}

TEST(OnnxGraph, QuantizesInputsAsTheFileSays) {
  const auto file = story("int8", ActChoice::g128);
  OnnxOptions options;
  EXPECT_EQ(exported(file, options).count("QuantizeLinear"), 0u);
  options.inputs = ExportedInputs::file;
  const ReadOnnx graph = exported(file, options);
  expect_whole(graph);
  EXPECT_EQ(graph.count("QuantizeLinear"), 6u * 4 + 1);  // four sites per layer, and the head
}

// Returns the error of export_onnx, or "" if there is none.
std::string error_of(const std::filesystem::path& file, const OnnxOptions& options) {
  const TemporaryFolder folder;
  try {
    export_onnx(Model(file, {}), options, folder.path() / "new");
  } catch (const Error& error) {
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "new")) << error.what();
    return error.what();
  }
  return "";
}

struct Refusal {
  const char* type;
  ActChoice act;
  const char* target;
  ExportedInputs inputs;
  std::int64_t tokens;
  std::vector<const char*> says;
};

class Refused : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refused, ByName) {
  const Refusal& refusal = GetParam();
  OnnxOptions options;
  options.target = refusal.target;
  options.inputs = refusal.inputs;
  options.tokens = refusal.tokens;
  const std::string error = error_of(story(refusal.type, refusal.act), options);
  for (const char* part : refusal.says) EXPECT_NE(error.find(part), std::string::npos) << error;
}

constexpr auto kAuto = ExportedInputs::automatic;
constexpr auto kFile = ExportedInputs::file;
constexpr auto kF32 = ExportedInputs::f32;

INSTANTIATE_TEST_SUITE_P(
    Targets, Refused,
    ::testing::Values(
        Refusal{"uint4-g64", ActChoice::none, "tensorrt", kAuto, 0, {"layers.0.q", "zero points"}},
        Refusal{"int4-g32", ActChoice::none, "tensorrt", kAuto, 0, {"layers.0.q", "64 or 128"}},
        Refusal{"int8-g64", ActChoice::none, "tensorrt", kAuto, 0, {"layers.0.q", "int8-g64"}},
        Refusal{
            "int8", ActChoice::row, "tensorrt", kFile, 0, {"layers.0.q", "act row", "tensorrt"}},
        Refusal{"int4-g64", ActChoice::none, "nnapi", kAuto, 8, {"layers.0.q", "8-bit"}},
        Refusal{"f32", ActChoice::none, "nnapi", kAuto, 8, {"layers.0.q", "f32", "nnapi"}},
        Refusal{"int8", ActChoice::g128, "nnapi", kAuto, 8, {"layers.0.q", "act g128", "nnapi"}},
        Refusal{"int8", ActChoice::g128, "nnapi", kF32, 8, {"inputs", "nnapi"}},
        Refusal{"int8", ActChoice::g128, "nnapi", kAuto, 0, {"tokens", "nnapi"}},
        Refusal{"int8", ActChoice::none, "genai", kAuto, 8, {"tokens", "genai"}},
        Refusal{"int8", ActChoice::none, "onnxruntime", kAuto, 5000, {"tokens", "1024"}},
        Refusal{"int8", ActChoice::online, "onnxruntime", kFile, 0, {"layers.0.q", "online"}},
        Refusal{"int8", ActChoice::none, "coreml", kAuto, 0, {"coreml", "onnxruntime", "genai"}}));

TEST(OnnxGraph, RefusesAnOpsetThatItDoesNotKnow) {
  OnnxOptions options;
  for (const std::int64_t opset : {20, 25}) {
    options.opset = opset;
    EXPECT_NE(error_of(story("int8"), options).find("opset"), std::string::npos);
  }
}

TEST(OnnxGraph, RefusesTablesThatNoMachineHolds) {
  OnnxOptions options;
  options.target = "genai";
  options.context = std::int64_t{1} << 40;
  EXPECT_NE(error_of(story("int8"), options).find("context"), std::string::npos);
  options.target = "onnxruntime";
  options.context = options.tokens = 1 << 20;
  EXPECT_NE(error_of(story("int8"), options).find("tokens 1048576: the mask"), std::string::npos);
}

TEST(OnnxGraph, GenaiFolderHasItsConfigurationAndTokenizer) {
  const Model model(story("int4-g64"), {});
  const TemporaryFolder folder;
  OnnxOptions options;
  options.target = "genai";
  options.context = 512;
  export_onnx(model, options, folder.path());
  const Json config =
      parse_json(read_file(folder / "genai_config.json", 1 << 20), "genai_config.json");
  EXPECT_EQ(config.at("model").at("context_length").get<int>(), 512);
  EXPECT_EQ(config.at("model").at("vocab_size").get<int>(), 4096);
  EXPECT_EQ(config.at("model").at("decoder").at("head_size").get<int>(), 32);
  const ReadOnnx graph = read_onnx(folder.path());
  expect_whole(graph);
  EXPECT_EQ(graph.count("GroupQueryAttention"), 6u);
  EXPECT_EQ(graph.count("MatMulNBits"), 6u * 7 + 1);
  EXPECT_EQ(graph.tensors.at("rotary.cosines").dims, (std::vector<std::int64_t>{512, 16}));
  EXPECT_TRUE(std::filesystem::exists(folder / "tokenizer.json"));
}

}  // namespace
}  // namespace leq::test

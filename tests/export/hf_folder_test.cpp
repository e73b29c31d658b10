// Exported folders are read by leq's own reader of checkpoints, which shares no code with the
// writer, and packed codes are checked by the formats' rules.
#include "export/hf_folder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/hf_import.h"
#include "convert/tokenizer_import.h"
#include "errors.h"
#include "export/exported_onnx.h"
#include "export/onnx_folder.h"
#include "export/weight_codes.h"
#include "format/tensor_source.h"
#include "models_fixture.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "tensor/pack.h"

namespace leq::test {
namespace {

class ExportedCheckpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(ExportedCheckpoint, HasTheConfigurationAndNumbersOfTheFile) {
  LEQ_SHARED_OR_SKIP(source, std::string("models/") + GetParam());
  const Model model(quantized(source, "int4-g32", ActChoice::none), {});
  const TemporaryFolder folder;
  export_hf(model, HfWeights::floats, ExportedInputs::automatic, folder.path());
  const ImportedModel read = import_hf(folder.path());
  EXPECT_EQ(config_to_json(read.config), config_to_json(model.config()));
  EXPECT_EQ(read.chat_template, model.chat_template());
  EXPECT_EQ(generation_to_json(read.generation), generation_to_json(model.generation()));
  for (const TensorInput& tensor : read.tensors) {
    const WeightView& view = model.file().find(tensor.name)->view;
    std::vector<float> values(static_cast<std::size_t>(view.rows * view.columns));
    tensor.read(0, tensor.shape[0], values);
    EXPECT_EQ(values, weight_floats(view)) << tensor.name;
  }
}

// The written tokenizer.json must give the ids of the file's tables for every kind of piece.
TEST_P(ExportedCheckpoint, TokenizesAsTheFileDoes) {
  LEQ_SHARED_OR_SKIP(source, std::string("models/") + GetParam());
  const Model model(quantized(source, "int4-g32", ActChoice::none), {});
  const TemporaryFolder folder;
  export_hf(model, HfWeights::floats, ExportedInputs::automatic, folder.path());
  const Tokenizer read(import_tokenizer(folder.path()).spec);
  std::string bytes;
  for (int i = 1; i < 256; ++i) bytes += static_cast<char>(i);
  for (const std::string& text :
       {std::string("Once upon a time, there was a king's son."),
        std::string("  two  spaces\n\n\t."),
        std::string("na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x99\x82 1234567"),
        std::string("<s>[INST] x </s><|endoftext|><|im_start|>user\n<|im_end|>"), bytes,
        read_file(kStory / "heldout.txt", 1 << 20).substr(0, 20000)}) {
    for (const bool special : {true, false}) {
      const EncodeOptions options = {.parse_special = special, .add_bos = true};
      EXPECT_EQ(read.encode(text, options), model.tokenizer().encode(text, options)) << text;
    }
  }
  EXPECT_EQ(read.eos(), model.tokenizer().eos());
  EXPECT_EQ(read.bos(), model.tokenizer().bos());
}

INSTANTIATE_TEST_SUITE_P(Models, ExportedCheckpoint,
                         ::testing::Values("storyteller", "gpt2-tiny", "mistral-tiny", "qwen2-tiny",
                                           "qwen3-tiny", "qwen35-tiny", "qwen3moe-tiny"));

TEST(ExportedCheckpoint, LayersOfOtherKindsAreFloatsAlone) {
  for (const char* name : {"qwen35-tiny", "qwen3moe-tiny"}) {
    LEQ_SHARED_OR_SKIP(source, std::string("models/") + name);
    const Model model(quantized(source, "int8", ActChoice::none), {});
    const TemporaryFolder folder;
    const std::string graph = error_of([&] { export_onnx(model, {}, folder.path()); });
    const std::string compressed = error_of(
        [&] { export_hf(model, HfWeights::compressed, ExportedInputs::automatic, folder.path()); });
    EXPECT_TRUE(graph.starts_with("layer 0: exported graphs hold")) << graph;
    EXPECT_TRUE(compressed.starts_with("layer 0: compressed-tensors are")) << compressed;
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

template <class T>
std::vector<T> numbers_of(const TensorSource& source, const std::string& name) {
  const SourceTensor* tensor = source.find(name);
  if (tensor == nullptr) throw std::runtime_error("no tensor " + name);
  std::vector<T> out(tensor->bytes.size() / sizeof(T));
  std::memcpy(out.data(), tensor->bytes.data(), tensor->bytes.size());
  return out;
}

TEST(CompressedTensors, RowsOfInt8AreTheFilesCodes) {
  const Model model(quantized(kStory, "int8", ActChoice::row), {});
  const TemporaryFolder folder;
  export_hf(model, HfWeights::compressed, ExportedInputs::automatic, folder.path());
  const auto source = open_safetensors(folder.path());
  const std::string module = "model.layers.2.mlp.gate_proj.";
  const WeightView& view = model.file().find("layers.2.gate")->view;
  const auto codes = numbers_of<std::int8_t>(*source, module + "weight");
  const auto scales = numbers_of<float>(*source, module + "weight_scale");
  for (std::int64_t row = 0; row < view.rows; ++row) {
    ASSERT_EQ(scales[static_cast<std::size_t>(row)], scale_at(view, row, 0));
    for (std::int64_t k = 0; k < view.columns; ++k) {
      ASSERT_EQ(codes[static_cast<std::size_t>(row * view.columns + k)], code_at(view, row, k));
    }
  }
  const Json config = parse_json(read_file(folder / "config.json", 1 << 20), "config.json");
  const Json& group = config.at("quantization_config").at("config_groups").at("group_0");
  EXPECT_EQ(group.at("format").text(), "int-quantized");
  EXPECT_EQ(group.at("input_activations").at("strategy").text(), "token");
  EXPECT_EQ(group.at("targets").size(), 42u);
}

TEST(CompressedTensors, WordsHoldEightCodesOfFourBits) {
  const Model model(quantized(kStory, "int4-g64", ActChoice::none), {});
  const TemporaryFolder folder;
  export_hf(model, HfWeights::compressed, ExportedInputs::automatic, folder.path());
  const auto source = open_safetensors(folder.path());
  const std::string module = "model.layers.0.self_attn.q_proj.";
  const WeightView& view = model.file().find("layers.0.q")->view;
  const auto words = numbers_of<std::uint32_t>(*source, module + "weight_packed");
  const auto scales = numbers_of<float>(*source, module + "weight_scale");
  EXPECT_EQ(numbers_of<std::int64_t>(*source, module + "weight_shape"),
            (std::vector<std::int64_t>{view.rows, view.columns}));
  for (std::int64_t row = 0; row < view.rows; ++row) {
    for (std::int64_t k = 0; k < view.columns; ++k) {
      const std::uint32_t word = words[static_cast<std::size_t>(row * (view.columns / 8) + k / 8)];
      ASSERT_EQ(static_cast<int>(word >> (4 * (k % 8)) & 15) - 8, code_at(view, row, k));
      ASSERT_EQ(scales[static_cast<std::size_t>(row * (view.columns / 64) + k / 64)],
                scale_at(view, row, k));
    }
  }
}

std::string error_of(const std::filesystem::path& file, HfWeights weights) {
  const TemporaryFolder folder;
  try {
    export_hf(Model(file, {}), weights, ExportedInputs::automatic, folder.path() / "new");
  } catch (const Error& error) {
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "new"));
    return error.what();
  }
  return "";
}

TEST(CompressedTensors, RefuseWhatTheyDoNotHold) {
  const auto of = [](const char* type, ActChoice act) {
    return error_of(quantized(kStory, type, act), HfWeights::compressed);
  };
  EXPECT_NE(of("int8", ActChoice::g128).find("layers.0.q: act g128"), std::string::npos);
  EXPECT_NE(of("uint4-g32", ActChoice::none).find("layers.0.q: type uint4-g32"), std::string::npos);
  EXPECT_NE(of("f32", ActChoice::none).find("layers.0.q: type f32"), std::string::npos);
  EXPECT_NE(of("int4-g128", ActChoice::none).find("layers.0.down: 704 columns"), std::string::npos);
}

TEST(CompressedTensors, TakeWeightsAloneWhereInputsAreToBeF32) {
  const Model model(quantized(kStory, "int8", ActChoice::g128), {});
  const TemporaryFolder folder;
  export_hf(model, HfWeights::compressed, ExportedInputs::f32, folder.path());
  const Json config = parse_json(read_file(folder / "config.json", 1 << 20), "config.json");
  EXPECT_TRUE(config.at("quantization_config")
                  .at("config_groups")
                  .at("group_0")
                  .at("input_activations")
                  .is_null());
}

}  // namespace
}  // namespace leq::test

// Tensors, tables and the description of a model through the C API are those of its file.
#include <gtest/gtest.h>

#include "base/json.h"
#include "capi/native_model.h"
#include "model/rope.h"
#include "tensor/pack.h"

namespace leq::test {
namespace {

constexpr const char* kStory = LEQ_SOURCE_DIR "/examples/storyteller";

class CApiTensors : public ::testing::TestWithParam<const char*> {};

TEST_P(CApiTensors, CodesAndFloatsAreTheFiles) {
  const auto path = quantized(kStory, GetParam());
  const auto model = open_model(path);
  const Model native(path, {});
  const WeightView& view = native.file().find("layers.1.down")->view;
  const auto count = static_cast<std::size_t>(view.rows * view.columns);
  const bool has_zeros = view.scheme.kind == CodeKind::uint_;
  const std::int64_t block =
      view.scheme.scaling == Scaling::group ? view.scheme.group : view.columns;
  const auto blocks = static_cast<std::size_t>((view.columns + block - 1) / block);
  const std::size_t scale_count = static_cast<std::size_t>(view.rows) * blocks;
  std::vector<std::uint8_t> codes(count), zeros(scale_count);
  std::vector<float> scales(scale_count), floats(count);
  leq_error error = no_error();
  ASSERT_EQ(leq_tensor_codes(model.get(), "layers.1.down", codes.data(), count, scales.data(),
                             has_zeros ? zeros.data() : nullptr, scale_count, &error),
            LEQ_OK)
      << error.text;
  ASSERT_EQ(leq_tensor_floats(model.get(), "layers.1.down", floats.data(), count, &error), LEQ_OK)
      << error.text;
  for (std::int64_t row = 0; row < view.rows; ++row) {
    for (std::int64_t column = 0; column < view.columns; ++column) {
      const auto at = static_cast<std::size_t>(row * view.columns + column);
      const auto scale =
          static_cast<std::size_t>(row) * blocks + static_cast<std::size_t>(column / block);
      const int code = has_zeros ? codes[at] : static_cast<std::int8_t>(codes[at]);
      ASSERT_EQ(code, code_at(view, row, column));
      ASSERT_EQ(scales[scale], scale_at(view, row, column));
      const int zero = has_zeros ? zeros[scale] : 0;
      ASSERT_EQ(zero, zero_at(view, row, column));
      ASSERT_EQ(floats[at], static_cast<float>(code - zero) * scales[scale]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CApiTensors,
                         ::testing::Values("int8", "uint8", "int4-g32", "int3-g32", "uint2-g64",
                                           "uint4-g32"));

TEST(CApi, TablesAreThoseOfTheFile) {
  const auto model = open_model();
  const Model native(story_path(), {});
  for (const std::string& name : native.file().blob_names()) {
    const void* bytes = nullptr;
    std::size_t size = 0;
    ASSERT_EQ(leq_table(model.get(), name.c_str(), &bytes, &size, nullptr), LEQ_OK) << name;
    const auto expected = native.file().blob(name).value();
    ASSERT_EQ(size, expected.size());
    EXPECT_EQ(std::memcmp(bytes, expected.data(), size), 0) << name;
  }
}

Json described(const leq_model* model, const char* model_type, std::int64_t context) {
  leq_error error = no_error();
  char* json = nullptr;
  EXPECT_EQ(leq_describe(model, model_type, context, &json, &error), LEQ_OK) << error.text;
  const Owned<char> owned(json);
  return parse_json(json, "description");
}

TEST(CApi, ADescriptionHasFrequenciesAndPlacesInACheckpoint) {
  const auto model = open_model();
  const Model native(story_path(), {});
  const Json plain = described(model.get(), nullptr, 100);
  const auto expected =
      rope_frequencies(native.config(), native.config().ropes().at(0), 100).inv_freq;
  ASSERT_EQ(plain.at("ropes")[0].at("inv_freq").size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(plain.at("ropes")[0].at("inv_freq").at(i).get<float>(), expected[i]);
  }
  EXPECT_FALSE(plain.contains("checkpoint"));
  EXPECT_EQ(std::ssize(plain.at("layers")), native.config().layer_count());
  const Json checkpoint = described(model.get(), "llama", 0).at("checkpoint");
  EXPECT_EQ(checkpoint.at("architecture").text(), "LlamaForCausalLM");
  EXPECT_EQ(checkpoint.at("keys").at("width").text(), "hidden_size");
  bool found = false;
  for (const Json& tensor : checkpoint.at("tensors")) {
    if (tensor.at("name").text() != "layers.3.up") continue;
    found = true;
    EXPECT_EQ(tensor.at("source").text(), "model.layers.3.mlp.up_proj.weight");
    EXPECT_EQ(tensor.at("site").text(), "layers.3.gate");
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace leq::test

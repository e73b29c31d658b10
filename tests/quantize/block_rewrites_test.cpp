// Blocks that leq-quantize changes besides the choice of codes, tested through whole files: the
// correction of biases, and hybrids.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "convert/hf_import.h"
#include "format/leq_reader.h"
#include "model/open_model.h"
#include "quantize/block_statistics.h"
#include "quantize/calibration/calibration.h"
#include "quantize/run/block_run.h"
#include "quantize/run/blocks.h"
#include "quantize/run/quantize.h"
#include "reference/model_tensors.h"
#include "reference/small_hybrid.h"
#include "temporary_folder.h"
#include "tokenizer/tokenizer.h"

namespace leq {
namespace {

QuantizeOptions options_of(const std::string& method, const std::string& type) {
  QuantizeOptions options;
  options.method = method;
  options.type = type;
  options.threads = 1;
  std::string text;
  Random random(5);
  while (text.size() < 400) text += static_cast<char>('a' + random.below(26));
  options.calibration = {text, "letters", 6, 32, 9};
  return options;
}

void write(const std::filesystem::path& source, const std::filesystem::path& output,
           const QuantizeOptions& options) {
  quantize_checkpoint(source, output, options);
}

std::vector<float> tensor_values(const LeqReader& file, const std::string& name) {
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.name != name) continue;
    std::vector<float> values;
    std::vector<float> row(static_cast<std::size_t>(tensor.view.columns));
    for (std::int64_t r = 0; r < tensor.view.rows; ++r) {
      unpack_row(tensor.view, r, row);
      values.insert(values.end(), row.begin(), row.end());
    }
    return values;
  }
  return {};
}

ModelConfig config_of(const LeqReader& file) {
  return config_from_json(file.metadata()["config"], file.name());
}

test::NaiveTransformer naive_of(const LeqReader& file) {
  std::map<std::string, std::vector<double>> tensors;
  for (const StoredTensor& tensor : file.tensors()) {
    const auto values = tensor_values(file, tensor.name);
    tensors[tensor.name] = {values.begin(), values.end()};
  }
  return {config_of(file), std::move(tensors)};
}

// b += mean over tokens of (W - Wq) x, computed with plain loops, for the biases of q, k and v.
TEST(BlockRewrites, CorrectedBiasesKeepTheMeanOfTheOutputs) {
  const test::TemporaryFolder folder;
  test::RandomCheckpoint checkpoint(folder.path() / "hf");
  const Json json = test::small_config("qwen2", "Qwen2ForCausalLM");
  checkpoint.add_llama(json, {.qkv_bias = true});
  const auto source = checkpoint.write(json);
  const QuantizeOptions options = options_of("rtn", "int3-g32");
  const auto output = folder.path() / "m.leq";
  write(source, output, options);
  const ImportedModel model = import_hf(source);
  const auto statistics = test::block_statistics(model, options);
  const LeqReader file(output, {.mode = LoadMode::map});
  const auto values_of = [&](const std::string& name) {
    const auto tensor = std::ranges::find(model.tensors, name, &TensorInput::name);
    std::vector<float> values(tensor_values(file, name).size());
    tensor->read(0, tensor->shape[0], values);
    return values;
  };
  for (const std::string part : {"q", "k", "v"}) {
    const std::string name = "layers.1." + part;
    const auto rounded = tensor_values(file, name), bias = tensor_values(file, name + ".bias");
    const auto weight = values_of(name), before = values_of(name + ".bias");
    const InputStatistics& inputs = statistics[1].at(site_of(linear_sites(model.config, 1), part));
    ASSERT_EQ(bias.size() * inputs.sum.size(), rounded.size());
    double largest = 0;
    for (std::size_t n = 0; n < bias.size(); ++n) {
      double want = 0;
      for (std::size_t k = 0; k < inputs.sum.size(); ++k) {
        const std::size_t i = n * inputs.sum.size() + k;
        want += (static_cast<double>(weight[i]) - static_cast<double>(rounded[i])) * inputs.sum[k] /
                static_cast<double>(inputs.tokens);
      }
      EXPECT_NEAR(static_cast<double>(bias[n]) - static_cast<double>(before[n]), want, 1e-6)
          << name;
      largest = std::max(largest, std::abs(want));
    }
    EXPECT_GT(largest, 1e-5) << name;
  }
}

void expect_near(const std::filesystem::path& source) {
  const test::TemporaryFolder folder;
  std::vector<Token> ids;
  for (int i = 0; i < 24; ++i) ids.push_back((i * 7 + 3) % 90);
  const auto want = test::NaiveTransformer(import_hf(source)).forward(ids);
  for (const char* method : {"gptq", "awq", "smoothquant"}) {
    const auto output = folder.path() / (std::string(method) + ".leq");
    write(source, output, options_of(method, "int8"));
    const auto found = naive_of(LeqReader(output, {.mode = LoadMode::map})).forward(ids);
    double worst = 0, largest = 0;
    for (std::size_t v = 0; v < want.back().size(); ++v) {
      worst = std::max(worst, std::abs(want.back()[v] - found.back()[v]));
      largest = std::max(largest, std::abs(want.back()[v]));
    }
    EXPECT_LT(worst, 0.15 * largest) << method;
  }
}

// Tests layers with all mixers, a router, and the gate of a shared expert (each is one row).
TEST(BlockRewrites, HybridsAreCalibrated) {
  const test::TemporaryFolder folder;
  const Json config = test::small_hybrid_config({.value_dim = 24}, 5, 40, 56);
  test::RandomCheckpoint qwen(folder.path() / "qwen"), lfm2(folder.path() / "lfm2");
  qwen.add_qwen3_5(config, test::RandomCheckpoint::Experts::stacked);
  expect_near(qwen.write(config));
  lfm2.add_lfm2(test::small_lfm2_config(96));
  expect_near(lfm2.write(test::small_lfm2_config(96)));
}

}  // namespace
}  // namespace leq

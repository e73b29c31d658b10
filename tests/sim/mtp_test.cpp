// A multi-token prediction head on GPUs: the hidden states passed from the model to the head, and
// the head's results, must equal the CPU's bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "quantize/run/quantize.h"
#include "gpu_devices.h"
#include "model/session.h"
#include "reference/mtp_checkpoint.h"
#include "reference/random_checkpoint.h"
#include "runtime/make_backend.h"
#include "same_bits.h"
#include "temporary_folder.h"

namespace leq {
namespace {

std::filesystem::path mtp_file(const test::TemporaryFolder& folder) {
  const Json config = test::mtp_config_of(true);
  test::RandomCheckpoint checkpoint(folder.path() / "hf", 7);
  checkpoint.add_qwen3_5(config, test::RandomCheckpoint::Experts::none);
  checkpoint.add_mtp(config);
  const auto path = folder.path() / "mtp.leq";
  quantize_checkpoint(checkpoint.write(config), path, {.type = "int8", .threads = 1});
  return path;
}

RunLimits mtp_limits(const ModelConfig& config) {
  RunLimits limits;
  limits.context = 64;
  limits.output_tokens = 4;
  limits.key_type = limits.value_type = KvType::f16;
  return resolve_limits(limits, config);
}

// Returns the hidden states of a text, the head's logits for these, and the logits of three more
// predictions, each from the head's own hidden state of the previous one.
std::vector<float> mtp_numbers(const std::string& device, const Model& model) {
  const auto backend = make_backend({device, 1, {0, Arithmetic::exact}});
  Session trunk(model, *backend, mtp_limits(model.config()));
  const auto head = make_mtp_session(model, *backend, mtp_limits(*model.mtp()));
  const auto width = static_cast<std::size_t>(model.config().width);
  std::vector<Token> text = {3, 14, 15, 9, 2, 6, 5, 35};
  Batch batch;
  batch.add(0, text.data(), std::ssize(text), Batch::Want::last);
  (void)trunk.transformer().forward(batch, trunk.state());
  std::vector<std::int32_t> rows(text.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>(i);
  std::vector<float> hidden(rows.size() * width), all;
  trunk.transformer().normed_hidden(rows, hidden);
  for (int guess = 0; guess < 4; ++guess) {
    all.insert(all.end(), hidden.begin(), hidden.end());
    Batch of_head;
    of_head.add(0, text.data(), std::ssize(text), Batch::Want::last);
    std::vector<float> logits(static_cast<std::size_t>(model.config().vocab));
    backend->download(head->transformer().forward(of_head, head->state(), hidden), 1, logits);
    all.insert(all.end(), logits.begin(), logits.end());
    const std::vector<std::int32_t> last = {static_cast<std::int32_t>(text.size()) - 1};
    hidden.resize(width);
    head->transformer().normed_hidden(last, hidden);
    text = {static_cast<Token>(std::ranges::max_element(logits) - logits.begin())};
  }
  return all;
}

class GpuMtp : public testing::TestWithParam<std::string> {};

TEST_P(GpuMtp, GuessesAreTheCpusBits) {
  const test::TemporaryFolder folder;
  const Model model(mtp_file(folder), {});
  ASSERT_NE(model.mtp(), nullptr);
  EXPECT_TRUE(test::same_bits(mtp_numbers("cpu", model), mtp_numbers(GetParam(), model)));
}

INSTANTIATE_TEST_SUITE_P(Devices, GpuMtp, testing::ValuesIn(test::gpu_devices()),
                         [](const auto& item) { return test::test_name(item.param); });

}  // namespace
}  // namespace leq

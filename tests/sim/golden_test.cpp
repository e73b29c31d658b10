// Trained models on GPUs, above all the emulated one: against transformers in f32, and against the
// CPU backend for every type of weights, activations and KV cache.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "base/file.h"
#include "base/json.h"
#include "format/safetensors.h"
#include "gpu_devices.h"
#include "models_fixture.h"
#include "shared_data.h"
#include "sim/engine.h"

namespace leq {
namespace {

using test::Engine;
using test::KvTypes;

// Emulation is slow: the head of a long prompt, cut within a page.
constexpr std::size_t kMostTokens = 70;
constexpr std::size_t kDecoded = 12;

class GpuGolden : public testing::TestWithParam<std::tuple<std::string, const char*>> {
 protected:
  const std::string& device() const { return std::get<0>(GetParam()); }
  std::string folder_name() const { return std::string("models/") + std::get<1>(GetParam()); }
};

Json golden_of(const std::filesystem::path& folder) {
  return parse_json(read_file(folder / "golden.json", 1 << 24), "golden.json");
}

std::vector<Token> head_of(const Json& prompt) {
  auto ids = prompt.at("ids").get<std::vector<Token>>();
  ids.resize(std::min(ids.size(), kMostTokens));
  return ids;
}

TEST_P(GpuGolden, F32LogitsEqualTransformers) {
  LEQ_SHARED_OR_SKIP(folder, folder_name());
  const Json golden = golden_of(folder);
  const auto tensors = open_safetensors(folder / "golden.safetensors");
  const double tolerance = golden.at("tolerance").at("logits_f32_max_abs").get<double>();
  Engine engine(device(), test::quantized(folder, "f32"), {KvType::f32, KvType::f32});
  const std::size_t vocab = engine.vocab();
  for (const auto& prompt : golden.at("prompts")) {
    const auto ids = head_of(prompt);
    const auto got = engine.logits(ids, 41);
    const SourceTensor* want = tensors->find(prompt.at("logits").get<std::string>());
    ASSERT_NE(want, nullptr);
    std::vector<float> row(vocab);
    const auto& rows = prompt.at("rows");
    std::size_t compared = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto at = rows[r].get<std::size_t>();
      if (at >= ids.size()) continue;
      read_floats(*want, static_cast<std::int64_t>(r * vocab), row);
      for (std::size_t v = 0; v < vocab; ++v) {
        ASSERT_NEAR(got[at * vocab + v], row[v], tolerance) << prompt.at("text") << " row " << at;
      }
      ++compared;
    }
    EXPECT_GT(compared, 3u) << prompt.at("text");
  }
}

// The best token of a row that does not end a text.
Token best_of(const Engine& engine, const std::vector<float>& logits, std::size_t row) {
  const std::size_t vocab = engine.vocab();
  std::vector<float> values(logits.begin() + static_cast<std::ptrdiff_t>(row * vocab),
                            logits.begin() + static_cast<std::ptrdiff_t>((row + 1) * vocab));
  for (const Token end : engine.model.generation().end_tokens) {
    values[static_cast<std::size_t>(end)] = -INFINITY;
  }
  return static_cast<Token>(std::ranges::max_element(values) - values.begin());
}

TEST_P(GpuGolden, F32GreedyTextEqualsTransformersWhereItsMarginIsSure) {
  LEQ_SHARED_OR_SKIP(folder, folder_name());
  const Json golden = golden_of(folder);
  Engine engine(device(), test::quantized(folder, "f32"), {KvType::f32, KvType::f32});
  for (const auto& prompt : golden.at("prompts")) {
    if (!prompt.contains("greedy_ids")) continue;  // long prompts have logits only
    auto ids = prompt.at("ids").get<std::vector<Token>>();
    const std::size_t length = ids.size();
    const auto want = prompt.at("greedy_ids").get<std::vector<Token>>();
    const auto steps = std::min(kDecoded, prompt.at("greedy_sure_tokens").get<std::size_t>());
    ids.insert(ids.end(), want.begin(), want.begin() + static_cast<std::ptrdiff_t>(steps - 1));
    const auto logits = engine.logits(ids, 128, length);
    for (std::size_t i = 0; i < steps; ++i) {
      ASSERT_EQ(best_of(engine, logits, length - 1 + i), want[i])
          << prompt.at("text") << " at token " << i;
    }
  }
}

double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float l : logits) sum += std::exp(l - largest);
  return largest + std::log(sum);
}

// Mean KL divergence in nats of next-token distributions.
double divergence(const std::vector<float>& p, const std::vector<float>& q, std::size_t vocab) {
  double sum = 0;
  for (std::size_t at = 0; at < p.size(); at += vocab) {
    const auto a = std::span(p).subspan(at, vocab), b = std::span(q).subspan(at, vocab);
    const double of_a = log_sum_exp(a), of_b = log_sum_exp(b);
    for (std::size_t v = 0; v < vocab; ++v) {
      sum += std::exp(a[v] - of_a) * ((a[v] - of_a) - (b[v] - of_b));
    }
  }
  return sum * static_cast<double>(vocab) / static_cast<double>(p.size());
}

struct Kind {
  const char* type;
  ActChoice act;
  KvTypes kv;
};

constexpr KvType kF32 = KvType::f32, kF16 = KvType::f16, kInt8 = KvType::int8;
constexpr ActChoice kAuto = ActChoice::automatic;

// Every number of bits, grouping and kind of zero point; every pair of key and value types.
const Kind kKinds[] = {
    {"f16", kAuto, {kF16, kF16}},
    {"bf16", kAuto, {kInt8, kF32}},
    {"int8", kAuto, {kF16, kInt8}},
    {"int8", ActChoice::row, {kInt8, kInt8}},
    {"int8", ActChoice::none, {kF32, kF16}},
    {"int8-g128", kAuto, {kInt8, kF16}},
    {"int8-tensor", ActChoice::g128, {kF16, kF32}},
    {"int4-g128", kAuto, {kF16, kF16}},
    {"int4-g128", ActChoice::none, {kInt8, kInt8}},
    {"int3-g64", kAuto, {kF32, kInt8}},
    {"int2-g32", kAuto, {kF32, kF32}},
    {"uint8", kAuto, {kInt8, kInt8}},
    {"uint4-g64", kAuto, {kF16, kInt8}},
    {"uint3-g128", ActChoice::row, {kF16, kF16}},
    {"uint2-g128", ActChoice::none, {kF16, kF16}},
};

// Float sums are of another order than the CPU's, so a code may fall to the other side of a half;
// a wrong scale, zero point or group is a thousand times as far.
TEST_P(GpuGolden, EveryTypeAgreesWithTheCpu) {
  constexpr double kNear = 2e-5;
  LEQ_SHARED_OR_SKIP(folder, folder_name());
  const Json golden = golden_of(folder);
  auto ids = golden.at("prompts")[1].at("ids").get<std::vector<Token>>();
  const std::size_t length = ids.size();
  const auto more = golden.at("prompts")[1].at("greedy_ids").get<std::vector<Token>>();
  ids.insert(ids.end(), more.begin(), more.begin() + 4);
  for (const Kind& kind : kKinds) {
    const auto file = test::quantized(folder, kind.type, kind.act);
    Engine cpu("cpu", file, kind.kv), gpu(device(), file, kind.kv);
    const double found =
        divergence(cpu.logits(ids, length), gpu.logits(ids, 17, length), cpu.vocab());
    const std::string name =
        std::string(kind.type) + " act " + std::to_string(static_cast<int>(kind.act)) + " kv " +
        std::string(kv_type_name(kind.kv.keys)) + "/" + std::string(kv_type_name(kind.kv.values));
    EXPECT_LT(found, kNear) << name;
    std::printf("%-40s KL to the CPU %.1e\n", name.c_str(), found);
  }
}

// Both are fed the CPU's greedy text. Where the GPU would go on with another token, the CPU's
// logits of the two lie nearer than any margin that golden.json counts as sure.
TEST_P(GpuGolden, QuantizedGreedyTextsPartAtNearTiesAlone) {
  constexpr float kSureMargin = 0.02f;
  constexpr int kSteps = 64;
  LEQ_SHARED_OR_SKIP(folder, folder_name());
  const auto file = test::quantized(folder, "int8");
  Engine cpu("cpu", file, {kF16, kInt8}), gpu(device(), file, {kF16, kInt8});
  auto next = golden_of(folder).at("prompts")[0].at("ids").get<std::vector<Token>>();
  float moved = 0;  // the largest difference of a logit
  for (int i = 0; i < kSteps; ++i) {
    const auto from_cpu = cpu.session->feed(0, next), from_gpu = gpu.session->feed(0, next);
    const std::vector<float> a(from_cpu.begin(), from_cpu.end());
    const std::vector<float> b(from_gpu.begin(), from_gpu.end());
    for (std::size_t v = 0; v < a.size(); ++v) moved = std::max(moved, std::abs(a[v] - b[v]));
    const auto best = static_cast<std::size_t>(best_of(cpu, a, 0));
    const auto other = static_cast<std::size_t>(best_of(gpu, b, 0));
    if (best != other) {
      std::printf("token %d: margin %.4f on the CPU, %.4f on %s, logits differ by %.4f\n", i,
                  a[best] - a[other], b[other] - b[best], device().c_str(), moved);
      EXPECT_LT(a[best] - a[other], kSureMargin) << "at token " << i;
    }
    next = {static_cast<Token>(best)};
  }
  std::printf("largest difference of a logit: %.4f\n", moved);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuGolden,
                         testing::Combine(testing::ValuesIn(test::gpu_devices()),
                                          testing::Values("storyteller", "storyteller-outliers",
                                                          "gpt2-tiny", "gpt2-tiny-outliers",
                                                          "mistral-tiny", "qwen2-tiny",
                                                          "qwen2-tiny-kbias", "qwen3-tiny")),
                         [](const auto& item) {
                           return test::test_name(std::get<0>(item.param) + "_" +
                                                  std::get<1>(item.param));
                         });

}  // namespace
}  // namespace leq

// Compares every trained model with transformers: logits, log-likelihoods and greedy text.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/file.h"
#include "base/json.h"
#include "case_names.h"
#include "format/tensor_source.h"
#include "model/session.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

class Golden : public ::testing::TestWithParam<const char*> {};

struct Engine {
  Engine(const std::filesystem::path& file, KvType kv)
      : model(file, {}), backend(make_backend({"cpu", 2})) {
    RunLimits limits;
    limits.key_type = limits.value_type = kv;
    limits.output_tokens = 512;
    session.emplace(model, *backend, resolve_limits(limits, model.config()));
  }

  // Returns logits [ids][V] of one sequence, fed from its start.
  std::vector<float> logits(const std::vector<Token>& ids) {
    session->state().drop(0);
    Batch batch;
    const auto count = std::ssize(ids);
    batch.add(0, ids.data(), count, Batch::Want::all);
    std::vector<float> out(static_cast<std::size_t>(count * model.config().vocab));
    backend->download(session->transformer().forward(batch, session->state()), count, out);
    return out;
  }

  Model model;
  std::unique_ptr<Backend> backend;
  std::optional<Session> session;
};

double negative_log_likelihood(std::span<const float> logits, Token target) {
  double largest = -1e300, sum = 0;
  for (const float l : logits) largest = std::max(largest, static_cast<double>(l));
  for (const float l : logits) sum += std::exp(l - largest);
  return largest + std::log(sum) - logits[static_cast<std::size_t>(target)];
}

TEST_P(Golden, F32LogitsAndLikelihoodsEqualTransformers) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  const Json golden = parse_json(read_file(folder / "golden.json", 1 << 24), "golden.json");
  const auto tensors = open_safetensors(folder / "golden.safetensors");
  const double tolerance = golden.at("tolerance").at("logits_f32_max_abs").get<double>();
  Engine engine(test::quantized(folder, "f32"), KvType::f32);
  const auto vocab = static_cast<std::size_t>(engine.model.config().vocab);
  for (const auto& prompt : golden.at("prompts")) {
    const auto ids = prompt.at("ids").get<std::vector<Token>>();
    const auto got = engine.logits(ids);
    const SourceTensor* want = tensors->find(prompt.at("logits").get<std::string>());
    ASSERT_NE(want, nullptr);
    std::vector<float> row(vocab);
    double worst = 0;
    const auto& rows = prompt.at("rows");
    for (std::size_t r = 0; r < rows.size(); ++r) {
      read_floats(*want, static_cast<std::int64_t>(r * vocab), row);
      const float* have = got.data() + rows[r].get<std::size_t>() * vocab;
      for (std::size_t v = 0; v < vocab; ++v) {
        worst = std::max(worst, std::abs(static_cast<double>(have[v]) - row[v]));
      }
    }
    EXPECT_LT(worst, tolerance) << prompt.at("text");
    double nll = 0;
    for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
      nll += negative_log_likelihood(std::span(got).subspan(t * vocab, vocab), ids[t + 1]);
    }
    const double more = nll - prompt.at("nll").get<double>();
    EXPECT_LT(std::abs(std::expm1(more / static_cast<double>(ids.size() - 1))), 1e-5)
        << "perplexity of " << prompt.at("text");
  }
}

TEST_P(Golden, F32GreedyTextEqualsTransformersWhereItsMarginIsSure) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  const Json golden = parse_json(read_file(folder / "golden.json", 1 << 24), "golden.json");
  Engine engine(test::quantized(folder, "f32"), KvType::f32);
  const auto& ends = engine.model.generation().end_tokens;
  for (const auto& prompt : golden.at("prompts")) {
    if (!prompt.contains("greedy_ids")) continue;  // long prompts have logits only
    const auto want = prompt.at("greedy_ids").get<std::vector<Token>>();
    engine.session->state().drop(0);
    auto next = prompt.at("ids").get<std::vector<Token>>();
    for (std::size_t i = 0; i < prompt.at("greedy_sure_tokens").get<std::size_t>(); ++i) {
      const auto found = engine.session->feed(0, next);
      std::vector<float> logits(found.begin(), found.end());
      for (const Token end : ends) logits[static_cast<std::size_t>(end)] = -INFINITY;
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      ASSERT_EQ(best, want[i]) << prompt.at("text") << " at token " << i;
      next = {static_cast<Token>(best)};
    }
  }
}

// Mean KL divergence in nats of next-token distributions from the f32 model's on golden prompts.
double divergence(const std::filesystem::path& folder, const std::string& type, KvType kv) {
  const Json golden = parse_json(read_file(folder / "golden.json", 1 << 24), "golden.json");
  Engine base(test::quantized(folder, "f32"), KvType::f32);
  Engine other(test::quantized(folder, type), kv);
  const auto vocab = static_cast<std::size_t>(base.model.config().vocab);
  double sum = 0;
  std::size_t rows = 0;
  for (const auto& prompt : golden.at("prompts")) {
    const auto ids = prompt.at("ids").get<std::vector<Token>>();
    const auto p = base.logits(ids), q = other.logits(ids);
    for (std::size_t t = 0; t < ids.size(); ++t, ++rows) {
      const auto a = std::span(p).subspan(t * vocab, vocab),
                 b = std::span(q).subspan(t * vocab, vocab);
      for (std::size_t v = 0; v < vocab; ++v) {
        const double log_p = -negative_log_likelihood(a, static_cast<Token>(0)) + a[v] - a[0];
        const double log_q = -negative_log_likelihood(b, static_cast<Token>(0)) + b[v] - b[0];
        sum += std::exp(log_p) * (log_p - log_q);
      }
      if (rows > 60) return sum / static_cast<double>(rows + 1);
    }
  }
  return sum / static_cast<double>(rows);
}

// A plain simulation in torch found 0.001 (int8) and 0.04 (int4-g128) on the storyteller. A wrong
// scale or a missing group would give 0.1 to 10.
TEST_P(Golden, QuantizedModelsStayNearTheirF32Selves) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  const std::string name = GetParam();
  const bool outliers = name.ends_with("outliers");
  EXPECT_LT(divergence(folder, "f16", KvType::f16), 1e-4);
  EXPECT_LT(divergence(folder, "bf16", KvType::f16), 1e-3);
  if (outliers) {
    EXPECT_GT(divergence(folder, "int8", KvType::f16), 0.05) << "int8 activations must suffer here";
    return;
  }
  EXPECT_LT(divergence(folder, "int8", KvType::f16), 0.01);
  EXPECT_LT(divergence(folder, "int8-g128", KvType::f16), 0.01);
  EXPECT_LT(divergence(folder, "int4-g128", KvType::f16), 0.12);
  EXPECT_LT(divergence(folder, "f32", KvType::int8), name == "qwen2-tiny-kbias" ? 0.2 : 0.003);
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(test::kTrainedModels),
                         test::named_by_text);

}  // namespace
}  // namespace leq

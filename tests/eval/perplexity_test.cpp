// Tests the arithmetic of perplexities, and compares models' perplexities with transformers.
#include "eval/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/tokenizer_import.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

TEST(NegativeLogLikelihood, EqualsTheDefinition) {
  const std::vector<float> logits = {1.0f, -2.5f, 0.25f, 3.0f};
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l));
  for (std::int64_t t = 0; t < 4; ++t) {
    const double expected = -std::log(std::exp(double{logits[static_cast<std::size_t>(t)]}) / sum);
    EXPECT_NEAR(negative_log_likelihood(logits, t), expected, 1e-14);
  }
}

TEST(NegativeLogLikelihood, NeitherOverflowsNorHidesBadLogits) {
  EXPECT_NEAR(negative_log_likelihood(std::vector<float>{1e30f, 1e30f}, 1), std::log(2.0), 1e-12);
  EXPECT_NEAR(negative_log_likelihood(std::vector<float>{-200.0f, 200.0f}, 0), 400.0, 1e-12);
  EXPECT_FALSE(std::isfinite(negative_log_likelihood(std::vector<float>{0.0f, NAN, 1.0f}, 0)));
  EXPECT_FALSE(std::isfinite(negative_log_likelihood(std::vector<float>{NAN, 0.0f, 1.0f}, 1)));
  EXPECT_FALSE(std::isfinite(negative_log_likelihood(std::vector<float>{INFINITY, 1.0f}, 1)));
}

// Windows of 2 and 1 tokens have means 2 and 5: hf weights windows equally, other protocols tokens.
TEST(Summary, HfIsTheMeanOfWindowMeans) {
  const std::vector<std::vector<double>> nlls = {{1.0, 3.0}, {5.0}};
  const PerplexityResult hf = summarize(Protocol::hf, nlls);
  EXPECT_DOUBLE_EQ(hf.nll, 3.5);
  EXPECT_DOUBLE_EQ(hf.ppl, std::exp(3.5));
  // Means 2 and 5 differ from 3.5 by 1.5: their variance is 4.5, that of the mean 2.25.
  EXPECT_DOUBLE_EQ(hf.standard_error, std::exp(3.5) * 1.5);
  EXPECT_EQ(hf.scored, 3);
  EXPECT_EQ(hf.windows, 2);
  const PerplexityResult other = summarize(Protocol::hf_stride, nlls);
  EXPECT_DOUBLE_EQ(other.nll, 3.0);
  // The losses 1, 3, 5 have variance 4; their mean has 4/3.
  EXPECT_DOUBLE_EQ(other.standard_error, std::exp(3.0) * std::sqrt(4.0 / 3.0));
}

TEST(Summary, OneWindowTakesItsErrorFromTokens) {
  const PerplexityResult one =
      summarize(Protocol::hf, std::vector<std::vector<double>>{{1.0, 3.0}});
  EXPECT_DOUBLE_EQ(one.standard_error, std::exp(2.0) * 1.0);
}

struct GoldenRun {
  const char* model;
  const char* protocol;  // as in golden.json
  std::int64_t chunks;   // windows to run; 0 = all of the golden file
};

std::ostream& operator<<(std::ostream& out, const GoldenRun& run) {
  return out << run.model << ' ' << run.protocol;
}

class GoldenPerplexity : public ::testing::TestWithParam<GoldenRun> {};

Json golden_entry(const std::filesystem::path& file, const std::string& protocol) {
  const Json golden = parse_json(read_file(file, 1u << 24), file.string());
  for (const Json& entry : golden.at("perplexity")) {
    if (entry.at("protocol") == protocol) return entry;
  }
  fail(file.string(), ": no golden perplexity of protocol ", protocol);
}

TEST_P(GoldenPerplexity, F32EqualsTransformers) {
  const GoldenRun& run = GetParam();
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + run.model);
  LEQ_SHARED_OR_SKIP(golden_file, std::string("models/") + run.model + "/golden.json");
  const Json golden = golden_entry(golden_file, run.protocol);
  const bool joined_none = std::string(run.protocol).ends_with("join none");
  const std::string dataset = golden.at("dataset").get<std::string>();
  LEQ_SHARED_OR_SKIP(file, joined_none ? "models/storyteller" : "data/wikitext-2/" + dataset);
  ProtocolRequest request;
  request.protocol = std::string(run.protocol).substr(0, std::string(run.protocol).find(','));
  if (joined_none) request.join = "none";
  request.chunks = golden.at("windows").get<std::int64_t>();

  const Model model(test::quantized(folder, "f32"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 2});
  const ProtocolSettings settings = resolve_protocol(request, model.config().context);
  const EvaluationText text =
      read_evaluation_text(joined_none ? file / "heldout.txt" : file, settings.join);
  EXPECT_EQ(text.dataset_hash, golden.at("dataset_hash").get<std::string>());
  EXPECT_EQ(text.text_sha256, golden.at("text_sha256").get<std::string>());
  const std::vector<Token> tokens = encode_text(model.tokenizer(), text.text);
  EXPECT_EQ(std::ssize(tokens), golden.at("tokens").get<std::int64_t>());
  const std::vector<Window> windows = plan_windows(settings, std::ssize(tokens));

  RunLimits limits;
  limits.context = settings.window;
  limits.output_tokens = kOutputRows;
  limits.key_type = limits.value_type = KvType::f32;
  Session session(model, *backend, resolve_limits(limits, model.config()));
  ThreadPool pool(2);
  PerplexityRun request_run{.tokens = tokens, .windows = windows, .protocol = settings.protocol};
  if (settings.protocol == Protocol::llamacpp_512 && model.tokenizer().add_bos()) {
    request_run.window_bos = model.tokenizer().bos();
  }
  const PerplexityResult result = measure_perplexity(session, pool, request_run);
  const double expected = golden.at("ppl").get<double>();
  constexpr double kRelative = 1e-4;  // stated in golden.json
  EXPECT_NEAR(result.ppl, expected, expected * kRelative);
  EXPECT_EQ(result.windows, golden.at("windows").get<std::int64_t>());
  EXPECT_EQ(result.scored, golden.at("scored").get<std::int64_t>());
}

INSTANTIATE_TEST_SUITE_P(Short, GoldenPerplexity,
                         ::testing::Values(GoldenRun{"storyteller", "hf, join none", 0},
                                           GoldenRun{"gpt2-tiny", "hf-stride", 0},
                                           GoldenRun{"mistral-tiny", "hf-stride", 0},
                                           GoldenRun{"qwen2-tiny", "hf-stride", 0},
                                           GoldenRun{"qwen3-tiny", "hf-stride", 0},
                                           GoldenRun{"qwen35-tiny", "hf-stride", 8},
                                           GoldenRun{"qwen3moe-tiny", "hf-stride", 8}));

// Checks the token counts of every golden text without running a model.
TEST(EncodeText, CountsEqualTheGoldenOnes) {
  int checked = 0;
  for (const std::string name :
       {"storyteller", "gpt2-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny"}) {
    const auto folder = test::shared_path("models/" + name);
    const auto wiki = test::shared_path("data/wikitext-2/wiki.test.raw");
    if (!folder || !wiki) continue;
    const Tokenizer tokenizer(import_tokenizer(*folder).spec);
    for (const std::string protocol : {"hf", "llamacpp-512"}) {
      const auto text = read_evaluation_text(*wiki, protocol == "hf" ? Join::hf : Join::none);
      EXPECT_EQ(std::ssize(encode_text(tokenizer, text.text)),
                golden_entry(*folder / "golden.json", protocol).at("tokens").get<std::int64_t>())
          << name << ' ' << protocol;
      ++checked;
    }
  }
  if (checked == 0) GTEST_SKIP() << "needs ../shared (or LEQ_SHARED)";
}

}  // namespace
}  // namespace leq

// The loss of quantizing one part of a model must equal the loss if this part is stored quantized.
#include "eval/divergence.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/workers.h"
#include "base/error.h"
#include "convert/import.h"
#include "quantize/run/quantize.h"
#include "eval/perplexity.h"
#include "reference/naive_transformer.h"
#include "temporary_folder.h"

namespace leq::test {
namespace {

const std::filesystem::path kStory = std::filesystem::path(LEQ_SOURCE_DIR) / "examples/storyteller";
// Allowed relative difference of KL above 1e-4 nats if integer sums are replaced by float sums.
constexpr double kSameRounding = 0.02;

TEST(RoundInputs, IsTheNearestOf127StepsOfTheLargest) {
  std::vector<float> row = {0.5F, -1.27F, 0.004F, 0.0061F, 2.0F, 0.9F};
  const std::vector<float> factors = {1, 1, 1, 1, 0.25F, 1};
  round_inputs(row, factors, ActKind::row, 0);  // steps of 0.01 of the row times its factors
  const double expected[] = {0.5, -1.27, 0.0, 0.01, 2.0, 0.9};
  for (std::size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], expected[i], 1e-6) << i;
  std::vector<float> clipped = {3.0F, -0.26F};
  round_inputs(clipped, std::vector<float>{1, 1}, ActKind::tensor, 0.01F);
  EXPECT_NEAR(clipped[0], 1.27, 1e-6);
  EXPECT_NEAR(clipped[1], -0.26, 1e-6);
}

TEST(RoundInputs, HasAStepForEachGroup) {
  std::vector<float> row(64, 1.0F);
  row[3] = 0.3F;
  row[40] = 127;
  row[41] = 0.3F;
  round_inputs(row, std::vector<float>(64, 1), ActKind::g32, 0);
  EXPECT_NEAR(row[3], 0.3, 0.5 / 127);
  EXPECT_EQ(row[41], 0);  // a step of 1
}

class PartDivergence : public ::testing::Test {
 protected:
  PartDivergence() {
    const EvaluationText text = read_evaluation_text(kStory / "heldout.txt", Join::none);
    base_ = file("f32", "absmax", ActChoice::automatic);
    tokens_ = encode_text(base_->tokenizer(), text.text);
    ProtocolSettings settings;
    settings.window = settings.stride = 64;
    settings.chunks = 3;
    windows_ = plan_windows(settings, std::ssize(tokens_));
    RunLimits limits;
    limits.context = 64;
    limits.output_tokens = kOutputRows;
    limits.key_type = limits.value_type = kExactKv;
    limits_ = resolve_limits(limits, base_->config());
    exact_ = std::make_unique<Session>(*base_, *workers_.backend, limits_);
  }

  std::unique_ptr<Model> file(const std::string& type, const std::string& method, ActChoice act) {
    QuantizeOptions options;
    options.type = type;
    options.method = method;
    options.act = act;
    options.calibration.samples = 2;
    options.calibration.length = 64;
    const std::filesystem::path path =
        folder_ / (type + method + std::to_string(files_++) + ".leq");
    quantize_checkpoint(kStory, path, options);
    return std::make_unique<Model>(path, LoadOptions{.mode = LoadMode::map});
  }
  SessionUse measure(double& kl) {
    return [&](Session& session) {
      const PerplexityRun run = {.tokens = tokens_, .windows = windows_};
      kl = measure_divergence(*exact_, session, workers_.pool, run)
               .summarize(Protocol::hf)
               .kl_mean.value;
    };
  }
  double rounded(const Model& model, const ModelPart& part, PartSide side) {
    double kl = 0;
    with_rounded_part(*base_, model, part, side, *workers_.backend, limits_, measure(kl));
    return kl;
  }
  double stored(const Model& model, std::int64_t layer) {
    double kl = 0;
    with_layer_of(*base_, model, layer, *workers_.backend, limits_, measure(kl));
    return kl;
  }

  const TemporaryFolder folder_;
  int files_ = 0;
  Workers workers_{2};
  std::unique_ptr<Model> base_;
  std::vector<Token> tokens_;
  std::vector<Window> windows_;
  RunLimits limits_;
  std::unique_ptr<Session> exact_;
};

// smoothquant folds scales into norms, v and up. Dividing columns and their inputs by the same
// scale leaves the codes of inputs unchanged, so both ways add the same numbers.
TEST_F(PartDivergence, OfALayerIsThatOfTheLayerAsItIsStored) {
  for (const char* method : {"absmax", "smoothquant"}) {
    const auto model = file("int8", method, ActChoice::automatic);
    const auto weights_alone = file("int8", method, ActChoice::none);
    for (const ModelPart& part : {layer_parts(*model).front(), layer_parts(*model).back()}) {
      const double both = stored(*model, part.layer);
      EXPECT_GT(both, 1e-6);
      EXPECT_NEAR(rounded(*model, part, PartSide::both), both, kSameRounding * both)
          << method << " " << part.name;
      const double weights = stored(*weights_alone, part.layer);
      EXPECT_NEAR(rounded(*weights_alone, part, PartSide::weights), weights,
                  kSameRounding * weights)
          << method << " " << part.name;
      EXPECT_EQ(rounded(*weights_alone, part, PartSide::inputs), 0);
      EXPECT_GT(rounded(*model, part, PartSide::inputs), both / 4);
    }
  }
}

// Rounds like int8 with one scale.
void round_numbers(std::span<double> numbers) {
  double largest = 0;
  for (const double x : numbers) largest = std::max(largest, std::abs(x));
  for (double& x : numbers) x = std::nearbyint(x / largest * 127) * largest / 127;
}

// Returns the mean KL divergence in nats over a window's positions except the last.
double naive_kl(const NaiveTransformer::Matrix& exact, const NaiveTransformer::Matrix& rounded) {
  const auto log_sum = [](const std::vector<double>& logits) {
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    return std::log(sum);
  };
  double total = 0;
  for (std::size_t t = 0; t + 1 < exact.size(); ++t) {
    const double p_sum = log_sum(exact[t]), q_sum = log_sum(rounded[t]);
    for (std::size_t v = 0; v < exact[t].size(); ++v) {
      const double log_p = exact[t][v] - p_sum;
      total += std::exp(log_p) * (log_p - (rounded[t][v] - q_sum));
    }
  }
  return total / static_cast<double>(exact.size() - 1);
}

TEST_F(PartDivergence, OfInputsIsThatOfANaiveReferenceWithRoundedInputs) {
  const auto model = file("int8", "absmax", ActChoice::row);
  windows_.resize(1);
  const std::vector<Token> window(tokens_.begin(), tokens_.begin() + windows_[0].count);
  NaiveTransformer reference(import_checkpoint(kStory));
  const NaiveTransformer::Matrix exact = reference.forward(window);
  for (const ModelPart& part : site_parts(*model)) {
    if (part.layer != 1) continue;
    reference.on_input = [&](const std::string& input, std::vector<double>& row) {
      if (input == part.name) round_numbers(row);
    };
    const double kl = naive_kl(exact, reference.forward(window));
    EXPECT_GT(kl, 1e-7) << part.name;
    EXPECT_NEAR(rounded(*model, part, PartSide::inputs), kl, kSameRounding * kl) << part.name;
  }
}

TEST_F(PartDivergence, OfSitesIsLessThanOfTheirLayer) {
  const auto model = file("int8", "absmax", ActChoice::automatic);
  const double whole = rounded(*model, layer_parts(*model).front(), PartSide::both);
  std::vector<std::string> names;
  for (const ModelPart& part : site_parts(*model)) {
    if (part.layer != 0) continue;
    names.push_back(part.name);
    const double kl = rounded(*model, part, PartSide::both);
    EXPECT_GT(kl, 0) << part.name;
    EXPECT_LT(kl, whole) << part.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"layers.0.qkv", "layers.0.o", "layers.0.gate_up",
                                             "layers.0.down"}));
}

TEST_F(PartDivergence, OfTablesIsThatOfANaiveReferenceWithARoundedTable) {
  EXPECT_FALSE(has_quantized_tables(*base_));
  const auto model = file("int8", "absmax", ActChoice::row);
  ASSERT_TRUE(has_quantized_tables(*model));
  windows_.resize(1);
  double both = 0, weights = 0;
  with_tables_of(*base_, *model, PartSide::both, *workers_.backend, limits_, measure(both));
  with_tables_of(*base_, *model, PartSide::weights, *workers_.backend, limits_, measure(weights));
  EXPECT_GT(both, weights);  // the head's input is rounded, too
  const std::vector<Token> window(tokens_.begin(), tokens_.begin() + windows_[0].count);
  const ImportedModel imported = import_checkpoint(kStory);
  std::map<std::string, std::vector<double>> tensors;
  for (const TensorInput& tensor : imported.tensors) {
    std::size_t count = 1;
    for (const std::int64_t size : tensor.shape) count *= static_cast<std::size_t>(size);
    std::vector<float> values(count);
    tensor.read(0, tensor.shape[0], values);
    tensors[tensor.name] = {values.begin(), values.end()};
  }
  const NaiveTransformer reference(imported.config, tensors);
  const auto width = static_cast<std::size_t>(imported.config.width);
  std::vector<double>& table = tensors["token_embedding"];
  for (std::size_t row = 0; row < table.size(); row += width) {
    round_numbers(std::span(table).subspan(row, width));
  }
  const NaiveTransformer rounded_reference(imported.config, tensors);
  const double kl = naive_kl(reference.forward(window), rounded_reference.forward(window));
  EXPECT_NEAR(weights, kl, kSameRounding * kl);
}

TEST_F(PartDivergence, OnlineInputScalesAreRefused) {
  const auto online = file("int8", "smoothquant", ActChoice::online);
  const ModelPart part = layer_parts(*online).front();
  EXPECT_THROW(rounded(*online, part, PartSide::inputs), Error);
  EXPECT_GT(rounded(*online, part, PartSide::weights), 0);
}

}  // namespace
}  // namespace leq::test

// Tests the gate's messages about a quantized file, and when the file is not measured.
#include "quantize/run/gate.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "convert/hf_import.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq {
namespace {

GateResult sample(double kl) {
  GateResult gate;
  gate.text = "tales";
  gate.window = 512;
  gate.divergence.kl_mean = {kl, 0.0001};
  gate.divergence.same_top1 = {0.9751, 0};
  gate.divergence.ppl = {10.5, 0};
  gate.divergence.ppl_base = {10.25, 0};
  gate.divergence.windows = 2;
  return gate;
}

TEST(GateReport, HoldsTheNumberAgainstTheRecipesLimit) {
  EXPECT_EQ(gate_report(sample(0.005), &require_recipe("q8")),
            "gate        KL 0.00500 +- 0.00010 nats, same first choice 97.5 %, perplexity 10.500 "
            "(unquantized 10.250), 2 windows of 512 tokens of tales\n"
            "            limit of q8: 0.005 nats, passed");
  const std::string failed = gate_report(sample(0.0051), &require_recipe("q8"));
  EXPECT_EQ(failed.substr(failed.find('\n')),
            "\n            limit of q8: 0.005 nats, not passed: try type int8-g32 with method "
            "smoothquant, or f16, which lose less");
  EXPECT_EQ(gate_report(sample(0.1), nullptr).find('\n'), std::string::npos);
}

TEST(GateReport, SaysHowFarOffTheBuiltInTextMayBe) {
  GateResult gate = sample(0.1);
  EXPECT_EQ(gate_report(gate, nullptr).find("other texts"), std::string::npos);
  gate.text = built_in_gate_text().name;
  EXPECT_NE(gate_report(gate, nullptr).find("built-in text (other texts: up to 1.5 times as much)"),
            std::string::npos);
}

// The advised options were measured to lose less (bench/results/quality-smollm2.md).
TEST(GateReport, FourBitsAreAdvisedToTakeEight) {
  const std::string failed = gate_report(sample(0.06), &require_recipe("q4"));
  EXPECT_TRUE(failed.ends_with("limit of q4: 0.050 nats, not passed: try recipe q8")) << failed;
}

TEST(DistanceReport, IsOneLineThatSaysWhereAnotherRecipeHelps) {
  EXPECT_EQ(distance_report(sample(0.05)),
            "distance    KL 0.05000 nats from the checkpoint, same first choice 97.5 %, 2 windows "
            "of 512 tokens of tales");
  EXPECT_EQ(distance_report(sample(2.08)),
            "distance    KL 2.08000 nats from the checkpoint, same first choice 97.5 %, 2 windows "
            "of 512 tokens of tales: a large divergence; the recipes q8 and q4 have a smaller one");
}

TEST(GateResources, NamesWhatIsMissing) {
  GateResources resources = {
      .disk_needed = 100, .disk_free = 100, .memory_needed = 7, .memory_free = 7};
  EXPECT_EQ(disk_shortage(resources), "");
  EXPECT_EQ(memory_shortage(resources), "");
  resources.disk_free = 99;
  resources.memory_free = 6;
  EXPECT_EQ(disk_shortage(resources), "100 B of disk are needed, 99 B are there");
  EXPECT_EQ(memory_shortage(resources), "7 B of memory are needed, 6 B are there");
}

// The base file of an unquantized checkpoint must not be larger than planned.
TEST(GateResources, CoversTheFilesThatAComparisonMaps) {
  const ImportedModel model = import_hf(*test::shared_path("models/storyteller"));
  const test::TemporaryFolder folder;
  CheckpointOptions exact;
  exact.type = dtype_name(model.dtype);
  exact.threads = 1;
  const auto file = folder.path() / "base.leq";
  const CheckpointResult base = quantize_imported(model, file, exact, [](auto, auto) {});
  const GateResources resources = gate_resources(model, file, 0);
  EXPECT_GE(resources.disk_needed, base.file_bytes);
  EXPECT_LE(resources.disk_needed, base.file_bytes + base.file_bytes / 5 + (32u << 20));
  EXPECT_GE(resources.memory_needed, 2 * base.file_bytes);
  EXPECT_GT(resources.disk_free, 0u);
  EXPECT_EQ(gate_resources(model, file, 12345).memory_free, 12345u);
}

TEST(Comparison, TakesTwoForwardPassesAndTheFileOfTheBase) {
  EXPECT_DOUBLE_EQ(comparison_seconds(3, 2, 0), 12);
  EXPECT_DOUBLE_EQ(comparison_seconds(0, 2, 500'000'000) * 2,
                   comparison_seconds(0, 2, 1'000'000'000));
  EXPECT_GT(comparison_seconds(0, 2, 13'000'000'000), 30);  // a 7B model in bf16
}

}  // namespace
}  // namespace leq

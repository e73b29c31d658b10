// Tests the gate's messages about a quantized file, and the space that it needs.
#include "quantize/run/steps.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(gate_report(sample(0.007), &require_recipe("q8")),
            "gate        KL 0.00700 +- 0.00010 nats, same first choice 97.5 %, perplexity 10.500 "
            "(unquantized 10.250), 2 windows of 512 tokens of tales\n"
            "            limit of q8: 0.007 nats, passed");
  const std::string failed = gate_report(sample(0.0071), &require_recipe("q8"));
  EXPECT_EQ(failed.substr(failed.find('\n')),
            "\n            limit of q8: 0.007 nats, not passed: try type int8-g32 with method "
            "smoothquant, or f16, which lose less");
  EXPECT_EQ(gate_report(sample(0.1), nullptr).find('\n'), std::string::npos);
}

TEST(GateReport, SaysHowFarOffTheBuiltInTextMayBe) {
  GateResult gate = sample(0.1);
  EXPECT_EQ(gate_report(gate, nullptr).find("other texts"), std::string::npos);
  gate.text = built_in_gate_text().name;
  EXPECT_EQ(gate_report(gate, nullptr).find("perplexity"), std::string::npos);  // it is code too
  EXPECT_NE(gate_report(gate, nullptr).find("built-in text (other texts: up to 1.5 times as much)"),
            std::string::npos);
  EXPECT_EQ(gate_report(gate, nullptr).find("perplexity"), std::string::npos);
}

// The advised options were measured to lose less (bench/results/quality-smollm2.md).
TEST(GateReport, FourBitsAreAdvisedToTakeFive) {
  const std::string failed = gate_report(sample(0.08), &require_recipe("q4"));
  EXPECT_TRUE(failed.ends_with("limit of q4: 0.070 nats, not passed: try recipe q5")) << failed;
}

TEST(BaseSpace, NamesWhatIsMissing) {
  EXPECT_EQ(shortage({.needed = 100, .available = 100}), "");
  EXPECT_EQ(shortage({.needed = 100, .available = 99}), "100 B of disk are needed, 99 B are there");
}

// The base file of an unquantized checkpoint must not be larger than planned.
TEST(BaseSpace, CoversTheFileOfAComparison) {
  const ImportedModel model = import_hf(*test::shared_path("models/storyteller"));
  const test::TemporaryFolder folder;
  QuantizeOptions exact;
  exact.type = dtype_name(model.dtype);
  exact.threads = 1;
  const auto file = folder.path() / "base.leq";
  const QuantizeResult base = quantize_imported(model, file, exact);
  const BaseSpace space = base_space(model, file);
  EXPECT_GE(space.needed, base.file_bytes);
  EXPECT_LE(space.needed, base.file_bytes + base.file_bytes / 5 + (32u << 20));
  EXPECT_GT(space.available, 0u);
}

}  // namespace
}  // namespace leq

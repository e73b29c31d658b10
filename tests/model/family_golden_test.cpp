// Seeded checkpoints of tests/golden/families against what transformers computes with them
// (tests/reference/transformers_goldens.py): fed whole, in chunks and one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "convert/hf_import.h"
#include "convert/quantize_checkpoint.h"
#include "model/session.h"
#include "platform/make_backend.h"
#include "temporary_folder.h"

namespace leq {
namespace {

// f32 sums in another order through some layers, of the largest logit.
constexpr double kTolerance = 1e-4;

std::filesystem::path folder_of(const std::string& name) {
  return std::filesystem::path(LEQ_SOURCE_DIR) / "tests/golden/families" / name;
}

class FamilyGolden : public testing::TestWithParam<const char*> {
 protected:
  FamilyGolden()
      : folder_(folder_of(GetParam())),
        golden_(parse_json(read_file(folder_ / "golden.json", 1 << 24), "golden.json")),
        positions_(golden_["positions"].get<std::vector<std::int64_t>>()),
        backend_(make_backend({.device = "cpu", .threads = 2})) {
    const auto file = scratch_.path() / "model.leq";
    quantize_checkpoint(folder_, file, {{.threads = 1}, "f32", ActChoice::automatic},
                        [](auto, auto) {});
    model_.emplace(file, LoadOptions{});
    for (std::int64_t i = 0; i <= positions_.back(); ++i) {
      ids_.push_back(static_cast<Token>((i * i * 7 + i * 13 + i / 5) % 94));
    }
  }

  // Logits of the golden's positions, the text fed in chunks.
  std::vector<std::vector<float>> logits(std::int64_t chunk) {
    const auto length = std::ssize(ids_);
    RunLimits limits;
    limits.context = length;
    limits.batch_tokens = limits.output_tokens = std::min<std::int64_t>(chunk, length);
    limits.key_type = limits.value_type = KvType::f32;
    Session session(*model_, *backend_, resolve_limits(limits, model_->config()));
    const auto vocab = static_cast<std::size_t>(model_->config().vocab);
    std::vector<std::vector<float>> rows;
    for (std::int64_t first = 0; first < length; first += chunk) {
      Batch batch;
      const std::int64_t count = std::min(chunk, length - first);
      batch.add(0, ids_.data() + first, count, Batch::Want::none);
      for (const std::int64_t position : positions_) {
        if (position < first || position >= first + count) continue;
        batch.outputs.push_back(static_cast<std::int32_t>(position - first));
      }
      std::vector<float> out(batch.outputs.size() * vocab);
      const Rows& given = session.transformer().forward(batch, session.state());
      backend_->download(given, std::ssize(batch.outputs), out);
      for (std::size_t i = 0; i < batch.outputs.size(); ++i) {
        rows.emplace_back(out.begin() + static_cast<std::ptrdiff_t>(i * vocab),
                          out.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab));
      }
    }
    return rows;
  }

  test::TemporaryFolder scratch_;
  std::filesystem::path folder_;
  Json golden_;
  std::vector<std::int64_t> positions_;
  std::unique_ptr<Backend> backend_;
  std::optional<Model> model_;
  std::vector<Token> ids_;
};

TEST_P(FamilyGolden, LogitsAreThoseOfTransformers) {
  const auto want = golden_["logits"].get<std::vector<std::vector<double>>>();
  const auto whole = logits(512);
  ASSERT_EQ(whole.size(), want.size());
  double worst = 0, largest = 0;
  for (std::size_t row = 0; row < want.size(); ++row) {
    ASSERT_EQ(whole[row].size(), want[row].size());
    for (std::size_t v = 0; v < want[row].size(); ++v) {
      worst = std::max(worst, std::abs(want[row][v] - double{whole[row][v]}));
      largest = std::max(largest, std::abs(want[row][v]));
    }
  }
  EXPECT_LT(worst, kTolerance * largest);
  EXPECT_GT(largest, 1);
  RecordProperty("worst", std::to_string(worst / largest));
  if (std::ssize(ids_) > 512) return;
  EXPECT_EQ(whole, logits(7));
  EXPECT_EQ(whole, logits(1));
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyGolden,
                         testing::Values("muse-glimmer", "ministral-3", "qwen3.5-moe", "qwen3-next",
                                         "mixtral"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::erase_if(text, [](char c) { return c == '-' || c == '.'; });
                           return text;
                         });

}  // namespace
}  // namespace leq

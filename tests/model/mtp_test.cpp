// Compares a multi-token prediction head with torch (reference/mtp_vectors.py): its logits from the
// hidden states of a hybrid model, and its further predictions from its own hidden states.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "convert/hf_import.h"
#include "quantize/run/quantize.h"
#include "model/session.h"
#include "quantize/methods/method.h"
#include "reference/mtp_checkpoint.h"
#include "reference/mtp_vectors.h"
#include "reference/random_checkpoint.h"
#include "runtime/make_backend.h"
#include "temporary_folder.h"

namespace leq {
namespace {

using test::RandomCheckpoint;

// Creates the configuration of reference/mtp_vectors.py.
Json mtp_config() {
  Json config = test::mtp_config_of(true);
  config["vocab_size"] = 96;
  config["max_position_embeddings"] = 64;
  return config;
}

std::filesystem::path quantized_mtp(const test::TemporaryFolder& folder, const std::string& type) {
  RandomCheckpoint checkpoint(folder.path() / "hf", 7, RandomCheckpoint::Numbers::by_name);
  checkpoint.add_qwen3_5(mtp_config(), RandomCheckpoint::Experts::none);
  checkpoint.add_mtp(mtp_config());
  QuantizeOptions options;
  options.type = type;
  options.threads = 1;
  const auto path = folder.path() / "mtp.leq";
  quantize_checkpoint(checkpoint.write(mtp_config()), path, options);
  return path;
}

RunLimits limits_of(const ModelConfig& config) {
  RunLimits limits;
  limits.context = 64;
  limits.output_tokens = 4;  // fewer than rows whose hidden states are read
  limits.key_type = limits.value_type = KvType::f32;
  return resolve_limits(limits, config);
}

// A model with its head, and the hidden states of a text.
struct Both {
  explicit Both(const std::filesystem::path& file)
      : model(file, {}),
        backend(make_backend({"cpu", 2})),
        trunk(model, *backend, limits_of(model.config())),
        head(make_mtp_session(model, *backend, limits_of(*model.mtp()))) {}

  std::vector<float> hidden_of(const std::vector<Token>& tokens) {
    Batch batch;
    batch.add(0, tokens.data(), std::ssize(tokens), Batch::Want::last);
    (void)trunk.transformer().forward(batch, trunk.state());
    return normed(trunk, std::ssize(tokens));
  }

  std::vector<float> normed(Session& session, std::int64_t count) const {
    std::vector<std::int32_t> rows;
    for (std::int64_t i = 0; i < count; ++i) rows.push_back(static_cast<std::int32_t>(i));
    std::vector<float> out(static_cast<std::size_t>(count * model.config().width));
    session.transformer().normed_hidden(rows, out);
    return out;
  }

  // Feeds the tokens to the head and returns the logits of the last row.
  std::vector<float> guess(const std::vector<Token>& tokens, std::span<const float> hidden) {
    Batch batch;
    batch.add(0, tokens.data(), std::ssize(tokens), Batch::Want::last);
    std::vector<float> logits(static_cast<std::size_t>(model.config().vocab));
    const Rows& rows = head->transformer().forward(batch, head->state(), hidden);
    backend->download(rows, 1, logits);
    return logits;
  }

  Model model;
  std::unique_ptr<Backend> backend;
  Session trunk;
  std::unique_ptr<Session> head;
};

const std::vector<Token> kPrompt(test::kMtpPrompt.begin(), test::kMtpPrompt.end());

TEST(Mtp, SaysWhatTorchSays) {
  const test::TemporaryFolder folder;
  Both both(quantized_mtp(folder, "f32"));
  const auto width = static_cast<std::size_t>(both.model.config().width);
  const std::vector<float> hidden = both.hidden_of(kPrompt);
  std::vector<Token> text(kPrompt.begin() + 1, kPrompt.end());
  text.push_back(test::kMtpDrawn);
  std::size_t fed = 0;
  std::vector<float> logits;
  for (std::size_t i = 0; i < test::kMtpRows.size(); ++i) {
    // The text is fed in pieces; keys and values of earlier pieces are in the head's own cache.
    const auto row = static_cast<std::size_t>(test::kMtpRows[i]);
    const std::vector<Token> piece(text.begin() + static_cast<std::ptrdiff_t>(fed),
                                   text.begin() + static_cast<std::ptrdiff_t>(row) + 1);
    logits = both.guess(piece, std::span(hidden).subspan(fed * width, piece.size() * width));
    fed = row + 1;
    for (std::size_t v = 0; v < logits.size(); ++v) {
      EXPECT_NEAR(logits[v], test::kMtpLogits[i][v], 2e-4) << "row " << row << ", id " << v;
    }
  }
  // Each further prediction uses the head's own hidden state of the previous one.
  std::int64_t rows = 6;  // rows of the last piece
  for (const Token want : test::kMtpGuesses) {
    const auto guess = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
    EXPECT_EQ(guess, want);
    const std::vector<float> own = both.normed(*both.head, rows);
    logits = both.guess({guess}, std::span(own).last(width));
    rows = 1;
  }
}

TEST(Mtp, IsQuantizedAsLayersAre) {
  const test::TemporaryFolder folder;
  for (const char* type : {"int8", "int4-g32"}) {
    Both both(quantized_mtp(folder, type));
    EXPECT_EQ(scheme_name(both.model.file().find("mtp.layers.0.up")->view.scheme), type);
    EXPECT_EQ(scheme_name(both.model.file().find("mtp.fc_hidden")->view.scheme), type);
    const std::vector<float> hidden = both.hidden_of(kPrompt);
    std::vector<Token> text(kPrompt.begin() + 1, kPrompt.end());
    text.push_back(test::kMtpDrawn);
    const std::vector<float> logits = both.guess(text, hidden);
    double dot = 0, own = 0, other = 0;
    for (std::size_t v = 0; v < logits.size(); ++v) {
      const double want = test::kMtpLogits[2][v];
      dot += logits[v] * want;
      own += double{logits[v]} * logits[v];
      other += want * want;
    }
    EXPECT_GT(dot / std::sqrt(own * other), 0.95) << type;
  }
}

// Calibration does not run the head, so it gets nearest codes, or int8 if its type has none.
TEST(Mtp, MethodsThatCalibrateLeaveItToRounding) {
  const test::TemporaryFolder folder;
  const Model model(quantized_mtp(folder, "f32"), {});
  for (const auto& [method, type] : {std::pair("gptq", "int4-g128"), std::pair("billm", "b1")}) {
    PlanRequest request;
    request.type = *parse_scheme(type);
    request.method = &require_method(method);
    const TensorPlanner plan = make_planner(request, model.config());
    const TensorPlan head = plan("mtp.layers.0.up", TensorRole::normed_linear);
    EXPECT_EQ(scheme_name(plan("layers.0.up", TensorRole::normed_linear).scheme), type);
    EXPECT_EQ(scheme_name(head.scheme), std::string(method) == "billm" ? "int8" : type);
    EXPECT_EQ(head.method, nullptr);
  }
}

TEST(Mtp, HeadsThatAreNotOneLayerAreLeftOutByName) {
  const test::TemporaryFolder folder;
  RandomCheckpoint checkpoint(folder.path() / "hf");
  checkpoint.add_qwen3_5(mtp_config(), RandomCheckpoint::Experts::none);
  checkpoint.add_mtp(mtp_config());
  checkpoint.add("mtp.layers.1.input_layernorm.weight", {64}, 0.1f);
  const ImportedModel model = import_hf(checkpoint.write(mtp_config()));
  EXPECT_FALSE(model.config.mtp);
  EXPECT_TRUE(std::ranges::any_of(model.notes, [](const std::string& note) {
    return note.find("tensors of a head of multi-token prediction") != std::string::npos;
  }));
}

// The configuration must be read back unchanged; the head's layer is checked like other layers.
TEST(Mtp, ItsLayerIsPartOfTheConfiguration) {
  const test::TemporaryFolder folder;
  const Model model(quantized_mtp(folder, "f32"), {});
  ASSERT_NE(model.mtp(), nullptr);
  const ModelConfig& config = model.config();
  EXPECT_EQ(config_from_json(config_to_json(config), "test"), config);
  Json broken = config_to_json(config);
  broken["mtp"] = broken["layers"][0];
  EXPECT_THROW(config_from_json(broken, "test"), Error);
}

}  // namespace
}  // namespace leq

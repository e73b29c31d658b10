// A forward pass layer by layer equals leq_feed to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "capi/native_model.h"

namespace leq::test {
namespace {

class Layers : public ::testing::Test {
 protected:
  Owned<leq_model> model_ = open_model();
  Owned<leq_session> session_ = new_session(model_.get());
  std::vector<leq_token> tokens_ = [&] {
    const Native native;
    return native.encode("Once upon a time there was a dog who liked to sing.");
  }();
  static constexpr std::size_t kWidth = 256, kLayers = 6;
  std::vector<float> hidden_ = std::vector<float>(tokens_.size() * kWidth);

  void run(leq_on_input on_input = nullptr, void* user = nullptr) {
    leq_error error = no_error();
    ASSERT_EQ(leq_embed_tokens(session_.get(), tokens_.data(), tokens_.size(), hidden_.data(),
                               kWidth, &error),
              LEQ_OK)
        << error.text;
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      ASSERT_EQ(leq_run_layer(session_.get(), static_cast<std::int64_t>(layer), hidden_.data(),
                              tokens_.size(), kWidth, on_input, user, &error),
                LEQ_OK)
          << error.text;
    }
  }
};

TEST_F(Layers, GiveTheLogitsOfAWholePass) {
  run();
  leq_logits* made = nullptr;
  ASSERT_EQ(leq_run_head(session_.get(), hidden_.data(), tokens_.size(), kWidth, &made, nullptr),
            LEQ_OK);
  const Owned<leq_logits> logits(made);
  ASSERT_EQ(leq_logits_rows(made), tokens_.size());
  EXPECT_EQ(leq_position(session_.get()), 0u);
  leq_logits* fed = nullptr;
  ASSERT_EQ(leq_feed(session_.get(), tokens_.data(), tokens_.size(), LEQ_ALL_LOGITS, &fed, nullptr),
            LEQ_OK);
  const Owned<leq_logits> expected(fed);
  EXPECT_EQ(std::memcmp(leq_logits_data(made), leq_logits_data(fed),
                        sizeof(float) * tokens_.size() * leq_logits_columns(fed)),
            0);
}

TEST_F(Layers, InputsAreCodesTimesScales) {
  std::map<std::string, std::size_t> widths;
  const auto on_input = [](void* user, const char* site, const float* rows, std::size_t count,
                           std::size_t width) {
    (*static_cast<std::map<std::string, std::size_t>*>(user))[site] = width;
    double largest = 0;
    for (std::size_t i = 0; i < count * width; ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(rows[i])));
    }
    EXPECT_GT(largest, 0) << site;
  };
  run(on_input, &widths);
  EXPECT_EQ(widths, (std::map<std::string, std::size_t>{
                        {"qkv", 256}, {"o", 256}, {"gate_up", 256}, {"down", 704}}));
}

TEST_F(Layers, ACallbackMayNotUseTheSession) {
  struct Seen {
    leq_session* session;
    std::vector<leq_token> tokens;
    std::vector<leq_status> statuses;
  } seen = {session_.get(), tokens_, {}};
  const auto on_input = [](void* user, const char*, const float*, std::size_t, std::size_t) {
    auto& [session, tokens, statuses] = *static_cast<Seen*>(user);
    if (!statuses.empty()) return;
    EXPECT_EQ(leq_position(session), 0u);
    statuses.push_back(
        leq_feed(session, tokens.data(), tokens.size(), LEQ_NO_LOGITS, nullptr, nullptr));
    std::size_t kept = 0;
    statuses.push_back(
        leq_save_state(session, tokens.data(), tokens.size(), "/dev/null", &kept, nullptr));
    std::vector<float> numbers(kWidth);
    statuses.push_back(
        leq_embed(session, tokens.data(), tokens.size(), numbers.data(), kWidth, nullptr));
  };
  run(on_input, &seen);
  EXPECT_EQ(seen.statuses, (std::vector<leq_status>{LEQ_MISUSE, LEQ_MISUSE, LEQ_MISUSE}));
  EXPECT_EQ(
      leq_feed(session_.get(), tokens_.data(), tokens_.size(), LEQ_NO_LOGITS, nullptr, nullptr),
      LEQ_OK);
  EXPECT_EQ(leq_position(session_.get()), tokens_.size());
}

TEST_F(Layers, MisuseIsRefused) {
  leq_error error = no_error();
  leq_session* session = session_.get();
  float* hidden = hidden_.data();
  const std::size_t count = tokens_.size();
  EXPECT_EQ(leq_run_layer(session, 0, hidden, count, 255, nullptr, nullptr, &error), LEQ_MISUSE);
  EXPECT_EQ(leq_run_layer(session, 0, nullptr, count, kWidth, nullptr, nullptr, &error),
            LEQ_MISUSE);
  EXPECT_EQ(leq_run_layer(session, 0, hidden, 0, kWidth, nullptr, nullptr, &error), LEQ_MISUSE);
  EXPECT_EQ(leq_run_layer(session, 6, hidden, count, kWidth, nullptr, nullptr, &error),
            LEQ_BAD_INPUT);
  EXPECT_EQ(leq_run_layer(session, 0, hidden, 100000, kWidth, nullptr, nullptr, &error),
            LEQ_BAD_INPUT);
  EXPECT_EQ(leq_run_head(session, hidden, count, kWidth, nullptr, &error), LEQ_MISUSE);
  tokens_[1] = 1 << 20;
  EXPECT_EQ(leq_embed_tokens(session, tokens_.data(), count, hidden, kWidth, &error),
            LEQ_BAD_INPUT);
  EXPECT_NE(std::string(error.text).find("tokens[1]"), std::string::npos) << error.text;
}

}  // namespace
}  // namespace leq::test

// Receipts: a reply written by the engine is the same when it is written again from its receipt, on
// every instruction set, and each change of it is seen at its place.
#include "engine/receipt.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/json.h"
#include "engine/generator.h"
#include "errors.h"
#include "models_fixture.h"
#include "temporary_folder.h"

namespace leq {
namespace {

constexpr std::int64_t kReply = 100;

const Model& model() {
  static const Model storyteller(
      test::quantized(std::string(LEQ_SOURCE_DIR) + "/examples/storyteller", "int4-g128"), {});
  return storyteller;
}

std::unique_ptr<Session> session_of(Backend& backend, const RunLimits& limits) {
  return std::make_unique<Session>(model(), backend, resolve_limits(limits, model().config()));
}

SamplingSettings warm(int mirostat = 0) {
  SamplingSettings settings;
  settings.temperature = 0.9f;
  settings.repeat_penalty = 1.1f;
  settings.dry_multiplier = 0.5f;
  settings.mirostat = mirostat;
  settings.seed = 7;
  return settings;
}

// A reply as leq-run writes one, alone, and its receipt.
Receipt written(const SamplingSettings& sampling, KvType keys, KvType values, Isa isa) {
  const auto backend = make_cpu_backend({2, isa});
  RunLimits limits;
  limits.context = 512;
  limits.key_type = keys;
  limits.value_type = values;
  const auto session = session_of(*backend, limits);
  Generator generator(*session, model().tokenizer(),
                      {.sampling = sampling, .engine = {.speculate = false}});
  Receipt receipt;
  receipt.model = "storyteller.leq";
  receipt.version = "0";
  receipt.owner = {model().file().fingerprint(), keys, values};
  receipt.prompt =
      model().tokenizer().encode("Once upon a time", {.add_bos = model().tokenizer().add_bos()});
  receipt.sampling = sampling;
  receipt.end_tokens = model().end_tokens();
  LogitDigests digests;
  ReplyRequest request;
  request.prompt = receipt.prompt;
  request.stop.end_tokens = receipt.end_tokens;
  request.stop.max_tokens = kReply;
  request.on_logits = [&](std::span<const Token> taken, std::span<const float> logits) {
    digests.add(taken.size(), logits);
  };
  const FinishedReply reply = generator.generate(request);
  receipt.tokens = reply.tokens;
  receipt.ended = reply.stopped == StopReason::end_token;
  receipt.digests = digests.values();
  return receipt;
}

std::optional<ReceiptDifference> checked(const Receipt& receipt, Isa isa = supported_isas().back(),
                                         int threads = 2) {
  const auto backend = make_cpu_backend({threads, isa});
  const auto session = session_of(*backend, receipt_limits(receipt, {}));
  return check_receipt(*session, model().tokenizer(), receipt, "r.json");
}

TEST(Receipt, IsOfEveryInstructionSetAndKvType) {
  for (const KvScheme& scheme : kKvSchemes) {
    const Receipt receipt = written(warm(), scheme.type, scheme.type, supported_isas().front());
    ASSERT_GT(receipt.tokens.size(), kDigestTokens);
    for (const Isa isa : supported_isas()) {
      EXPECT_EQ(checked(receipt, isa, 1), std::nullopt) << scheme.name << " " << isa_name(isa);
    }
  }
}

TEST(Receipt, IsOfEverySetting) {
  SamplingSettings greedy;
  greedy.temperature = 0;
  for (const SamplingSettings& settings : {greedy, warm(), warm(1), warm(2)}) {
    EXPECT_EQ(checked(written(settings, kUsualKv, kUsualKv, supported_isas().back())),
              std::nullopt);
  }
}

TEST(Receipt, TellsHowMuchIsChecked) {
  const Receipt receipt = written(warm(), kUsualKv, kUsualKv, supported_isas().back());
  const auto backend = make_cpu_backend({2, supported_isas().back()});
  const auto session = session_of(*backend, receipt_limits(receipt, {}));
  std::vector<std::int64_t> told;
  EXPECT_EQ(check_receipt(*session, model().tokenizer(), receipt, "r.json",
                          [&](std::int64_t done) { told.push_back(done); }),
            std::nullopt);
  EXPECT_TRUE(std::ranges::is_sorted(told));
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.front(), 0);
  EXPECT_EQ(told.back(), std::ssize(receipt.prompt) + std::ssize(receipt.tokens));
}

TEST(Receipt, ShowsTheFirstTokenThatIsAnother) {
  const Receipt right = written(warm(), kUsualKv, kUsualKv, supported_isas().back());
  for (const std::size_t place : {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{17},
                                  right.tokens.size() - 1}) {
    Receipt other = right;
    other.tokens[place] = right.tokens[place] == 300 ? 301 : 300;
    const auto found = checked(other);
    ASSERT_TRUE(found) << place;
    EXPECT_EQ(found->place, place);
    EXPECT_FALSE(found->logits);
    EXPECT_EQ(found->written, right.tokens[place]);
    EXPECT_EQ(found->expected, other.tokens[place]);
  }
  Receipt seed = right;
  seed.sampling.seed = 8;
  EXPECT_TRUE(checked(seed));
  Receipt prompt = right;
  prompt.prompt.push_back(prompt.prompt.back());
  const auto found = checked(prompt);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->place, 0u);
}

TEST(Receipt, ShowsWhereLogitsOrEndsAreOthers) {
  const Receipt right = written(warm(), kUsualKv, kUsualKv, supported_isas().back());
  Receipt other = right;
  other.digests[2] ^= 1;
  auto found = checked(other);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->logits);
  EXPECT_EQ(found->place, 2 * kDigestTokens);

  other = right;
  other.ended = !right.ended;
  found = checked(other);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->place, right.tokens.size());
  EXPECT_EQ(found->expected, kNoToken);

  other = right;  // the model would have gone on
  other.tokens.resize(20);
  other.digests.resize(2);
  other.ended = true;
  found = checked(other);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->place, 20u);
  EXPECT_EQ(found->written, right.tokens[20]);
  other.ended = false;
  EXPECT_EQ(checked(other), std::nullopt);
}

TEST(Receipt, AShortOneIsOneStep) {
  Receipt none = written(warm(), kUsualKv, kUsualKv, supported_isas().back());
  none.tokens.clear();
  none.digests.clear();
  none.ended = false;
  EXPECT_EQ(checked(none), std::nullopt);
  none.ended = true;
  ASSERT_TRUE(checked(none));
}

TEST(Receipt, ReadsBackAsItWasWritten) {
  Receipt receipt = written(warm(), KvType::int8, KvType::f16, supported_isas().back());
  receipt.kv_recent = 64;
  receipt.kv_layers = {{0, 1, KvType::f16, KvType::f16}, {4, 4, KvType::int8, KvType::simq4}};
  const test::TemporaryFolder folder;
  write_receipt(folder.path() / "r.json", receipt);
  const Receipt back = read_receipt(folder.path() / "r.json");
  EXPECT_EQ(receipt_text(back), receipt_text(receipt));
  EXPECT_EQ(back.owner, receipt.owner);
  EXPECT_EQ(back.kv_sinks, std::nullopt);
  EXPECT_EQ(back.kv_recent, 64);
  EXPECT_EQ(back.kv_layers, receipt.kv_layers);
  EXPECT_EQ(back.tokens, receipt.tokens);
  EXPECT_EQ(back.digests, receipt.digests);
  EXPECT_EQ(back.sampling.dry_multiplier, receipt.sampling.dry_multiplier);
  receipt.kv_recent = {};
  receipt.kv_layers.clear();
  EXPECT_EQ(checked(receipt), std::nullopt);
}

std::string error_of(const std::string& text) {
  return test::error_of([&] {
    parse_receipt(text, "r.json");
  });
}

TEST(Receipt, RefusesWhatIsNone) {
  const std::string right =
      receipt_text(written(warm(), kUsualKv, kUsualKv, supported_isas().back()));
  EXPECT_EQ(error_of(right), "");
  for (std::size_t size = 0; size + 1 < right.size(); ++size) {  // but for the last line end
    ASSERT_NE(error_of(right.substr(0, size)), "") << size;
  }
  const auto with = [&](const char* key, Json value) {
    Json json = parse_json(right, "right");
    json[key] = std::move(value);
    return error_of(json.dump());
  };
  EXPECT_NE(with("leq_receipt", 2).find("version 2"), std::string::npos);
  EXPECT_NE(with("fingerprint", "xyz").find("'fingerprint'"), std::string::npos);
  EXPECT_NE(with("keys", "int9").find("int9"), std::string::npos);
  EXPECT_NE(with("prompt", Json::array()).find("'prompt' is empty"), std::string::npos);
  EXPECT_NE(with("tokens", Json::array({-1})).find("'tokens'"), std::string::npos);
  EXPECT_NE(with("tokens", Json::array({1, "a"})).find("'tokens'"), std::string::npos);
  EXPECT_NE(with("digests", Json::array()).find("'digests'"), std::string::npos);
  EXPECT_NE(with("kv_sinks", 65).find("'kv_sinks'"), std::string::npos) << with("kv_sinks", 65);
  EXPECT_NE(with("kv_layers", Json::array({"0=int9"})).find("'kv_layers'"), std::string::npos);
  EXPECT_NE(with("kv_layers", Json::array({7})).find("kv_layers"), std::string::npos);
  EXPECT_NE(with("ended", 1).find("\"ended\""), std::string::npos);
  EXPECT_NE(with("settings", Json::array()).find("\"settings\""), std::string::npos);
}

TEST(Receipt, RefusesIdsOfAnotherModel) {
  Receipt receipt = written(warm(), kUsualKv, kUsualKv, supported_isas().back());
  receipt.tokens[3] = static_cast<Token>(model().config().vocab);
  test::expect_error([&] { checked(receipt); }, {"r.json: 'tokens': id"});
}

}  // namespace
}  // namespace leq

// Misuse of the C API: it returns an error that names the mistake, and does not crash.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <limits>
#include <thread>

#include "base/file.h"
#include "capi/owned_handles.h"
#include "temporary_folder.h"

namespace leq::test {
namespace {

constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();

CallResult call_result(leq_status status, const leq_error& error) {
  return {status, error.text, error.setting};
}

#define EXPECT_STATUS(call, wanted, part)                                         \
  do {                                                                            \
    leq_error error = no_error();                                                 \
    const CallResult found = call_result(call, error);                            \
    EXPECT_EQ(found.status, wanted) << found.text;                                \
    EXPECT_EQ(error.status, wanted);                                              \
    EXPECT_NE(found.text.find(part), std::string::npos) << "says " << found.text; \
  } while (false)

TEST(CApiMisuse, NullIsToldByEveryCall) {
  leq_model* model = nullptr;
  leq_session* session = nullptr;
  leq_token* tokens = nullptr;
  leq_logits* logits = nullptr;
  leq_replies* replies = nullptr;
  leq_grammar* grammar = nullptr;
  char* text = nullptr;
  std::size_t size = 0;
  auto info = sized<leq_model_info>();
  EXPECT_STATUS(leq_open(nullptr, nullptr, &model, &error), LEQ_MISUSE, "path is NULL");
  EXPECT_STATUS(leq_open("x", nullptr, nullptr, &error), LEQ_MISUSE, "model is NULL");
  EXPECT_STATUS(leq_model_get_info(nullptr, &info, &error), LEQ_MISUSE, "model is NULL");
  EXPECT_STATUS(leq_inspect(nullptr, &text, &error), LEQ_MISUSE, "model is NULL");
  EXPECT_STATUS(leq_verify(nullptr, &error), LEQ_MISUSE, "model is NULL");
  EXPECT_STATUS(leq_tensor_floats(nullptr, "head", nullptr, 0, &error), LEQ_MISUSE,
                "model is NULL");
  EXPECT_STATUS(leq_tensor_codes(nullptr, "head", nullptr, 0, nullptr, nullptr, 0, &error),
                LEQ_MISUSE, "model is NULL");
  EXPECT_STATUS(leq_table(nullptr, "x", nullptr, nullptr, &error), LEQ_MISUSE, "model is NULL");
  EXPECT_STATUS(leq_describe(nullptr, nullptr, 0, &text, &error), LEQ_MISUSE, "model is NULL");
  EXPECT_STATUS(leq_tokenize(nullptr, "a", 1, 0, &tokens, &size, &error), LEQ_MISUSE,
                "model is NULL");
  EXPECT_STATUS(leq_detokenize(nullptr, nullptr, 0, 0, &text, &size, &error), LEQ_MISUSE,
                "model is NULL");
  EXPECT_STATUS(leq_apply_chat_template(nullptr, "{}", 2, &text, &size, nullptr, nullptr, &error),
                LEQ_MISUSE, "model is NULL");
  EXPECT_STATUS(leq_session_new(nullptr, nullptr, &session, &error), LEQ_MISUSE, "model is NULL");
  EXPECT_STATUS(leq_generate(nullptr, nullptr, nullptr, 0, nullptr, &replies, &error), LEQ_MISUSE,
                "session is NULL");
  EXPECT_STATUS(leq_chat_completion(nullptr, "{}", 2, nullptr, &text, &error), LEQ_MISUSE,
                "session is NULL");
  EXPECT_STATUS(leq_completion(nullptr, "{}", 2, nullptr, nullptr, &error), LEQ_MISUSE,
                "reply is NULL");
  EXPECT_STATUS(leq_embed(nullptr, nullptr, 0, nullptr, 0, &error), LEQ_MISUSE, "session is NULL");
  EXPECT_STATUS(leq_feed(nullptr, nullptr, 0, LEQ_LAST_LOGITS, &logits, &error), LEQ_MISUSE,
                "session is NULL");
  EXPECT_STATUS(leq_rewind(nullptr, 0, nullptr, &error), LEQ_MISUSE, "session is NULL");
  EXPECT_STATUS(leq_sample(nullptr, nullptr, 0, nullptr, 0, 0, nullptr, nullptr, &error),
                LEQ_MISUSE, "NULL");
  EXPECT_STATUS(leq_save_state(nullptr, nullptr, 0, "x", nullptr, &error), LEQ_MISUSE,
                "session is NULL");
  EXPECT_STATUS(leq_load_state(nullptr, nullptr, nullptr, &error), LEQ_MISUSE, "path is NULL");
  EXPECT_STATUS(leq_perplexity(nullptr, "x", 1, nullptr, nullptr, &error), LEQ_MISUSE,
                "result is NULL");
  EXPECT_STATUS(leq_quantize(nullptr, nullptr, nullptr, nullptr, &error), LEQ_MISUSE, "NULL");
  EXPECT_STATUS(leq_plan_memory(nullptr, nullptr, nullptr, &error), LEQ_MISUSE, "path is NULL");
  EXPECT_STATUS(leq_grammar_from_gbnf(nullptr, 3, &grammar, &error), LEQ_MISUSE, "text is NULL");
  // Functions that free or count accept NULL; a missing leq_error is allowed.
  leq_close(nullptr);
  leq_session_close(nullptr);
  leq_replies_free(nullptr);
  leq_logits_free(nullptr);
  leq_grammar_free(nullptr);
  leq_cancel_free(nullptr);
  leq_cancel_request(nullptr);
  leq_free(nullptr);
  EXPECT_EQ(leq_replies_count(nullptr), 0u);
  EXPECT_EQ(leq_position(nullptr), 0u);
  EXPECT_EQ(leq_logits_data(nullptr), nullptr);
  EXPECT_EQ(leq_open(nullptr, nullptr, nullptr, nullptr), LEQ_MISUSE);
}

TEST(CApiMisuse, AHandleOfAnotherKindIsTold) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  auto* wrong = reinterpret_cast<leq_model*>(session.get());
  auto info = sized<leq_model_info>();
  EXPECT_STATUS(leq_model_get_info(wrong, &info, &error), LEQ_MISUSE, "another kind");
  EXPECT_STATUS(leq_rewind(reinterpret_cast<leq_session*>(model.get()), 0, nullptr, &error),
                LEQ_MISUSE, "another kind");
  leq_close(wrong);  // does nothing
  EXPECT_EQ(leq_model_get_info(model.get(), &info, nullptr), LEQ_OK);
}

TEST(CApiMisuse, ATensorsBuffersAreChecked) {
  const auto model = open_model();
  std::vector<float> numbers(8);
  std::vector<std::uint8_t> codes(8);
  const void* bytes = &codes;
  std::size_t size = 1;
  char* json = nullptr;
  EXPECT_STATUS(leq_tensor_floats(model.get(), "nose", numbers.data(), 8, &error), LEQ_BAD_INPUT,
                "no tensor nose");
  EXPECT_STATUS(leq_tensor_floats(model.get(), nullptr, numbers.data(), 8, &error), LEQ_MISUSE,
                "name is NULL");
  EXPECT_STATUS(leq_tensor_floats(model.get(), "layers.0.q", nullptr, 8, &error), LEQ_MISUSE,
                "numbers is NULL");
  for (const std::size_t count : {std::size_t{8}, kHuge}) {
    EXPECT_STATUS(leq_tensor_floats(model.get(), "layers.0.q", numbers.data(), count, &error),
                  LEQ_MISUSE, "expected 65536");
    EXPECT_STATUS(leq_tensor_codes(model.get(), "layers.0.q", codes.data(), count, numbers.data(),
                                   nullptr, 8, &error),
                  LEQ_MISUSE, "expected 65536");
  }
  EXPECT_STATUS(leq_tensor_codes(model.get(), "layers.0.q", codes.data(), 65536, numbers.data(),
                                 nullptr, 8, &error),
                LEQ_MISUSE, "blocks 8: expected 256");
  EXPECT_STATUS(leq_tensor_codes(model.get(), "layers.0.q", codes.data(), 65536, numbers.data(),
                                 codes.data(), 256, &error),
                LEQ_MISUSE, "zeros");
  EXPECT_STATUS(leq_tensor_codes(model.get(), "final_norm", codes.data(), 8, numbers.data(),
                                 nullptr, 8, &error),
                LEQ_BAD_INPUT, "no plain codes");
  EXPECT_STATUS(leq_table(model.get(), "nose", &bytes, &size, &error), LEQ_BAD_INPUT,
                "no table nose");
  EXPECT_EQ(bytes, nullptr);
  EXPECT_EQ(size, 0u);
  EXPECT_STATUS(leq_describe(model.get(), "nose", 0, &json, &error), LEQ_BAD_INPUT,
                "family nose is not known");
  EXPECT_STATUS(leq_describe(model.get(), nullptr, -1, &json, &error), LEQ_BAD_SETTING,
                "context -1");
  EXPECT_STATUS(leq_describe(model.get(), nullptr, 0, nullptr, &error), LEQ_MISUSE, "json is NULL");
}

TEST(CApiMisuse, AModelMayBeClosedBeforeItsSessions) {
  auto model = open_model();
  const auto prompt = tokenize(model.get(), "Once upon a time");
  const auto session = new_session(model.get());
  auto options = sized<leq_generate_options>();
  options.max_tokens = 4;
  model.reset();
  const Written written = generate(session.get(), {prompt}, options);
  EXPECT_EQ(written.call_result.status, LEQ_OK) << written.call_result.text;
  EXPECT_EQ(written.tokens.at(0).size(), 4u);
}

TEST(CApiMisuse, SizesOfStructsAreChecked) {
  const auto model = open_model();
  auto info = sized<leq_model_info>();
  for (const std::uint32_t size : {0u, 3u, 5000u, 0xffffffffu}) {
    info.size = size;
    EXPECT_STATUS(leq_model_get_info(model.get(), &info, &error), LEQ_MISUSE,
                  "leq_model_info.size");
  }
  // A caller compiled with an older, smaller struct: members beyond its size must not be written.
  std::memset(&info, 0x55, sizeof info);
  info.size = 16;
  EXPECT_EQ(leq_model_get_info(model.get(), &info, nullptr), LEQ_OK);
  EXPECT_GT(info.context, 0);
  EXPECT_EQ(info.vocab, 0x5555555555555555);
  // A caller compiled with a newer, larger struct: its additional members must be 0.
  struct Newer {
    leq_session_options known;
    std::int64_t more;
  } newer = {sized<leq_session_options>(), 0};
  newer.known.size = sizeof newer;
  newer.known.context = 128;
  leq_session* session = nullptr;
  EXPECT_STATUS(leq_session_new(model.get(), &newer.known, &session, &error), LEQ_OK, "");
  const Owned<leq_session> owned(session);
  newer.more = 7;
  EXPECT_STATUS(leq_session_new(model.get(), &newer.known, &session, &error), LEQ_MISUSE,
                "does not know");
}

TEST(CApiMisuse, AShortErrorIsFilledAsFarAsItReaches) {
  leq_error error = no_error();
  error.size = offsetof(leq_error, text) + 6;
  std::memset(error.text, 'x', sizeof error.text);
  leq_model* model = nullptr;
  EXPECT_EQ(leq_open("/there/is/no/such/file", nullptr, &model, &error), LEQ_IO);
  EXPECT_EQ(std::string(error.text), "/ther");
  EXPECT_EQ(error.text[6], 'x');
}

TEST(CApiMisuse, HugeSizesAreRefused) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  leq_token token = 1;
  leq_token* tokens = nullptr;
  leq_logits* logits = nullptr;
  leq_replies* replies = nullptr;
  std::size_t size = 0;
  const char* text = "x";
  EXPECT_STATUS(leq_tokenize(model.get(), text, kHuge, 0, &tokens, &size, &error), LEQ_MISUSE,
                "text");
  EXPECT_STATUS(leq_feed(session.get(), &token, kHuge, LEQ_LAST_LOGITS, &logits, &error),
                LEQ_MISUSE, "count");
  const leq_token* prompt = &token;
  EXPECT_STATUS(leq_generate(session.get(), &prompt, &size, kHuge, nullptr, &replies, &error),
                LEQ_MISUSE, "prompt_count");
  size = kHuge;
  EXPECT_STATUS(leq_generate(session.get(), &prompt, &size, 1, nullptr, &replies, &error),
                LEQ_MISUSE, "count");
  leq_session* another = nullptr;
  auto options = sized<leq_session_options>();
  options.context = std::numeric_limits<std::int64_t>::max();
  EXPECT_STATUS(leq_session_new(model.get(), &options, &another, &error), LEQ_BAD_SETTING,
                "context");
  // Some systems grant more memory than they have.
  options.context = 1 << 30;
  const leq_status status = leq_session_new(model.get(), &options, &another, nullptr);
  EXPECT_TRUE(status == LEQ_OK || status == LEQ_NO_MEMORY) << status;
  leq_session_close(another);
  options = sized<leq_session_options>();
  options.sequences = std::numeric_limits<std::int32_t>::max();
  EXPECT_STATUS(leq_session_new(model.get(), &options, &another, &error), LEQ_BAD_SETTING,
                "sequences");
  options = sized<leq_session_options>();
  options.threads = -1;
  EXPECT_STATUS(leq_session_new(model.get(), &options, &another, &error), LEQ_BAD_SETTING,
                "threads");
  options = sized<leq_session_options>();
  options.key_type = "int7";
  EXPECT_STATUS(leq_session_new(model.get(), &options, &another, &error), LEQ_BAD_SETTING, "int7");
  options = sized<leq_session_options>();
  options.device = "abacus";
  EXPECT_STATUS(leq_session_new(model.get(), &options, &another, &error), LEQ_BAD_SETTING,
                "abacus");
  EXPECT_EQ(another, nullptr);
}

TEST(CApiMisuse, TokensAndTextsThatAreNoneAreTold) {
  const auto model = open_model();
  const auto session = new_session(model.get(), 1, 64);
  leq_logits* logits = nullptr;
  const leq_token bad[] = {1, 1 << 30, -5};
  EXPECT_STATUS(leq_feed(session.get(), bad, 3, LEQ_LAST_LOGITS, &logits, &error), LEQ_BAD_INPUT,
                "tokens[1]");
  EXPECT_EQ(leq_position(session.get()), 0u);
  const std::vector<leq_token> many(65, 1);
  EXPECT_STATUS(leq_feed(session.get(), many.data(), many.size(), LEQ_LAST_LOGITS, &logits, &error),
                LEQ_CONTEXT_FULL, "64");
  auto options = sized<leq_generate_options>();
  EXPECT_EQ(generate(session.get(), {many}, options).call_result.status, LEQ_CONTEXT_FULL);
  EXPECT_EQ(generate(session.get(), {{bad, bad + 3}}, options).call_result.status, LEQ_BAD_INPUT);
  EXPECT_EQ(generate(session.get(), {{}}, options).call_result.status, LEQ_BAD_INPUT);
  options.settings = "{\"temperature\": -1}";
  const CallResult wrong = generate(session.get(), {{1}}, options).call_result;
  EXPECT_EQ(wrong.status, LEQ_BAD_SETTING) << wrong.text;
  EXPECT_EQ(wrong.setting, "temperature");
  options.settings = "{\"temprature\": 1}";
  EXPECT_EQ(generate(session.get(), {{1}}, options).call_result.setting, "temprature");
  options.settings = "{\"temperature\": ";
  EXPECT_EQ(generate(session.get(), {{1}}, options).call_result.status, LEQ_BAD_INPUT);
  char* text = nullptr;
  EXPECT_STATUS(leq_chat_completion(session.get(), "[]", 2, nullptr, &text, &error), LEQ_BAD_INPUT,
                "object");
  leq_grammar* grammar = nullptr;
  EXPECT_STATUS(leq_grammar_from_gbnf("root ::= (", 10, &grammar, &error), LEQ_BAD_INPUT,
                "grammar: ");
  EXPECT_STATUS(leq_rewind(session.get(), 9, nullptr, &error), LEQ_MISUSE, "position 9");
}

TEST(CApiMisuse, AModelThatIsCutOffIsRefused) {
  const TemporaryFolder folder;
  const std::string bytes = read_file(story_path(), 1 << 26);
  const auto path = folder.path() / "cut.leq";
  for (const double share : {0.0, 0.00001, 0.1, 0.5, 0.999}) {
    std::ofstream(path, std::ios::binary)
        << bytes.substr(0, static_cast<std::size_t>(share * static_cast<double>(bytes.size())));
    leq_model* model = nullptr;
    EXPECT_STATUS(leq_open(path.c_str(), nullptr, &model, &error), LEQ_BAD_INPUT, "cut.leq");
    EXPECT_EQ(model, nullptr);
  }
  leq_model* model = nullptr;
  EXPECT_STATUS(leq_open(folder.path().c_str(), nullptr, &model, &error), LEQ_BAD_INPUT, "folder");
  // The damaged plane is only found by leq_verify.
  std::string damaged = bytes;
  damaged[4096] = static_cast<char>(damaged[4096] ^ 1);
  std::ofstream(path, std::ios::binary) << damaged;
  const auto opened = open_model(path);
  EXPECT_STATUS(leq_verify(opened.get(), &error), LEQ_BAD_INPUT, "checksum");
}

TEST(CApiMisuse, FeedingWhileOthersWriteIsTold) {
  const auto model = open_model();
  const auto session = new_session(model.get(), 1, 4096);
  std::atomic<bool> begun = false, go_on = true;
  struct Flags {
    std::atomic<bool>&begun, &go_on;
  } flags = {begun, go_on};
  auto options = sized<leq_generate_options>();
  options.settings = "{\"ignore_eos\": true}";
  options.user = &flags;
  options.on_piece = [](void* user, const leq_piece*) -> std::int32_t {
    auto& seen = *static_cast<Flags*>(user);
    seen.begun = true;
    return seen.go_on ? 0 : 1;
  };
  const auto prompt = tokenize(model.get(), "Once");
  Written written;
  std::thread writer([&] { written = generate(session.get(), {prompt}, options); });
  while (!begun) std::this_thread::yield();
  leq_logits* logits = nullptr;
  EXPECT_STATUS(
      leq_feed(session.get(), prompt.data(), prompt.size(), LEQ_LAST_LOGITS, &logits, &error),
      LEQ_MISUSE, "another thread");
  go_on = false;
  writer.join();
  EXPECT_EQ(written.call_result.status, LEQ_OK) << written.call_result.text;
  EXPECT_EQ(written.replies.at(0).stop, LEQ_STOP_INTERRUPTED);
  EXPECT_EQ(
      leq_feed(session.get(), prompt.data(), prompt.size(), LEQ_LAST_LOGITS, &logits, nullptr),
      LEQ_OK);
  leq_logits_free(logits);
}

TEST(CApiMisuse, AReplyIsCancelledFromAnotherThread) {
  const auto model = open_model();
  const auto session = new_session(model.get(), 1, 4096);
  const Owned<leq_cancel> cancel(leq_cancel_new());
  auto options = sized<leq_generate_options>();
  options.settings = "{\"ignore_eos\": true}";
  options.cancel = cancel.get();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    leq_cancel_request(cancel.get());
  });
  const Written written = generate(session.get(), {tokenize(model.get(), "Once")}, options);
  other.join();
  EXPECT_EQ(written.replies.at(0).stop, LEQ_STOP_INTERRUPTED);
  EXPECT_LT(written.tokens.at(0).size(), 4000u);
  // A JSON request and a measurement must return a status, too.
  const std::string request = R"({"prompt": "Once", "ignore_eos": true})";
  auto json_options = sized<leq_request_options>();
  json_options.cancel = cancel.get();
  char* text = nullptr;
  EXPECT_STATUS(
      leq_completion(session.get(), request.data(), request.size(), &json_options, &text, &error),
      LEQ_INTERRUPTED, "ended");
  auto measure = sized<leq_perplexity_options>();
  measure.window = 64;
  measure.cancel = cancel.get();
  auto result = sized<leq_perplexity_result>();
  const std::string story(4000, 'a');
  EXPECT_STATUS(leq_perplexity(model.get(), story.data(), story.size(), &measure, &result, &error),
                LEQ_INTERRUPTED, "ended");
  leq_cancel_reset(cancel.get());
  options.max_tokens = 3;
  EXPECT_EQ(generate(session.get(), {{1}}, options).replies.at(0).stop, LEQ_STOP_TOKEN_LIMIT);
}

}  // namespace
}  // namespace leq::test

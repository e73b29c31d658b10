// The C API gives bit-identical results to the library that the tools use.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/json.h"
#include "capi/native_model.h"

namespace leq::test {
namespace {

TEST(CApi, TokensAreThoseOfTheTokenizerAndBack) {
  const auto model = open_model();
  const Native native;
  const std::string text = "Once upon a time, <s> \xF0\x9F\x98\x80 there \xff was";
  EXPECT_EQ(tokenize(model.get(), text), native.encode(text));
  EXPECT_EQ(tokenize(model.get(), text, LEQ_PLAIN | LEQ_NO_BOS),
            native.model().tokenizer().encode(text, {.parse_special = false}));
  const auto tokens = tokenize(model.get(), text);
  char* back = nullptr;
  std::size_t bytes = 0;
  ASSERT_EQ(leq_detokenize(model.get(), tokens.data(), tokens.size(), 1, &back, &bytes, nullptr),
            LEQ_OK);
  const Owned<char> owned(back);
  EXPECT_EQ(std::string(back, bytes), native.model().tokenizer().decode(tokens, true));
}

TEST(CApi, ARepliesTextAndTokensAreThoseOfTheGenerator) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  Native native;
  for (const std::uint64_t seed : {1u, 77u}) {
    const std::string settings = "{\"seed\": " + std::to_string(seed) + "}";
    const Written written =
        generate(session.get(), {tokenize(model.get(), kPrompt)}, seeded(settings.c_str(), 48));
    ASSERT_EQ(written.call_result.status, LEQ_OK) << written.call_result.text;
    const FinishedReply expected = native.reply(kPrompt, seed, 48);
    EXPECT_EQ(written.texts.at(0), expected.text);
    EXPECT_EQ(written.tokens.at(0), expected.tokens);
    EXPECT_EQ(written.replies.at(0).seed, seed);
  }
}

TEST(CApi, ABatchIsWhatItsRepliesAreAlone) {
  const auto model = open_model();
  const auto together = new_session(model.get(), 4, 4096);
  Native native;
  const std::vector<std::string> prompts = {"Once upon a time", "The dog", "Lily and Tom",
                                            "It was dark.", "One day"};
  std::vector<std::vector<leq_token>> ids;
  for (const auto& prompt : prompts) ids.push_back(tokenize(model.get(), prompt));
  const Written written = generate(together.get(), ids, seeded("{\"seed\": 5}", 24));
  ASSERT_EQ(written.call_result.status, LEQ_OK) << written.call_result.text;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(written.texts.at(i), native.reply(prompts[i], 5, 24).text) << prompts[i];
  }
}

TEST(CApi, PiecesJoinToTheText) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  auto options = seeded("{\"temperature\": 0}", 32);
  struct Joined {
    std::string text;
    std::vector<leq_token> tokens;
    std::vector<float> logprobs;
  } joined;
  options.logprobs = 1;
  options.user = &joined;
  options.on_piece = [](void* user, const leq_piece* piece) -> std::int32_t {
    if (piece == nullptr) return 0;
    auto& all = *static_cast<Joined*>(user);
    all.text.append(piece->text, piece->text_bytes);
    all.tokens.insert(all.tokens.end(), piece->tokens, piece->tokens + piece->token_count);
    all.logprobs.insert(all.logprobs.end(), piece->logprobs, piece->logprobs + piece->token_count);
    return 0;
  };
  const Written written = generate(session.get(), {tokenize(model.get(), kPrompt)}, options);
  EXPECT_EQ(joined.text, written.texts.at(0));
  EXPECT_EQ(joined.tokens, written.tokens.at(0));
  const leq_reply& reply = written.replies.at(0);
  EXPECT_EQ(joined.logprobs, std::vector<float>(reply.logprobs, reply.logprobs + 32));
}

TEST(CApi, LogitsAreThoseOfASessionHoweverTheyAreFed) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  const auto tokens = tokenize(model.get(), "Once upon a time there was a dog who liked to sing.");
  leq_logits* rows = nullptr;
  leq_error error = no_error();
  ASSERT_EQ(leq_feed(session.get(), tokens.data(), tokens.size(), LEQ_ALL_LOGITS, &rows, &error),
            LEQ_OK)
      << error.text;
  const Owned<leq_logits> all(rows);
  ASSERT_EQ(leq_logits_rows(rows), tokens.size());
  Native native;
  const std::size_t vocab = leq_logits_columns(rows);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto expected = native.session().feed(0, std::span(tokens).subspan(i, 1));
    ASSERT_EQ(std::memcmp(expected.data(), leq_logits_data(rows) + i * vocab, 4 * vocab), 0) << i;
  }
  EXPECT_EQ(leq_position(session.get()), tokens.size());
  // Truncates and feeds the last token again, which must give equal logits in a new leq_logits.
  std::size_t left = 0;
  ASSERT_EQ(leq_rewind(session.get(), tokens.size() - 1, &left, nullptr), LEQ_OK);
  ASSERT_EQ(left, tokens.size() - 1);
  leq_logits* again = nullptr;
  ASSERT_EQ(leq_feed(session.get(), &tokens.back(), 1, LEQ_LAST_LOGITS, &again, nullptr), LEQ_OK);
  const Owned<leq_logits> last(again);
  EXPECT_EQ(std::memcmp(leq_logits_data(again), leq_logits_data(rows) + (tokens.size() - 1) * vocab,
                        4 * vocab),
            0);
}

TEST(CApi, AReplyDrawnTokenByTokenIsTheGeneratedOne) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  const char* settings = "{\"seed\": 11, \"repeat_penalty\": 1.3}";
  const auto prompt = tokenize(model.get(), kPrompt);
  const Written written = generate(session.get(), {prompt}, seeded(settings, 20));
  std::vector<leq_token> context = prompt, drawn;
  std::span<const leq_token> next = context;
  leq_error error = no_error();
  for (std::uint32_t i = 0; i < 20; ++i) {
    leq_logits* row = nullptr;
    ASSERT_EQ(leq_feed(session.get(), next.data(), next.size(), LEQ_LAST_LOGITS, &row, &error),
              LEQ_OK)
        << error.text;
    const Owned<leq_logits> owned(row);
    leq_token token = -1;
    ASSERT_EQ(leq_sample(model.get(), leq_logits_data(row), leq_logits_columns(row), context.data(),
                         context.size(), i, settings, &token, &error),
              LEQ_OK)
        << error.text;
    drawn.push_back(token);
    context.push_back(token);
    next = std::span<const leq_token>(context).last(1);
  }
  EXPECT_EQ(drawn, written.tokens.at(0));
}

TEST(CApi, LogProbabilitiesAreThoseOfTheLogits) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  auto options = seeded("{\"temperature\": 0}", 8);
  options.logprobs = 3;
  const auto prompt = tokenize(model.get(), kPrompt);
  const Written written = generate(session.get(), {prompt}, options);
  const leq_reply& reply = written.replies.at(0);
  ASSERT_EQ(reply.logprob_count, 8u);
  ASSERT_EQ(reply.top_count, 3u);
  Native native;
  auto row = native.session().feed(0, prompt);
  for (std::size_t i = 0; i < 8; ++i) {
    double largest = -INFINITY, sum = 0;
    for (const float logit : row) largest = std::max<double>(largest, logit);
    for (const float logit : row) sum += std::exp(logit - largest);
    const auto id = static_cast<std::size_t>(reply.tokens[i]);
    EXPECT_NEAR(reply.logprobs[i], row[id] - largest - std::log(sum), 1e-5);
    EXPECT_EQ(reply.top_ids[3 * i], reply.tokens[i]);
    EXPECT_EQ(reply.top_logprobs[3 * i], reply.logprobs[i]);
    row = native.session().feed(0, std::span(reply.tokens + i, 1));
  }
}

TEST(CApi, AGrammarHoldsTheReply) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  const std::string_view schema =
      R"({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
          "additionalProperties": false})";
  leq_grammar* grammar = nullptr;
  leq_error error = no_error();
  ASSERT_EQ(leq_grammar_from_schema(schema.data(), schema.size(), 1, &grammar, &error), LEQ_OK)
      << error.text;
  const Owned<leq_grammar> owned(grammar);
  auto options = seeded("{\"temperature\": 0}", 40);
  options.grammar = grammar;
  const Written written = generate(session.get(), {tokenize(model.get(), kPrompt)}, options);
  ASSERT_EQ(written.call_result.status, LEQ_OK) << written.call_result.text;
  const Json json = parse_json(written.texts.at(0), "the reply");
  EXPECT_TRUE(json.at("a").is_boolean()) << written.texts.at(0);
}

TEST(CApi, AChatIsAnsweredAsAChatCompletion) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  const std::string request =
      R"({"messages": [{"role": "user", "content": "Tell a story"}], "max_tokens": 12, "seed": 3})";
  char* text = nullptr;
  leq_error error = no_error();
  ASSERT_EQ(
      leq_chat_completion(session.get(), request.data(), request.size(), nullptr, &text, &error),
      LEQ_OK)
      << error.text;
  const Owned<char> owned(text);
  const Json reply = parse_json(text, "the reply");
  EXPECT_EQ(reply.at("object").text(), "chat.completion");
  // The reply must be the text that is generated from the tokens of the rendered conversation.
  leq_token* tokens = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(leq_apply_chat_template(model.get(), request.data(), request.size(), nullptr, nullptr,
                                    &tokens, &count, &error),
            LEQ_OK)
      << error.text;
  const Owned<leq_token> prompt(tokens);
  const Written written =
      generate(session.get(), {{tokens, tokens + count}}, seeded("{\"seed\": 3}", 12));
  EXPECT_EQ(reply.at("choices").at(0).at("message").at("content").text(), written.texts.at(0));
  EXPECT_EQ(reply.at("usage").at("prompt_tokens").get<std::size_t>(), count);
}

TEST(CApi, AStreamsEventsJoinToTheWholeReply) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  const std::string request =
      R"({"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "stream": STREAM})";
  const auto with = [&](const char* stream) {
    std::string text = request;
    return text.replace(text.find("STREAM"), 6, stream);
  };
  std::string joined;
  auto options = sized<leq_request_options>();
  options.user = &joined;
  options.on_event = [](void* user, const char* json, std::size_t bytes) -> std::int32_t {
    if (json == nullptr) return 0;
    const Json event = parse_json({json, bytes}, "an event");
    *static_cast<std::string*>(user) += event.at("choices").at(0).at("text").text();
    return 0;
  };
  char* text = nullptr;
  const std::string stream = with("true"), whole = with("false");
  ASSERT_EQ(leq_completion(session.get(), stream.data(), stream.size(), &options, &text, nullptr),
            LEQ_OK);
  EXPECT_EQ(text, nullptr);
  ASSERT_EQ(leq_completion(session.get(), whole.data(), whole.size(), nullptr, &text, nullptr),
            LEQ_OK);
  const Owned<char> owned(text);
  EXPECT_EQ(joined, parse_json(text, "the reply").at("choices").at(0).at("text").text());
}

TEST(CApi, AnEmbeddingIsTheEngines) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  const auto tokens = tokenize(model.get(), kPrompt);
  Native native;
  std::vector<float> mean(static_cast<std::size_t>(native.model().config().width));
  leq_error error = no_error();
  ASSERT_EQ(
      leq_embed(session.get(), tokens.data(), tokens.size(), mean.data(), mean.size(), &error),
      LEQ_OK)
      << error.text;
  Engine engine(native.session(), native.model().tokenizer(), {});
  EXPECT_EQ(mean, engine.embed(tokens));
}

TEST(CApi, EmbeddingsArePooledAsTheSessionSays) {
  const auto model = open_model();
  const auto tokens = tokenize(model.get(), kPrompt);
  Native native;
  Engine engine(native.session(), native.model().tokenizer(), {});
  const auto width = static_cast<std::size_t>(native.model().config().width);
  auto options = sized<leq_session_options>();
  leq_error error = no_error();
  for (const char* name : {"mean", "last", "cls", "none"}) {
    const Pooling pooling = *parse_pooling(name);
    options.pooling = name;
    leq_session* session = nullptr;
    ASSERT_EQ(leq_session_new(model.get(), &options, &session, &error), LEQ_OK) << error.text;
    std::vector<float> numbers(pooling == Pooling::none ? tokens.size() * width : width);
    EXPECT_EQ(leq_embed(session, tokens.data(), tokens.size(), numbers.data(), width, &error),
              LEQ_OK)
        << error.text;
    EXPECT_EQ(numbers, engine.embed(tokens, pooling)) << name;
    leq_session_close(session);
  }
  options.pooling = "max";
  leq_session* none = nullptr;
  EXPECT_EQ(leq_session_new(model.get(), &options, &none, &error), LEQ_BAD_SETTING);
  EXPECT_NE(std::string(error.text).find("max: expected mean"), std::string::npos) << error.text;
  auto info = sized<leq_model_info>();
  ASSERT_EQ(leq_model_get_info(model.get(), &info, &error), LEQ_OK);
  EXPECT_EQ(info.pooling, nullptr);
  EXPECT_EQ(info.embedding_end, -1);
}

TEST(CApi, SeveralThreadsShareASessionAndGetWhatTheyGetAlone) {
  const auto model = open_model();
  const auto session = new_session(model.get(), 3, 3072);
  Native native;
  const std::vector<std::string> prompts = {"Once upon a time", "The dog",   "Lily",
                                            "One day",          "It rained", "Tom had a ball"};
  std::vector<std::string> texts(prompts.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto written =
          generate(session.get(), {tokenize(model.get(), prompts[i])}, seeded("{\"seed\": 9}", 24));
      if (written.call_result.status == LEQ_OK) texts[i] = written.texts.at(0);
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(texts[i], native.reply(prompts[i], 9, 24).text) << prompts[i];
  }
}

}  // namespace
}  // namespace leq::test

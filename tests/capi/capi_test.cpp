// What the C API gives is what the library gives that the tools are made of, to the bit.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "capi/owned_handles.h"
#include "engine/generator.h"
#include "eval/measure_divergence.h"
#include "eval/wikitext.h"
#include "generate/settings.h"
#include "platform/make_backend.h"
#include "temporary_folder.h"

namespace leq::test {
namespace {

constexpr std::string_view kPrompt = "Once upon a time";

// The library's own way, as leq-run goes it.
class Native {
 public:
  explicit Native(RunLimits limits = {.context = 1024, .output_tokens = 17})
      : model_(story_path(), {}),
        backend_(make_backend({.device = "cpu", .threads = 1})),
        session_(model_, *backend_, resolve_limits(limits, model_.config())) {}

  const Model& model() const { return model_; }
  Session& session() { return session_; }
  std::vector<Token> encode(std::string_view text) const {
    return model_.tokenizer().encode(text, {.add_bos = model_.tokenizer().add_bos()});
  }
  FinishedReply reply(std::string_view prompt, std::uint64_t seed, std::int64_t most) {
    SamplingSettings sampling =
        choose_sampling({}, model_.generation().sampling).settings;
    sampling.seed = seed;
    Generator generator(session_, model_.tokenizer(), {.sampling = sampling});
    const auto tokens = encode(prompt);
    ReplyRequest request{.prompt = tokens};
    request.stop.end_tokens = model_.end_tokens();
    request.stop.max_tokens = most;
    return generator.generate(request);
  }

 private:
  Model model_;
  std::unique_ptr<Backend> backend_;
  Session session_;
};

leq_generate_options seeded(const char* settings, std::int64_t most) {
  auto options = sized<leq_generate_options>();
  options.settings = settings;
  options.max_tokens = most;
  return options;
}

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
    ASSERT_EQ(written.told.status, LEQ_OK) << written.told.text;
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
  ASSERT_EQ(written.told.status, LEQ_OK) << written.told.text;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(written.texts.at(i), native.reply(prompts[i], 5, 24).text) << prompts[i];
  }
}

TEST(CApi, PiecesJoinToTheText) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  auto options = seeded("{\"temperature\": 0}", 32);
  std::string joined;
  options.user = &joined;
  options.on_piece = [](void* user, const leq_piece* piece) -> std::int32_t {
    if (piece != nullptr) static_cast<std::string*>(user)->append(piece->text, piece->text_bytes);
    return 0;
  };
  const Written written = generate(session.get(), {tokenize(model.get(), kPrompt)}, options);
  EXPECT_EQ(joined, written.texts.at(0));
  EXPECT_FALSE(joined.empty());
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
  // Cut, and the last token again: the same row, in another block.
  std::size_t left = 0;
  ASSERT_EQ(leq_rewind(session.get(), tokens.size() - 1, &left, nullptr), LEQ_OK);
  ASSERT_EQ(left, tokens.size() - 1);
  leq_logits* again = nullptr;
  ASSERT_EQ(leq_feed(session.get(), &tokens.back(), 1, LEQ_LAST_LOGITS, &again, nullptr), LEQ_OK);
  const Owned<leq_logits> last(again);
  EXPECT_EQ(std::memcmp(leq_logits_data(again),
                        leq_logits_data(rows) + (tokens.size() - 1) * vocab, 4 * vocab),
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
    ASSERT_EQ(leq_sample(model.get(), leq_logits_data(row), leq_logits_columns(row),
                         context.data(), context.size(), i, settings, &token, &error),
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
  ASSERT_EQ(written.told.status, LEQ_OK) << written.told.text;
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
  ASSERT_EQ(leq_chat_completion(session.get(), request.data(), request.size(), nullptr, &text,
                                &error),
            LEQ_OK)
      << error.text;
  const Owned<char> owned(text);
  const Json reply = parse_json(text, "the reply");
  EXPECT_EQ(reply.at("object").text(), "chat.completion");
  // The same text as of the rendered conversation's tokens.
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
  ASSERT_EQ(leq_embed(session.get(), tokens.data(), tokens.size(), mean.data(), mean.size(), &error),
            LEQ_OK)
      << error.text;
  Engine engine(native.session(), native.model().tokenizer(), {});
  EXPECT_EQ(mean, engine.embed(tokens));
}

TEST(CApi, PerplexityAndDivergenceAreThoseOfTheLibrary) {
  const auto model = open_model();
  const std::string file = std::string(LEQ_SOURCE_DIR) + "/examples/storyteller/heldout.txt";
  const std::string text = read_file(file, 1 << 20);
  auto options = sized<leq_perplexity_options>();
  options.window = 128;
  options.chunks = 3;
  auto result = sized<leq_perplexity_result>();
  leq_error error = no_error();
  ASSERT_EQ(leq_perplexity(model.get(), text.data(), text.size(), &options, &result, &error),
            LEQ_OK)
      << error.text;

  Native native({.context = 128, .output_tokens = kOutputRows});
  const ProtocolSettings settings =
      resolve_protocol({.window = 128, .chunks = 3}, native.model().config().context);
  const auto tokens =
      encode_text(native.model().tokenizer(), read_evaluation_text(file, settings.join).text);
  const auto windows = plan_windows(settings, std::ssize(tokens));
  ThreadPool pool(1);
  const PerplexityResult expected =
      measure_perplexity(native.session(), pool, {.tokens = tokens, .windows = windows});
  EXPECT_EQ(result.ppl, expected.ppl);
  EXPECT_EQ(result.standard_error, expected.standard_error);
  EXPECT_EQ(result.scored, expected.scored);
  EXPECT_EQ(result.tokens, std::ssize(tokens));

  auto kl = sized<leq_divergence_result>();
  ASSERT_EQ(leq_divergence(model.get(), model.get(), text.data(), text.size(), &options, &kl,
                           &error),
            LEQ_OK)
      << error.text;
  EXPECT_NEAR(kl.kl_mean, 0, 1e-12);
  EXPECT_EQ(kl.same_top1, 1);
  EXPECT_EQ(kl.ppl, expected.ppl);
}

TEST(CApi, APromptOfAFileNeedsNoFeedingAndChangesNothing) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "prompt.leqprm").string();
  const auto model = open_model();
  const auto prompt =
      tokenize(model.get(), "Once upon a time there was a small dog who liked to sing in the rain");
  const auto options = seeded("{\"seed\": 2}", 16);
  std::string first;
  {
    const auto session = new_session(model.get());
    first = generate(session.get(), {prompt}, options).texts.at(0);
    std::size_t kept = 0;
    ASSERT_EQ(leq_save_state(session.get(), prompt.data(), prompt.size(), path.c_str(), &kept,
                             nullptr),
              LEQ_OK);
    EXPECT_GE(kept + 1, prompt.size());
  }
  const auto session = new_session(model.get());
  std::size_t kept = 0;
  leq_error error = no_error();
  ASSERT_EQ(leq_load_state(session.get(), path.c_str(), &kept, &error), LEQ_OK) << error.text;
  const Written again = generate(session.get(), {prompt}, options);
  EXPECT_EQ(again.texts.at(0), first);
  EXPECT_GE(again.replies.at(0).cached_tokens + 1, std::ssize(prompt));
  EXPECT_LE(again.replies.at(0).fed_tokens, 1);
}

TEST(CApi, ThePlanOfASessionIsToldBeforeAnythingIsLoaded) {
  auto options = sized<leq_session_options>();
  options.context = 512;
  auto plan = sized<leq_memory_plan>();
  leq_error error = no_error();
  ASSERT_EQ(leq_plan_memory(story_path().c_str(), &options, &plan, &error), LEQ_OK) << error.text;
  const Native native({.context = 512, .output_tokens = 17});
  EXPECT_EQ(plan.context, 512);
  EXPECT_EQ(plan.weight_bytes, native.model().file().file_bytes());
  EXPECT_EQ(plan.total_bytes, plan.weight_bytes + plan.kv_bytes + plan.scratch_bytes);
  Native measured({.context = 512, .output_tokens = 17});
  EXPECT_EQ(plan.kv_bytes, measured.session().plan().kv_bytes);
}

TEST(CApi, AFolderIsQuantizedAndTheFileRuns) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "made.leq").string();
  auto options = sized<leq_quantize_options>();
  options.type = "int8";
  options.threads = 2;
  int calls = 0;
  options.user = &calls;
  options.on_progress = [](void* user, const char*, std::int64_t, std::int64_t) -> std::int32_t {
    ++*static_cast<int*>(user);
    return 0;
  };
  auto result = sized<leq_quantize_result>();
  leq_error error = no_error();
  const std::string checkpoint = std::string(LEQ_SOURCE_DIR) + "/examples/storyteller";
  ASSERT_EQ(leq_quantize(checkpoint.c_str(), path.c_str(), &options, &result, &error), LEQ_OK)
      << error.text;
  EXPECT_GT(calls, 0);
  EXPECT_EQ(result.file_bytes, std::filesystem::file_size(path));
  EXPECT_EQ(read_file(path, 1 << 26), read_file(story_path(), 1 << 26));
}

TEST(CApi, InspectIsJsonWithTheTensors) {
  const auto model = open_model();
  char* text = nullptr;
  ASSERT_EQ(leq_inspect(model.get(), &text, nullptr), LEQ_OK);
  const Owned<char> owned(text);
  auto info = sized<leq_model_info>();
  ASSERT_EQ(leq_model_get_info(model.get(), &info, nullptr), LEQ_OK);
  const Json json = parse_json(text, "inspect");
  EXPECT_EQ(json.at("parameters").get<std::int64_t>(), info.parameters);
  EXPECT_EQ(json.at("config").at("vocab").get<std::int64_t>(), info.vocab);
  EXPECT_EQ(leq_verify(model.get(), nullptr), LEQ_OK);
}

TEST(CApi, SeveralThreadsShareASessionAndGetWhatTheyGetAlone) {
  const auto model = open_model();
  const auto session = new_session(model.get(), 3, 3072);
  Native native;
  const std::vector<std::string> prompts = {"Once upon a time", "The dog", "Lily", "One day",
                                            "It rained", "Tom had a ball"};
  std::vector<std::string> texts(prompts.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto written = generate(session.get(), {tokenize(model.get(), prompts[i])},
                                    seeded("{\"seed\": 9}", 24));
      if (written.told.status == LEQ_OK) texts[i] = written.texts.at(0);
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(texts[i], native.reply(prompts[i], 9, 24).text) << prompts[i];
  }
}

}  // namespace
}  // namespace leq::test

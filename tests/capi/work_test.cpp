// Measurements, file functions and memory plans of the C API give the library's results.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "capi/native_model.h"
#include "eval/divergence.h"
#include "eval/perplexity.h"
#include "temporary_folder.h"

namespace leq::test {
namespace {

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
      encode_text(native.model().tokenizer(), read_evaluation_text(file, Join::none).text);
  const auto windows = plan_windows(settings, std::ssize(tokens));
  ThreadPool pool(1);
  const PerplexityResult expected =
      measure_perplexity(native.session(), pool, {.tokens = tokens, .windows = windows});
  EXPECT_EQ(result.ppl, expected.ppl);
  EXPECT_EQ(result.standard_error, expected.standard_error);
  EXPECT_EQ(result.scored, expected.scored);
  EXPECT_EQ(result.tokens, std::ssize(tokens));

  auto kl = sized<leq_divergence_result>();
  ASSERT_EQ(
      leq_divergence(model.get(), model.get(), text.data(), text.size(), &options, &kl, &error),
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
    ASSERT_EQ(
        leq_save_state(session.get(), prompt.data(), prompt.size(), path.c_str(), &kept, nullptr),
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

TEST(CApi, APromptIsNotSavedOverTheModel) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "story.leq";
  std::filesystem::copy_file(story_path(), path);
  std::filesystem::create_hard_link(path, folder.path() / "other.leq");
  const auto model = open_model(path);
  const auto session = new_session(model.get());
  const auto prompt = tokenize(model.get(), "Once upon a time");
  for (const char* name : {"story.leq", "other.leq"}) {
    leq_error error = no_error();
    EXPECT_EQ(leq_save_state(session.get(), prompt.data(), prompt.size(),
                             (folder.path() / name).c_str(), nullptr, &error),
              LEQ_BAD_INPUT);
    EXPECT_NE(std::string(error.text).find("is read here"), std::string::npos) << error.text;
  }
  EXPECT_EQ(read_file(path, 1 << 26), read_file(story_path(), 1 << 26));
}

TEST(CApi, ThePlanOfASessionIsToldBeforeAnythingIsLoaded) {
  auto options = sized<leq_session_options>();
  options.context = 512;
  auto plan = sized<leq_memory_plan>();
  leq_error error = no_error();
  ASSERT_EQ(leq_plan_memory(story_path().c_str(), &options, &plan, &error), LEQ_OK) << error.text;
  const Native native({.context = 512, .output_tokens = 17});
  EXPECT_EQ(plan.context, 512);
  EXPECT_EQ(plan.weight_bytes, native.model().file().memory_bytes());
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

// A whole search takes minutes, so this one is interrupted once it has begun.
TEST(CApi, RecipeAutoMakesCandidatesAndSearches) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "made.leq").string();
  const std::string checkpoint = std::string(LEQ_SOURCE_DIR) + "/examples/storyteller";
  auto options = sized<leq_quantize_options>();
  options.recipe = "auto";
  options.samples = 1;
  options.length = 16;
  options.threads = 2;
  std::vector<std::string> works;
  options.user = &works;
  options.on_progress = [](void* user, const char* work, std::int64_t,
                           std::int64_t) -> std::int32_t {
    auto& seen = *static_cast<std::vector<std::string>*>(user);
    if (seen.empty() || seen.back() != work) seen.emplace_back(work);
    return seen.back() == "search" ? 1 : 0;
  };
  leq_error error = no_error();
  EXPECT_EQ(leq_quantize(checkpoint.c_str(), path.c_str(), &options, nullptr, &error),
            LEQ_INTERRUPTED)
      << error.text;
  EXPECT_EQ(works, (std::vector<std::string>{"candidates", "search"}));
  EXPECT_FALSE(std::filesystem::exists(path));
  options.recipe = "q4";
  options.target_bpw = 5;
  EXPECT_EQ(leq_quantize(checkpoint.c_str(), path.c_str(), &options, nullptr, &error),
            LEQ_BAD_SETTING);
  EXPECT_EQ(std::string(error.setting), "target_bpw");
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

}  // namespace
}  // namespace leq::test

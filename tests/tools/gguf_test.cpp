// Tools open a GGUF file as a model: it is converted once into the cache folder, or in memory.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "base/text.h"
#include "base/version.h"
#include "convert/gguf_models.h"
#include "convert/hf_import.h"
#include "server/raw_client.h"
#include "shared_data.h"
#include "tools/process.h"
#include "tools/tool_runner.h"

namespace leq::test {
namespace {

namespace fs = std::filesystem;

// The storyteller as a GGUF file in f32, with a tokenizer of letters.
class GgufTools : public testing::Test {
 protected:
  void SetUp() override {
    const ImportedModel model = import_hf(*shared_path("models/storyteller"));
    GgufWriter writer;
    add_config(writer, model.config, "llama");
    add_letters(writer);
    add_tensors(writer, model, true);
    gguf_ = folder_.write("story.gguf", writer.bytes());
    ::setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("XDG_CACHE_HOME");
    ::unsetenv("LEQ_MODELS");
  }

  std::vector<fs::path> cached() const {
    std::vector<fs::path> files;
    if (!fs::exists(folder_ / "cache/leq")) return files;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache/leq"))
      files.push_back(entry.path());
    return files;
  }
  ToolRun run(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"-m", gguf_,    "-p", "once", "-n",
                                      "8",  "--temp", "0",  "-t",   "1"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program("leq-run", words);
  }

  TemporaryFolder folder_;
  std::string gguf_;
};

TEST_F(GgufTools, IsConvertedOnceAndSaysWhere) {
  const ToolRun first = run();
  ASSERT_EQ(first.status, 0) << first.err;
  ASSERT_EQ(cached().size(), 1u);
  const std::string file = cached().front().string();
  EXPECT_TRUE(std::regex_search(
      first.err, std::regex("converting story\\.gguf, once: [0-9.]+ MB, (about )?[0-9].*\n"
                            "(.*\n)*converted story\\.gguf in [0-9.]+ s\n")))
      << first.err;
  EXPECT_EQ(first.err.find(file), std::string::npos) << "the model is named, not its place";
  const ToolRun second = run();
  EXPECT_EQ(second.status, 0);
  EXPECT_EQ(second.out, first.out);
  EXPECT_EQ(second.err.find("converting"), std::string::npos) << second.err;
  EXPECT_EQ(cached().size(), 1u);
  const ToolRun direct =
      run_program("leq-run", {"-m", file, "-p", "once", "-n", "8", "--temp", "0", "-t", "1"});
  EXPECT_EQ(direct.out, first.out);
}

TEST_F(GgufTools, AnotherVersionOfTheFileIsConvertedAgain) {
  ASSERT_EQ(run().status, 0);
  fs::last_write_time(gguf_, fs::last_write_time(gguf_) + std::chrono::seconds(5));
  ASSERT_EQ(run().status, 0);
  EXPECT_EQ(cached().size(), 2u);
}

// A conversion by the same version's earlier rules may lie in the cache.
TEST_F(GgufTools, AConversionByEarlierRulesIsNotUsed) {
  const fs::path source = fs::canonical(gguf_);
  const std::string identity =
      std::string(kVersion) + '\n' + source.string() + '\n' +
      std::to_string(fs::file_size(source)) + '\n' +
      std::to_string(fs::last_write_time(source).time_since_epoch().count());
  fs::create_directories(folder_ / "cache/leq");
  folder_.write("cache/leq/story-" + sha256_hex(identity).substr(0, 16) + ".leq", "no model");
  const ToolRun made = run();
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(cached().size(), 2u);
}

// The server calls it as `leq ls` does, alone, however it is spelled, and as one of a folder.
class ServedGguf : public GgufTools, public testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(Alone, ServedGguf, testing::Bool());

TEST_P(ServedGguf, IsAModelOfAServer) {
  const std::string expected = run().out;
  fs::remove_all(folder_ / "cache");
  ::setenv("LEQ_MODELS", folder_.path().c_str(), 1);
  Process server({std::string(LEQ_TOOLS_DIR) + "/leq-server", GetParam() ? "-m" : "--models-dir",
                  GetParam() ? "Story.GGUF" : folder_.path().string(), "--port", "0", "-t", "1"},
                 Process::Input::pipe);
  constexpr std::string_view kAddress = "listening on http://127.0.0.1:";
  ASSERT_TRUE(server.wait_for_error(std::string(kAddress)) && server.wait_for_error("\n"));
  const int port = std::atoi(server.err.c_str() + server.err.find(kAddress) + kAddress.size());
  for (int i = 0; i < 2; ++i) {
    RawClient client(port);
    client.send(
        plain_request("POST", "/completion",
                      R"({"model":"story","prompt":"once","n_predict":8,"temperature":0})"));
    const std::string answer = client.read_all(60);
    const std::size_t at = answer.find("\r\n\r\n");
    ASSERT_NE(at, std::string::npos);
    const Json reply = parse_json(answer.substr(at + 4), "the answer");
    EXPECT_EQ(reply["model"].text(), "story");
    const std::string text = "once" + reply["content"].text();
    EXPECT_TRUE(expected == text || expected == text + "\n") << text;
  }
  EXPECT_EQ(cached().size(), 1u);
  server.signal(SIGTERM);
  EXPECT_EQ(server.finish(), 0) << server.err;
}

TEST_F(GgufTools, NoCacheLeavesNothing) {
  const ToolRun alone = run({"--no-cache"});
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_TRUE(cached().empty());
  EXPECT_EQ(alone.err.find("/proc/"), std::string::npos) << alone.err;
  EXPECT_EQ(alone.out, run().out);
  if (fs::exists("/dev/shm")) {
    for (const auto& entry : fs::recursive_directory_iterator("/dev/shm")) {
      EXPECT_EQ(entry.path().string().find("story"), std::string::npos) << entry.path();
    }
  }
}

TEST_F(GgufTools, ACacheThatCannotBeMadeIsAnError) {
  ::setenv("XDG_CACHE_HOME", (gguf_ + "/x").c_str(), 1);
  const ToolRun refused = run();
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("set XDG_CACHE_HOME to another folder, or use --no-cache"),
            std::string::npos)
      << refused.err;
}

TEST_F(GgufTools, BenchAndPerplexityRunIt) {
  const ToolRun bench =
      run_program("leq-bench", {"-m", gguf_, "-p", "4", "-n", "2", "-r", "1", "-t", "1"});
  EXPECT_EQ(bench.status, 0) << bench.err;
  EXPECT_NE(bench.out.find("| story f32"), std::string::npos) << bench.out;
  const std::string text = folder_.write("t.txt", std::string(400, 'a'));
  const ToolRun perplexity = run_program(
      "leq-perplexity", {"-m", gguf_, "-f", text, "--join", "none", "-c", "16", "--chunks", "1"});
  EXPECT_EQ(perplexity.status, 0) << perplexity.err;
  EXPECT_NE(perplexity.out.find("\nstory  f32"), std::string::npos) << perplexity.out;
  EXPECT_EQ(cached().size(), 1u);
}

TEST_F(GgufTools, QuantizeMakesAFileThatInspectExplains) {
  const std::string leq = (folder_ / "s.leq").string();
  const ToolRun made =
      run_program("leq-quantize", {gguf_, "-o", leq, "--type", "int8", "--no-gate"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_NE(made.err.find("LLaMA in GGUF, mostly F32"), std::string::npos) << made.err;
  const ToolRun seen = run_program("leq-inspect", {leq, "--all"});
  EXPECT_NE(seen.out.find("F32, exact"), std::string::npos);
  EXPECT_NE(seen.out.find("F32, off by 0."), std::string::npos);
  const ToolRun over = run_program("leq-quantize", {gguf_, "-o", gguf_, "--no-gate"});
  EXPECT_EQ(over.status, 1);
}

// Nothing is converted: the header alone has the types, sizes and plan of the conversion.
TEST_F(GgufTools, InspectEstimatesTheConversionFromTheHeader) {
  const auto json = [](const std::string& file, const std::vector<std::string>& more) {
    std::vector<std::string> words = {file, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const ToolRun seen = run_program("leq-inspect", words);
    EXPECT_EQ(seen.status, 0) << seen.err;
    return parse_json(seen.out, "stdout");
  };
  const Json estimate = json(gguf_, {}), plan = json(gguf_, {"--fit", "-c", "256"});
  EXPECT_NE(run_program("leq-inspect", {gguf_}).err.find("an estimate from its header"),
            std::string::npos);
  EXPECT_TRUE(cached().empty());
  ASSERT_EQ(run().status, 0);
  const std::string made = cached().at(0).string();
  const Json converted = json(made, {});
  EXPECT_EQ(estimate.at("totals"), converted.at("totals"));
  ASSERT_EQ(estimate.at("tensors").size(), converted.at("tensors").size());
  for (std::size_t i = 0; i < converted.at("tensors").size(); ++i) {
    for (const char* key : {"name", "shape", "scheme", "act", "bytes"}) {
      EXPECT_EQ(estimate.at("tensors")[i].at(key), converted.at("tensors")[i].at(key)) << i << key;
    }
  }
  const Json after = json(made, {"--fit", "-c", "256"});
  EXPECT_EQ(plan.at("kv_bytes"), after.at("kv_bytes"));
  EXPECT_EQ(plan.at("scratch_bytes"), after.at("scratch_bytes"));
  // The metadata differ in digits of errors and checksums.
  EXPECT_NEAR(plan.at("weight_bytes").get<double>() / after.at("weight_bytes").get<double>(), 1,
              0.05);
}

TEST_F(GgufTools, ConversionsAreListedAndRemoved) {
  ASSERT_EQ(run().status, 0);
  fs::last_write_time(gguf_, fs::last_write_time(gguf_) + std::chrono::seconds(5));
  ASSERT_EQ(run().status, 0);
  ASSERT_EQ(cached().size(), 2u);
  const std::string name = fs::path(gguf_).filename().string();
  std::string version = cached().front().stem().string();
  version[version.rfind('-')] = ':';
  std::string listed = run_program("leq", {"ls"}).out;
  EXPECT_NE(listed.find("\n" + version + " "), std::string::npos) << listed;
  EXPECT_NE(listed.find("conversion of a GGUF file"), std::string::npos) << listed;
  const ToolRun refused = run_program("leq", {"rm", name});
  EXPECT_EQ(refused.status, 1) << "there are two";
  EXPECT_NE(refused.err.find(version), std::string::npos) << refused.err;
  EXPECT_EQ(run_program("leq", {"rm", version}).status, 0);
  EXPECT_EQ(cached().size(), 1u);
  listed = run_program("leq", {"ls"}).out;
  EXPECT_NE(listed.find("\nstory "), std::string::npos) << listed;
  EXPECT_EQ(run_program("leq", {"rm", name}).status, 0);
  EXPECT_TRUE(cached().empty());
  EXPECT_TRUE(fs::exists(gguf_));
  EXPECT_EQ(run_program("leq", {"rm", name}).status, 1);
}

}  // namespace
}  // namespace leq::test

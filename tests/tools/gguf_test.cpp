// A GGUF file where tools want a model: converted once into the cache folder, or into memory alone.
#include <gtest/gtest.h>

#include <filesystem>

#include "convert/gguf_models.h"
#include "convert/hf_import.h"
#include "shared_data.h"
#include "tools/tool_runner.h"

namespace leq::test {
namespace {

namespace fs = std::filesystem;

// The storyteller in f32, with a tokenizer of letters.
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
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }

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
  EXPECT_NE(first.err.find("converting " + gguf_ + ", this once, to " + file), std::string::npos)
      << first.err;
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

TEST_F(GgufTools, NoCacheLeavesNothing) {
  const ToolRun alone = run({"--no-cache"});
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_TRUE(cached().empty());
  EXPECT_EQ(alone.out, run().out);
  if (fs::exists("/dev/shm")) {
    for (const auto& entry : fs::directory_iterator("/dev/shm")) {
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
  const std::string text = folder_.write("t.txt", std::string(400, 'a'));
  const ToolRun perplexity = run_program(
      "leq-perplexity", {"-m", gguf_, "-f", text, "--join", "none", "-c", "16", "--chunks", "1"});
  EXPECT_EQ(perplexity.status, 0) << perplexity.err;
  EXPECT_EQ(cached().size(), 1u);
}

TEST_F(GgufTools, QuantizeMakesAFileThatInspectExplains) {
  const std::string leq = (folder_ / "s.leq").string();
  const ToolRun made =
      run_program("leq-quantize", {gguf_, "-o", leq, "--type", "int8", "--no-gate"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_NE(made.err.find("LLaMA in GGUF, mostly F32"), std::string::npos) << made.err;
  const ToolRun seen = run_program("leq-inspect", {leq});
  EXPECT_NE(seen.out.find("F32, exact"), std::string::npos);
  EXPECT_NE(seen.out.find("F32, off by 0."), std::string::npos);
  const ToolRun told = run_program("leq-inspect", {gguf_});
  EXPECT_EQ(told.status, 1);
  EXPECT_NE(told.err.find("`leq-quantize " + gguf_ + " -o story.leq` makes one"), std::string::npos)
      << told.err;
  const ToolRun over = run_program("leq-quantize", {gguf_, "-o", gguf_, "--no-gate"});
  EXPECT_EQ(over.status, 1);
}

}  // namespace
}  // namespace leq::test

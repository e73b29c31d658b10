// Tests leq-perplexity as scripts and users run it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "base/json.h"
#include "format/leq_reader.h"
#include "models_fixture.h"
#include "shared_data.h"
#include "tools/tool_runner.h"

namespace leq::test {
namespace {

class LeqPerplexity : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto found = shared_path("models/storyteller");
    ASSERT_TRUE(found && std::filesystem::exists(*found / "heldout.txt"));
    text_ = (*found / "heldout.txt").string();
    model_ = quantized(*found, "int8").string();
  }

  // Measures two short windows with additional words.
  ToolRun run(std::vector<std::string> words) const {
    words.insert(words.begin(), {"-m", model_, "-t", "1", "--window", "64", "--chunks", "2"});
    if (std::ranges::find(words, "-f") == words.end()) {
      words.insert(words.end(), {"-f", text_});
    }
    return run_program("leq-perplexity", words);
  }

  static void expect_error(const ToolRun& run, const std::string& part) {
    EXPECT_EQ(run.out, "");
    test::expect_tool_error(run, {part});
  }

  std::string text_, model_;
};

TEST_F(LeqPerplexity, JsonIsOneObjectOnStdout) {
  const ToolRun found = run({"-o", "json"});  // its lines are not known to be rows: join none
  ASSERT_EQ(found.status, 0) << found.err;
  const Json json = parse_json(found.out, "stdout");
  ASSERT_TRUE(json.is_object());
  for (const auto* key : {"ppl", "nll", "stderr"}) {
    EXPECT_TRUE(json.at(key).is_number_float()) << key;
  }
  EXPECT_EQ(json.at("windows").get<int>(), 2);
  EXPECT_EQ(json.at("scored").get<int>(), 2 * 63);
  EXPECT_EQ(json.at("window").get<int>(), 64);
  EXPECT_EQ(json.at("protocol").get<std::string>(), "hf");
  EXPECT_EQ(json.at("join").get<std::string>(), "none");
  EXPECT_EQ(json.at("type").get<std::string>(), "int8");
  EXPECT_EQ(json.at("dataset_hash"), json.at("text_sha256"));
  EXPECT_GT(json.at("ppl").get<double>(), 5);
  EXPECT_LT(json.at("ppl").get<double>(), 100);
}

TEST_F(LeqPerplexity, NumbersDoNotDependOnThreadsOrBatch) {
  const ToolRun one = run({"-o", "json", "-b", "64"});
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(run({"-o", "json", "-b", "17", "-t", "2"}).out, one.out);
  EXPECT_EQ(run({"-o", "json", "-ub", "5", "--no-mmap"}).out, one.out);
}

TEST_F(LeqPerplexity, TextShowsProtocolAndErrorBar) {
  const ToolRun found = run({"--protocol", "hf-stride", "--stride", "32"});
  ASSERT_EQ(found.status, 0) << found.err;
  for (const auto* part :
       {"hf-stride: windows of 64 tokens every 32", "SHA-256 ", " +/- ", "PPL"}) {
    EXPECT_NE(found.out.find(part), std::string::npos) << part << " in\n" << found.out;
  }
}

TEST_F(LeqPerplexity, ComparesEqualMeasurementsAndRefusesOthers) {
  const TemporaryFolder folder;
  const ToolRun first = run({"-o", "json"});
  ASSERT_EQ(first.status, 0) << first.err;
  const std::string other = folder.write("other.json", first.out);
  const ToolRun same = run({"-o", "json", "--against", other, "-ctk", "int8"});
  ASSERT_EQ(same.status, 0) << same.err;
  const Json json = parse_json(same.out, "stdout");
  EXPECT_NEAR(json.at("ratio").get<double>(), 1.0, 0.05);
  EXPECT_NE(json.at("ratio").get<double>(), 1.0);
  EXPECT_EQ(json.at("cache_type_k").get<std::string>(), "int8");
  expect_error(run({"--against", other, "--join", "hf"}), "join is hf here and none in ");
  expect_error(run({"--against", folder.write("bad.json", "{}")}), "protocol");
}

TEST_F(LeqPerplexity, KlDivergenceGoesThroughTheBaseFile) {
  const TemporaryFolder folder;
  const std::string base = (folder / "base.kl").string();
  const ToolRun first = run({"--kl-divergence-base", base, "-o", "json"});
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_NE(first.err.find("wrote " + base), std::string::npos) << first.err;
  EXPECT_FALSE(parse_json(first.out, "stdout").contains("kl_mean"));
  const std::vector<std::string> compare = {"--kl-divergence-base", base, "--kl-divergence", "-o",
                                            "json"};
  const Json self = parse_json(run(compare).out, "stdout");
  EXPECT_LE(self.at("kl_mean").get<double>(), 1e-6);
  EXPECT_EQ(self.at("same_top1").get<double>(), 1.0);
  EXPECT_EQ(self.at("ppl"), self.at("ppl_base"));

  std::vector<std::string> words = compare;
  words.insert(words.end(), {"-ctk", "int8", "-ctv", "int8"});
  const ToolRun cache = run(words);
  ASSERT_EQ(cache.status, 0) << cache.err;
  const Json json = parse_json(cache.out, "stdout");
  for (const auto* key : {"kl_mean", "kl_median", "kl_p99", "kl_p999", "delta_p_rms"}) {
    EXPECT_GT(json.at(key).get<double>(), 1e-9) << key;
    EXPECT_GT(json.at(std::string(key) + "_stderr").get<double>(), 0) << key;
  }
  EXPECT_LT(json.at("kl_mean").get<double>(), 0.01);
  EXPECT_EQ(json.at("ppl_base"), self.at("ppl"));
  EXPECT_NE(json.at("delta_p_mean").get<double>(), 0);
  EXPECT_EQ(run(words).out, cache.out);

  // The run is compared with another run on the same base, by paired windows.
  words.insert(words.end(), {"--against", folder.write("self.json", run(compare).out)});
  const Json both = parse_json(run(words).out, "stdout");
  EXPECT_NEAR(both.at("kl_difference").get<double>(),
              json.at("kl_mean").get<double>() - self.at("kl_mean").get<double>(), 1e-4);
  EXPECT_GT(both.at("kl_difference_stderr").get<double>(), 0);
  words.resize(words.size() - 2);
  words.insert(words.end(), {"--against", folder.write("first.json", first.out)});
  const ToolRun without = run(words);  // the base run has no KL
  EXPECT_FALSE(parse_json(without.out, "stdout").contains("kl_difference"));
  EXPECT_NE(without.err.find("no KL divergence from the same base"), std::string::npos);
  words.resize(words.size() - 2);

  words.erase(std::ranges::find(words, "-o"), std::ranges::find(words, "-o") + 2);
  const ToolRun text = run(words);
  for (const auto* part : {"base: storyteller-int8.leq", "KL 99.9 %", "same top 1", "+/- "}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " in\n" << text.out;
  }
}

TEST_F(LeqPerplexity, KlDivergenceRefusesWhatDoesNotBelongTogether) {
  const TemporaryFolder folder;
  const std::string base = (folder / "base.kl").string();
  ASSERT_EQ(run({"--kl-divergence-base", base}).status, 0);
  expect_error(run({"--kl-divergence"}), "--kl-divergence-base FILE");
  const auto compared = [&](const std::string& file, std::vector<std::string> words) {
    words.insert(words.end(), {"--kl-divergence-base", file, "--kl-divergence"});
    return run(words);
  };
  expect_error(compared(base, {"--join", "hf"}), "join is ");
  expect_error(compared(base, {"--protocol", "hf-stride"}), "is hf in the base file");
  expect_error(compared("/no/such/base", {}), "/no/such/base");
  const std::string bytes = read_bytes(base);
  expect_error(compared(folder.write("cut.kl", bytes.substr(0, bytes.size() / 2)), {}),
               "the file is cut off");
  expect_error(compared(folder.write("text.kl",
                                     "not a base file of any kind, but long enough to "
                                     "have sixty-four bytes"),
                        {}),
               "is no file of --kl-divergence-base");
}

// If the final norm contains a NaN, the file can be opened (--verify checks tensors), but a
// measurement is an error.
TEST_F(LeqPerplexity, LogitsThatAreNotFiniteAreAnError) {
  const TemporaryFolder folder;
  std::string bytes = read_bytes(quantized(*shared_path("models/storyteller"), "f32"));
  const LeqReader reader(std::as_bytes(std::span(bytes)), "copy");
  const StoredTensor* norm = reader.find("final_norm");
  ASSERT_NE(norm, nullptr);
  const float nan = std::nanf("");
  std::memcpy(bytes.data() + norm->planes.at(0).offset, &nan, sizeof(nan));
  const std::string path = folder.write("nan.leq", bytes);
  expect_error(run({"-m", path}), "a logit is not finite");
}

TEST_F(LeqPerplexity, BadInputIsNamedInOneLine) {
  const TemporaryFolder folder;
  expect_error(run({"-f", folder.write("empty.txt", "")}), "the file is empty");
  expect_error(run({"-f", "/no/such/text"}), "/no/such/text");
  expect_error(run({"-f", folder.write("short.txt", "Once upon a time.")}),
               "one window has 64; take a longer text or a smaller --window");
  expect_error(run({"-f", folder.write("bad.txt", "Once \xc3 upon")}), "invalid UTF-8 at offset 5");
  expect_error(run({"--window", "100000"}), "expected 2 to the model's context of 1024");
  expect_error(run({"-ctk", "q5_1"}), "int8");
  expect_error(run({"--protocol", "hf2"}), "hf | hf-stride | llamacpp-512");
}

}  // namespace
}  // namespace leq::test

// leq-perplexity as scripts and people run it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

  // A run on two short windows, with further words behind.
  ToolRun run(std::vector<std::string> words) const {
    words.insert(words.begin(), {"-m", model_, "-t", "1", "--window", "64", "--chunks", "2"});
    if (std::ranges::find(words, "-f") == words.end()) {
      words.insert(words.end(), {"-f", text_});
    }
    return run_program("leq-perplexity", words);
  }

  void expect_error(const ToolRun& run, const std::string& part) const {
    EXPECT_EQ(run.status, 1);
    EXPECT_EQ(run.out, "");
    EXPECT_TRUE(run.err.starts_with("leq-perplexity: error: ")) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
  }

  std::string text_, model_;
};

TEST_F(LeqPerplexity, JsonIsOneObjectOnStdout) {
  const ToolRun found = run({"--join", "none", "-o", "json"});
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
  expect_error(run({"--against", other, "--join", "none"}), "join is none here and hf in ");
  expect_error(run({"--against", folder.write("bad.json", "{}")}), "protocol");
}

// A file whose final norm holds a NaN opens (checksums of tensors are --verify's), but gives no
// number.
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
  expect_error(run({"-ctk", "q8_0"}), "int8");
  expect_error(run({"-ngl", "99"}), "-ngl 99");
  expect_error(run({"--protocol", "hf2"}), "hf | hf-stride | llamacpp-512");
}

}  // namespace
}  // namespace leq::test

// Runs leq-compare as users do: the same numbers as the other tools, runs that are killed and
// resumed, and errors of one line.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "tools/process.h"
#include "tools/tool_runner.h"

namespace leq::test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const std::string kStory = std::string(LEQ_SOURCE_DIR) + "/examples/storyteller";

class LeqCompare : public ::testing::Test {
 protected:
  Words words(const std::string& report, const Words& more = {}) const {
    Words all = {kStory,
                 "-f",
                 kStory + "/heldout.txt",
                 "--join",
                 "none",
                 "-o",
                 (folder_ / report).string(),
                 "--window",
                 "64",
                 "--chunks",
                 "3",
                 "--samples",
                 "2",
                 "--methods",
                 "absmax:int8,gptq:int4-g128",
                 "--parts",
                 "none",
                 "-t",
                 "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Json report(const std::string& name) const {
    return parse_json(read_bytes(folder_ / name / "report.json"), name);
  }
  void expect_error(const Words& all, const std::string& part) const {
    test::expect_tool_error(run_program("leq-compare", all), {part});
  }

  TemporaryFolder folder_;
};

TEST_F(LeqCompare, NumbersAreThoseOfTheOtherTools) {
  const ToolRun run =
      run_program("leq-compare", words("report", {"--keep-files", "--choices",
                                                  kStory + "/choices.jsonl", "--questions", "3"}));
  ASSERT_EQ(run.status, 0) << run.err;
  const Json rows = report("report")["head_to_head"];
  ASSERT_EQ(rows.size(), 3u);

  // leq-perplexity measures the file that leq-quantize creates with the same settings.
  const std::string file = (folder_ / "gptq.leq").string(), base = (folder_ / "base.leq").string();
  ASSERT_EQ(run_program("leq-quantize", {kStory, "-o", file, "--method", "gptq", "--type",
                                         "int4-g128", "--samples", "2", "--no-gate"})
                .status,
            0);
  ASSERT_EQ(run_program("leq-quantize", {kStory, "-o", base, "--type", "bf16"}).status, 0);
  EXPECT_EQ(rows[2]["file, MB"].get<double>(), static_cast<double>(fs::file_size(file)) / 1e6);
  const Words text = {"-f",
                      kStory + "/heldout.txt",
                      "--join",
                      "none",
                      "--window",
                      "64",
                      "--chunks",
                      "3",
                      "-o",
                      "json",
                      "-ctk",
                      "f32",
                      "-ctv",
                      "f32",
                      "--kl-divergence-base",
                      (folder_ / "base.kl").string()};
  Words of_base = {"-m", base}, of_file = {"-m", file, "--kl-divergence"};
  of_base.insert(of_base.end(), text.begin(), text.end());
  of_file.insert(of_file.end(), text.begin(), text.end());
  const ToolRun base_run = run_program("leq-perplexity", of_base);
  const ToolRun file_run = run_program("leq-perplexity", of_file);
  ASSERT_EQ(file_run.status, 0) << base_run.err << file_run.err;
  const Json base_json = parse_json(base_run.out, "base"), json = parse_json(file_run.out, "gptq");
  EXPECT_NEAR(rows[0]["perplexity"].get<double>(), base_json["ppl"].get<double>(), 1e-9);
  EXPECT_EQ(rows[2]["perplexity"], json["ppl"]);
  EXPECT_EQ(rows[2]["+-"], json["stderr"]);
  EXPECT_EQ(rows[2]["KL, nats"], json["kl_mean"]);
  EXPECT_EQ(rows[2]["bits/weight"], json["bits_per_weight"]);
  EXPECT_EQ(rows[2]["same top, %"].get<double>(), 100 * json["same_top1"].get<double>());

  const ToolRun choices = run_program(
      "leq-perplexity", {"-m", file, "--choices", kStory + "/choices.jsonl", "--questions", "3",
                         "-ctk", "f32", "-ctv", "f32", "-o", "json"});
  ASSERT_EQ(choices.status, 0) << choices.err;
  const Json answers = parse_json(choices.out, "choices");
  const Json row = report("report")["choices"][2];
  for (const char* key : {"acc", "acc_low", "acc_high", "acc_norm", "acc_norm_low"}) {
    EXPECT_EQ(row[key], answers[key]) << key;
  }
}

TEST_F(LeqCompare, AKilledRunGoesOnToEqualNumbers) {
  ASSERT_EQ(run_program("leq-compare", words("whole")).status, 0);
  Words command = words("killed");
  command.insert(command.begin(), std::string(LEQ_TOOLS_DIR) + "/leq-compare");
  {
    Process process(command, Process::Input::pipe);
    const fs::path results = folder_ / "killed" / "results";
    const auto kept = [&] {
      std::error_code ignored;
      const auto begin = fs::directory_iterator(results, ignored);
      return ignored ? 0 : std::distance(begin, fs::directory_iterator());
    };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (kept() < 2 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    process.signal(SIGKILL);
    EXPECT_EQ(process.finish(), 1000 + SIGKILL);
  }
  EXPECT_FALSE(fs::exists(folder_ / "killed" / "report.json"));
  const ToolRun again = run_program("leq-compare", words("killed"));
  ASSERT_EQ(again.status, 0) << again.err;
  Json whole = report("whole"), resumed = report("killed");
  for (Json* json : {&whole, &resumed}) {
    for (Json& row : (*json)["head_to_head"]) row.erase("setup, s");
  }
  EXPECT_EQ(whole["head_to_head"], resumed["head_to_head"]);
  EXPECT_EQ(whole["pairs"], resumed["pairs"]);
}

TEST_F(LeqCompare, WhatIsWrongIsToldInALine) {
  expect_error(words("r", {"--methods", "smothquant"}), "--methods: unknown method smothquant");
  expect_error(words("r", {"--methods", "gptq:f32"}), "gptq:f32: type f32 has no codes to choose");
  expect_error(words("r", {"--parts", "heads"}), "--parts: unknown part heads");
  expect_error(words("r", {"--again", "quality"}), "--again: unknown part quality");
  expect_error(words("r", {"--window", "9999"}), "--window");
  const std::string tiny = folder_.write("tiny.txt", "Once upon a time.");
  expect_error(words("r", {"-f", tiny}), tiny);
  std::string story;
  for (int i = 0; i < 16; ++i) story += "Once upon a time. ";
  const std::string one = folder_.write("one.txt", story);
  expect_error(words("r", {"-f", one}), "one window is too little");
  const std::string questions = folder_.write("q.jsonl", "{\"a\": 1}\n");
  expect_error(words("r", {"--choices", questions}), "q.jsonl: line 1: no form of a question");
  fs::create_directory(folder_ / "other");
  folder_.write("other/config.json",
                R"({"architectures": ["FalconForCausalLM"], "model_type": "falcon"})");
  folder_.write("other/model.safetensors", "");
  Words other = words("r");
  other[0] = (folder_ / "other").string();
  expect_error(other, "falcon");
}

}  // namespace
}  // namespace leq::test

// Runs leq-bench as a program: its table rows, and that their numbers are consistent.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "tools/small_models.h"

namespace leq::test {
namespace {

constexpr double kRelative = 1e-9;  // the same doubles, added in another order

Json bench(std::vector<std::string> words) {
  words.insert(words.end(), {"-o", "json"});
  const ToolRun run = run_program("leq-bench", words);
  EXPECT_EQ(run.status, 0) << run.err;
  return parse_json(run.out, "output");
}

double number(const Json& row, const char* key) { return row.at(key).get<double>(); }

void expect_row_of_known_types(const Json& row) {
  const std::set<std::string> texts = {"model", "scheme", "test", "limit_kind"};
  const std::set<std::string> wholes = {"threads", "depth", "sequences", "runs", "bytes_per_token"};
  const std::set<std::string> reals = {"tps",  "tps_min", "tps_max", "gbps",
                                       "gops", "limit",   "share"};
  std::set<std::string> found;
  for (const auto& [key, value] : row.items()) {
    found.insert(key);
    if (texts.contains(key)) {
      EXPECT_TRUE(value.is_string()) << key;
    }
    if (wholes.contains(key)) {
      EXPECT_TRUE(value.is_number_integer()) << key;
    }
    if (reals.contains(key)) {
      EXPECT_TRUE(value.is_number()) << key;
    }
  }
  std::set<std::string> all = texts;
  all.insert(wholes.begin(), wholes.end());
  all.insert(reals.begin(), reals.end());
  EXPECT_EQ(found, all);
  EXPECT_LE(number(row, "tps_min"), number(row, "tps"));
  EXPECT_LE(number(row, "tps"), number(row, "tps_max"));
  EXPECT_GT(number(row, "tps_min"), 0.0);
  EXPECT_GT(number(row, "share"), 0.0);
}

// 2 x the number of parameters of the linears in one block of llama-110m, in billions.
constexpr double kBlockGigaOps = 2.0 * (4.0 * 768 * 768 + 3.0 * 768 * 2048) / 1e9;

TEST(Bench, PromptRowsCountOperationsOfTheBlockLinears) {
  const std::string model = "synthetic:llama-110m:int8:layers=1";
  const Json rows = bench({"-m", model, "-p", "32", "-n", "0", "-r", "2", "-t", "1"});
  ASSERT_EQ(rows.size(), 1u);
  const Json& row = rows[0];
  expect_row_of_known_types(row);
  EXPECT_EQ(row.at("model"), model);
  EXPECT_EQ(row.at("scheme"), "int8");
  EXPECT_EQ(row.at("test"), "pp32");
  EXPECT_EQ(row.at("threads"), 1);
  EXPECT_EQ(row.at("depth"), 0);
  EXPECT_EQ(row.at("runs"), 2);
  const double gops = kBlockGigaOps * number(row, "tps");
  EXPECT_NEAR(number(row, "gops"), gops, kRelative * gops);
  // For several runs, the printed share is the median of the runs' shares, each with its own limit.
  const Json one = bench({"-m", model, "-p", "32", "-n", "0", "-r", "1", "-t", "1"})[0];
  EXPECT_NEAR(number(one, "share"), number(one, "gops") / number(one, "limit"), kRelative);
}

TEST(Bench, GenerationRowsCountTheBytesOfWeightsAndCache) {
  const Json rows = bench({"-m", "synthetic:llama-110m:int8:layers=1", "-p", "0", "-n", "4", "-d",
                           "0,128", "-r", "1", "-t", "1"});
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows) {
    expect_row_of_known_types(row);
    EXPECT_EQ(row.at("test"), "tg4");
    const double gbps = number(row, "bytes_per_token") * number(row, "tps") / 1e9;
    EXPECT_NEAR(number(row, "gbps"), gbps, kRelative * gbps);
    EXPECT_NEAR(number(row, "share"), number(row, "gbps") / number(row, "limit"), kRelative);
  }
  EXPECT_EQ(rows[1].at("depth"), 128);
  // Bytes of codes; for each row, an f32 scale and an i16 sum per 128 inputs (32 in the down
  // projection and the head, as the model is narrower than 2,048). The head is the embedding.
  const std::int64_t w = 768, f = 2048, v = 32000;
  const auto bytes = [](std::int64_t outputs, std::int64_t columns, std::int64_t group) {
    return outputs * (columns + 4 + 2 * columns / group);
  };
  const std::int64_t weights = bytes(4 * w + 2 * f, w, 128) + bytes(w, f, 32) + bytes(v, w, 32);
  EXPECT_EQ(rows[0].at("bytes_per_token"), weights);
  // f16 keys and values of 128 positions are read, too.
  EXPECT_EQ(rows[1].at("bytes_per_token"), weights + 128 * 2 * 2 * w);
}

TEST(Bench, BatchedRowsReadTheWeightsOnceAndTheCacheOfEverySequence) {
  const Json rows = bench({"-m", "synthetic:llama-110m:int8:layers=1", "-p", "0", "-n", "3", "-npl",
                           "1,4", "-d", "1024", "-r", "1"});
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows) expect_row_of_known_types(row);
  EXPECT_EQ(rows[0].at("test"), "tg3");
  EXPECT_EQ(rows[1].at("test"), "tg3x4");
  EXPECT_EQ(rows[1].at("sequences"), 4);
  EXPECT_EQ(rows[1].at("depth"), 1024);
  EXPECT_EQ(rows[1].at("limit_kind"), "read, then compute");
  const std::int64_t cache = 1024 * 2 * 2 * 768;  // f16 keys and values of one sequence
  EXPECT_EQ(rows[1].at("bytes_per_token").get<std::int64_t>() -
                rows[0].at("bytes_per_token").get<std::int64_t>(),
            3 * cache);
  EXPECT_NEAR(number(rows[1], "share"), number(rows[1], "tps") / number(rows[1], "limit"),
              kRelative);
}

TEST(Bench, MeasuresFilesToo) {
  const TemporaryFolder folder;
  const std::string path = make_small_model(folder, "llama", "f32");
  const Json rows = bench({"-m", path, "-p", "16", "-n", "3", "-pg", "8,2", "-r", "1"});
  ASSERT_EQ(rows.size(), 3u);
  for (const Json& row : rows) expect_row_of_known_types(row);
  EXPECT_EQ(rows[0].at("test"), "pp16");
  EXPECT_EQ(rows[1].at("test"), "tg3");
  EXPECT_EQ(rows[2].at("test"), "pp8+tg2");
  EXPECT_EQ(rows[0].at("scheme"), "f32");
}

TEST(Bench, WritesSyntheticModelsAsFiles) {
  const TemporaryFolder folder;
  const std::string path = (folder / "written.leq").string();
  const std::string name = "synthetic:llama-110m:int4-g128:layers=1";
  const ToolRun written = run_program("leq-bench", {"-m", name, "--write", path});
  ASSERT_EQ(written.status, 0) << written.err;
  const Json rows = bench({"-m", path, "-m", name, "-p", "0", "-n", "2", "-r", "1"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("scheme"), "int4-g128");
  EXPECT_EQ(rows[0].at("bytes_per_token"), rows[1].at("bytes_per_token"));
  EXPECT_EQ(run_program("leq-bench", {"-m", path, "--write", path + "2"}).status, 1);

  for (const char* mode : {"--mmap", "--no-mmap"}) {
    const Json loads = bench({"-m", path, "--load", mode, "-r", "2"});
    ASSERT_EQ(loads.size(), 1u);
    EXPECT_EQ(loads[0].at("loading"), std::string(mode) == "--mmap" ? "map" : "read");
    EXPECT_GT(number(loads[0], "first_token_seconds"), number(loads[0], "load_seconds"));
    EXPECT_GT(number(loads[0], "planned_bytes"), number(loads[0], "file_bytes"));
    EXPECT_GT(number(loads[0], "peak_resident_bytes"), 0);
  }
  EXPECT_EQ(run_program("leq-bench", {"-m", name, "--load"}).status, 1);
}

TEST(Bench, SweepsListsAndShowsWhatDiffers) {
  const ToolRun run = run_program(
      "leq-bench", {"-m", "synthetic:gpt2-124m:int8:layers=1", "-p", "8", "-n", "2", "-r", "1",
                    "-ctk", "f16,int8", "-ub", "4,8", "-t", "1", "-o", "csv"});
  ASSERT_EQ(run.status, 0) << run.err;
  const auto lines = split(trim(run.out), "\n");
  ASSERT_EQ(lines.size(), 1u + 2 * 2 * 2);
  EXPECT_TRUE(lines[0].starts_with("model,scheme,threads,test,depth,sequences,tps,")) << lines[0];
  EXPECT_NE(lines[0].find("type_k"), std::string::npos);
  EXPECT_NE(lines[0].find("n_batch"), std::string::npos);
}

TEST(Bench, ShowsPeopleAMarkdownTable) {
  const ToolRun run = run_program("leq-bench", {"-m", "synthetic:llama-110m:int4-g128:layers=1",
                                                "-p", "8", "-n", "2", "-d", "64", "-r", "1"});
  ASSERT_EQ(run.status, 0) << run.err;
  for (const char* part : {"| model", "synthetic:llama-110m:layers=1 int4-g128", "pp8 @ d64",
                           "tg2 @ d64", "GB/s", "GOPS", "share"}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\n" << run.out;
  }
}

TEST(Bench, BreakdownDividesAStepIntoItsParts) {
  const std::vector<std::string> words = {
      "-m", "synthetic:llama-110m:int8:layers=1", "-p", "0", "-n", "4", "-r", "2", "--breakdown"};
  const Json rows = bench(words);
  const std::vector<std::string> names = {"load", "quant",        "gemm",   "attention",
                                          "comm", "sync",         "sample", "all parts",
                                          "step", "step, untimed"};
  ASSERT_EQ(rows.size(), names.size());
  double sum = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(rows[i].at("part"), names[i]);
    EXPECT_EQ(rows[i].at("test"), "tg4");
    if (i < 7) sum += number(rows[i], "ms");
  }
  EXPECT_NEAR(sum, number(rows[7], "ms"), kRelative * sum);
  EXPECT_NEAR(number(rows[7], "share"), 1.0, 0.02);
  EXPECT_GT(number(rows[2], "bytes"), 0);
  const ToolRun people = run_program("leq-bench", words);
  EXPECT_NE(people.out.find("| gemm "), std::string::npos) << people.out;
  const ToolRun both =
      run_program("leq-bench", {"-m", words[1], "-p", "0", "-n", "0", "-pg", "4,2", "--breakdown"});
  EXPECT_EQ(both.status, 1);
  EXPECT_NE(both.err.find("-pg"), std::string::npos) << both.err;
}

TEST(Bench, RefusesWhatItCannotRun) {
  const TemporaryFolder folder;
  const std::string path = make_small_model(folder, "llama", "int8");
  const auto error_of = [](const std::vector<std::string>& words) {
    const ToolRun run = run_program("leq-bench", words);
    EXPECT_EQ(run.status, 1);
    EXPECT_EQ(run.out, "");
    return run.err;
  };
  EXPECT_NE(error_of({"-m", "synthetic:llama-8b:int8"}).find("tinyllama-1.1b"), std::string::npos);
  EXPECT_NE(error_of({"-m", "synthetic:llama-7b:q4_0"}).find("int4-g128"), std::string::npos);
  EXPECT_NE(error_of({"-m", path, "-d", "4096"}).find("192"), std::string::npos);
  EXPECT_NE(error_of({"-m", path, "-p", "0", "-n", "0"}).find("-n"), std::string::npos);
  EXPECT_NE(error_of({"-m", path, "-pg", "8"}).find("-pg"), std::string::npos);
  EXPECT_NE(error_of({"-m", path, "-ctv", "q5_1"}).find("int8"), std::string::npos);
}

// The text is replayed: replies ignore the weights, and a draft is right as often as specified.
TEST(BenchTraffic, CountsEveryTokenAndALongPromptThatComesLater) {
  const std::vector<std::string> words = {"-m",         "synthetic:gpt2-124m:int8:layers=1",
                                          "--arrivals", "0",
                                          "--requests", "3",
                                          "-npl",       "2",
                                          "-p",         "16",
                                          "-n",         "8",
                                          "-t",         "1",
                                          "-o",         "json"};
  const Json alone = bench(words)[0];
  EXPECT_EQ(number(alone, "requests"), 3);
  EXPECT_FALSE(alone.contains("long_prompt"));
  EXPECT_GE(number(alone, "first_token_ms_p99"), number(alone, "first_token_ms_p50"));
  EXPECT_GE(number(alone, "next_token_ms_p99"), number(alone, "next_token_ms_p50"));
  // Each of the 3 prompts of 16 tokens is fed completely, and so is the long one.
  const auto prompt_tokens = [](const Json& row) {
    return number(row, "prompt_tokens_per_second") / number(row, "tokens_per_second") * (3 * 8);
  };
  EXPECT_NEAR(prompt_tokens(alone), 3 * 16, 1e-6);
  std::vector<std::string> late = words;
  late.insert(late.end(), {"--long-prompt", "200"});
  const Json row = bench(late)[0];
  EXPECT_EQ(number(row, "long_prompt"), 200);
  EXPECT_GT(number(row, "long_first_token_ms"), 0);
  EXPECT_NEAR(prompt_tokens(row), 3 * 16 + 200, 1e-6);
}

TEST(BenchSpeculate, ReplayedRepliesHaveTheRightDraftsThatTheyAreTold) {
  const std::string text = std::string(LEQ_SOURCE_DIR) + "/docs/engine.md";
  const auto rows_with = [&](const std::string& accept) {
    return bench({"--speculate", "-m", "synthetic:gpt2-124m:int8:layers=2", "-md",
                  "synthetic:gpt2-124m:int8:layers=1", "--replay", text, "-p", "64", "-n", "48",
                  "-r", "1", "--accept", accept, "--draft-max", "3"});
  };
  const Json rows = rows_with("1");
  ASSERT_EQ(rows.size(), 13u);  // three modes, nine sizes of steps, a draft's own step
  EXPECT_EQ(rows[0].at("drafts").get<std::string>(), "off");
  EXPECT_EQ(number(rows[0], "gain"), 1.0);
  EXPECT_NEAR(number(rows[0], "tokens_per_step"), 1, 0.05);
  for (const Json& row : rows) {
    const bool timed = row.at("tokens_per_second").is_number();
    EXPECT_TRUE(timed || row.at("step_ms").is_number()) << row.dump();
  }
  // While their cost is unknown, drafts are always tried.
  EXPECT_EQ(number(rows[2], "right_drafts_share"), 1.0);
  EXPECT_EQ(number(rows_with("0")[2], "right_drafts_share"), 0.0);
  const ToolRun without =
      run_program("leq-bench", {"--speculate", "-m", "synthetic:gpt2-124m:int8"});
  EXPECT_EQ(without.status, 1);
  EXPECT_NE(without.err.find("--replay FILE"), std::string::npos) << without.err;
}

TEST(Bench, TheCacheIsToldAsLeqRunIs) {
  const std::vector<std::string> base = {"-m",   "synthetic:llama-110m:int8:layers=1",
                                         "-p",   "0",
                                         "-n",   "2",
                                         "-r",   "1",
                                         "-t",   "1",
                                         "-d",   "256",
                                         "-ctk", "simq4",
                                         "-ctv", "int4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  const Json usual = bench(base);
  const Json told = bench(with({"--kv-sink", "0", "--kv-residual", "0"}));
  EXPECT_EQ(usual[0].at("type_k").get<std::string>(), "simq4");
  // Without sinks and residual, none of 256 positions is read in f16.
  EXPECT_LT(number(told[0], "bytes_per_token"), number(usual[0], "bytes_per_token"));
  for (const auto& [option, word] :
       {std::pair("--kv-residual", "1"), std::pair("--kv-sink", "1")}) {
    const ToolRun run =
        run_program("leq-bench", {"-m", base[1], "-p", "1", "-n", "0", option, word});
    EXPECT_EQ(run.status, 1) << option;
    EXPECT_NE(run.err.find("have no use for it"), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace leq::test

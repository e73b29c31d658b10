// Compares the memory plan of leq-inspect --fit with an engine that fills its context.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "format/leq_reader.h"
#include "model/session.h"
#include "runtime/make_backend.h"
#include "tools/small_models.h"

namespace leq::test {
namespace {

struct FitCase {
  const char* family;
  const char* type;
  std::int64_t context;
  int sequences;
  std::int64_t batch_tokens;
  KvType key_type, value_type;
  int threads;
};

std::vector<std::string> fit_words(const std::string& path, const FitCase& c) {
  return {path,
          "--fit",
          "--json",
          "-c",
          std::to_string(c.context),
          "-np",
          std::to_string(c.sequences),
          "-b",
          std::to_string(c.batch_tokens),
          "-ctk",
          std::string(kv_type_name(c.key_type)),
          "-ctv",
          std::string(kv_type_name(c.value_type)),
          "-t",
          std::to_string(c.threads)};
}

// Returns the backend's peak allocation when every sequence is fed up to its last position.
std::uint64_t peak_of_a_full_run(const std::string& path, const FitCase& c) {
  LoadOptions load;
  load.mode = LoadMode::map;
  const Model model(path, load);
  const auto backend = make_backend({"cpu", c.threads});
  RunLimits limits;
  limits.context = c.context;
  limits.sequences = c.sequences;
  if (c.sequences > 1) limits.sequence_context = c.context;  // shared, as in the tools
  limits.batch_tokens = c.batch_tokens;
  limits.output_tokens = c.sequences + kMaxDraftTokens;  // as in leq-run
  limits.key_type = c.key_type;
  limits.value_type = c.value_type;
  Session session(model, *backend, resolve_limits(limits, model.config()));
  const std::int64_t each = c.context / c.sequences;
  std::vector<Token> tokens(static_cast<std::size_t>(each));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i * 7 % 90);
  for (int sequence = 0; sequence < c.sequences; ++sequence) session.feed(sequence, tokens);
  EXPECT_EQ(session.cache().length(c.sequences - 1), each);
  return backend->memory().peak();
}

TEST(Fit, EqualsThePeakOfAFullRun) {
  const TemporaryFolder folder;
  const FitCase cases[] = {
      {"llama", "int8", 192, 1, 512, KvType::f16, KvType::f16, 1},
      {"llama", "int8", 100, 1, 7, KvType::int8, KvType::int8, 2},
      {"llama", "int4-g128", 256, 4, 64, KvType::int8, KvType::f16, 2},
      {"llama", "uint3-g64", 200, 2, 64, KvType::f16, KvType::f16, 2},
      {"llama", "f32", 192, 1, 33, KvType::f32, KvType::f32, 1},
      {"llama", "int8-g128", 130, 2, 512, KvType::f16, KvType::int8, 3},
      {"gpt2", "int8", 192, 1, 512, KvType::f32, KvType::f16, 1},
      {"gpt2", "f16", 65, 1, 16, KvType::int8, KvType::int8, 2},
      {"llama", "int8", 192, 2, 64, KvType::simq4, KvType::simq2, 2},
      {"llama", "int8", 192, 1, 64, KvType::simq8, KvType::int4, 1},
  };
  for (const FitCase& c : cases) {
    const std::string path = make_small_model(folder, c.family, c.type);
    const ToolRun run = run_program("leq-inspect", fit_words(path, c));
    ASSERT_EQ(run.status, 0) << run.err;
    const Json plan = parse_json(run.out, "output");
    const std::string what = std::string(c.family) + " " + c.type;
    EXPECT_EQ(plan.at("weight_bytes"), LeqReader(path, {}).memory_bytes()) << what;
    EXPECT_EQ(
        plan.at("kv_bytes").get<std::uint64_t>() + plan.at("scratch_bytes").get<std::uint64_t>(),
        peak_of_a_full_run(path, c))
        << what;
    EXPECT_EQ(plan.at("total_bytes").get<std::uint64_t>(),
              plan.at("weight_bytes").get<std::uint64_t>() +
                  plan.at("kv_bytes").get<std::uint64_t>() +
                  plan.at("scratch_bytes").get<std::uint64_t>());
  }
}

TEST(Fit, TellsPeopleThePlanAndTheLargestContext) {
  const TemporaryFolder folder;
  const std::string path = make_small_model(folder, "llama", "int8");
  const ToolRun run = run_program("leq-inspect", {path, "--fit"});
  EXPECT_EQ(run.status, 0) << run.err;
  for (const char* part : {"context 192", "KV cache", "scratch", "total", "it fits", "keys f16"}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\n" << run.out;
  }
  const Json plan = parse_json(run_program("leq-inspect", {path, "--fit", "--json"}).out, "output");
  EXPECT_EQ(plan.at("largest_context"), kSmallContext);
  EXPECT_EQ(plan.at("key_type"), "f16");
}

// Four sequences of at most 192 positions share 1024.
TEST(Fit, OfMorePositionsThanTheSequencesCanUseIsTold) {
  const TemporaryFolder folder;
  const std::string path = make_small_model(folder, "llama", "int8");
  const std::vector<std::string> words = {path, "--fit", "-c", "1024", "-np", "4"};
  const ToolRun run = run_program("leq-inspect", words);
  EXPECT_NE(run.out.find("it fits; each sequence can use 192 positions of it\n"), std::string::npos)
      << run.out;
  std::vector<std::string> json = words;
  json.emplace_back("--json");
  EXPECT_EQ(parse_json(run_program("leq-inspect", json).out, "output").at("largest_context"), 1024);
}

// Returns bytes of int8 codes with a scale per row, and of vectors, by docs/cuda-kernels.md.
std::uint64_t int8_bytes_on_a_gpu(std::uint64_t rows, std::uint64_t columns) {
  const auto up = [](std::uint64_t count, std::uint64_t unit) {
    return (count + unit - 1) / unit * unit;
  };
  if (rows == 1) return up(up(columns, 32) * 4, 256);
  return up(up(rows, 64) * up(columns, 128), 256) + up(up(rows, 64) * 4, 256);
}

// This must work in every build: with a GPU, with the emulated one, or with neither.
TEST(Fit, PlansForAGpuThatIsNotHere) {
  const TemporaryFolder folder;
  const std::string path = make_small_model(folder, "llama", "int8");
  const std::vector<std::string> words = {path, "--fit", "--json", "-dev", "cuda", "--vram", "24G"};
  const ToolRun run = run_program("leq-inspect", words);
  ASSERT_EQ(run.status, 0) << run.err;
  const Json plan = parse_json(run.out, "--fit --json");
  std::uint64_t block = 0;
  for (const auto& [rows, columns] : {std::pair{96, 96},
                                      {32, 96},
                                      {32, 96},
                                      {96, 96},
                                      {160, 96},
                                      {160, 96},
                                      {96, 160},
                                      {1, 96},
                                      {1, 96}}) {
    block +=
        int8_bytes_on_a_gpu(static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns));
  }
  EXPECT_EQ(plan.at("weight_bytes"),
            2 * block + 2 * int8_bytes_on_a_gpu(101, 96) + int8_bytes_on_a_gpu(1, 96));
  const std::uint64_t page = 2 * 64 * 16 * 2;  // kv heads, positions, f16
  EXPECT_EQ(plan.at("kv_bytes"), 2u * 3 * 2 * page);
  EXPECT_EQ(plan.at("largest_context"), kSmallContext);
  EXPECT_EQ(plan.at("available_bytes"), std::uint64_t{24} << 30);
  const auto some = words.begin() + 5;
  const ToolRun bad = run_program("leq-inspect", {path, "--fit", "-dev", "gpu", "--vram", "24G"});
  EXPECT_EQ(bad.status, 1);
  EXPECT_NE(bad.err.find("-dev gpu: expected"), std::string::npos) << bad.err;
  if (run_program("leq-inspect", {"--list-devices"}).out.find("\ncuda:0") != std::string::npos) {
    GTEST_SKIP() << "a GPU is here: plans need no --vram";
  }
  const ToolRun without = run_program("leq-inspect", {words.begin(), some});
  EXPECT_EQ(without.status, 1);
  EXPECT_NE(without.err.find("--vram 24G"), std::string::npos) << without.err;
}

// No head of this model is on two ranks, so the ranks' caches are together as large as one cache.
TEST(Fit, PlansEachOfSeveralRanks) {
  const TemporaryFolder folder;
  const std::string path = make_small_model(folder, "llama", "int8");
  const auto plan = [&](const std::string& ranks) {
    const ToolRun run = run_program("leq-inspect", {path, "--fit", "--json", "--tp", ranks});
    EXPECT_EQ(run.status, 0) << run.err;
    return parse_json(run.out, "plan");
  };
  const Json alone = plan("1"), shared = plan("3");
  EXPECT_FALSE(alone.contains("ranks"));
  ASSERT_EQ(shared.at("ranks").size(), 3u);
  std::uint64_t kv_bytes = 0, scratch_bytes = 0;
  for (const Json& rank : shared.at("ranks")) {
    kv_bytes += rank.at("kv_bytes").get<std::uint64_t>();
    scratch_bytes += rank.at("scratch_bytes").get<std::uint64_t>();
  }
  EXPECT_EQ(kv_bytes, alone.at("kv_bytes").get<std::uint64_t>());
  EXPECT_EQ(shared.at("kv_bytes").get<std::uint64_t>(), kv_bytes);
  EXPECT_EQ(shared.at("scratch_bytes").get<std::uint64_t>(), scratch_bytes);
  EXPECT_EQ(shared.at("total_bytes").get<std::uint64_t>(),
            alone.at("weight_bytes").get<std::uint64_t>() + kv_bytes + scratch_bytes);
}

TEST(Fit, RefusesWhatTheModelCannotHold) {
  const TemporaryFolder folder;
  const std::string path = make_small_model(folder, "llama", "int8");
  const ToolRun context = run_program("leq-inspect", {path, "--fit", "-c", "193"});
  EXPECT_EQ(context.status, 1);
  EXPECT_NE(context.err.find("192"), std::string::npos) << context.err;
  const ToolRun type = run_program("leq-inspect", {path, "--fit", "-ctk", "q5_1"});
  EXPECT_EQ(type.status, 1);
  EXPECT_NE(type.err.find("int8"), std::string::npos) << type.err;
}

}  // namespace
}  // namespace leq::test

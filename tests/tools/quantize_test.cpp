// Runs leq-quantize as a user does, on the storyteller in the project.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "shared_data.h"
#include "tools/small_models.h"
#include "tools/tool_runner.h"

namespace leq {
namespace {

using test::run_program;
using test::ToolRun;

const std::string kStoryteller = std::string(LEQ_SOURCE_DIR) + "/examples/storyteller";
// This much text is enough for the methods to work, and fast enough for a test.
const std::vector<std::string> kShort = {"--samples", "12", "--length", "96", "-t", "2"};

class Quantize : public testing::Test {
 protected:
  ToolRun quantize(std::vector<std::string> flags) const {
    std::vector<std::string> words = {kStoryteller, "-o", file()};
    words.insert(words.end(), kShort.begin(), kShort.end());
    words.insert(words.end(), flags.begin(), flags.end());
    return run_program("leq-quantize", words);
  }
  std::string file() const { return (folder_ / "model.leq").string(); }
  bool written() const { return std::filesystem::exists(file()); }
  // Returns other files in the model's folder; there must be none.
  std::vector<std::string> left_beside() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator((folder_ / "").string())) {
      if (entry.path() != file()) names.push_back(entry.path().filename().string());
    }
    return names;
  }
  Json inspected() const {
    const ToolRun run = run_program("leq-inspect", {file(), "--json"});
    EXPECT_EQ(run.status, 0) << run.err;
    return parse_json(run.out, "output");
  }
  void expect_error(const std::vector<std::string>& flags, const std::string& part) const {
    test::expect_tool_error(quantize(flags), {part});
    EXPECT_FALSE(written());
  }

  test::TemporaryFolder folder_;
};

TEST_F(Quantize, RecipesPassTheirGatesAndSayWhatTheyFound) {
  for (const char* recipe : {"q8", "q6", "q5", "q4", "q4-small", "zeroquant-w48"}) {
    const ToolRun run = quantize({"--recipe", recipe});
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_NE(run.err.find("passed"), std::string::npos) << run.err;
    EXPECT_EQ(run.err.find("not passed"), std::string::npos) << run.err;
    const Json gate = inspected().at("provenance").at("gate");
    EXPECT_GT(gate.at("kl_mean").get<double>(), 1e-5);
    EXPECT_LT(gate.at("kl_mean").get<double>(), std::string(recipe) == "q8" ? 0.005 : 0.05);
    EXPECT_TRUE(left_beside().empty());
    EXPECT_EQ(run_program("leq-inspect", {file(), "--verify"}).status, 0);
  }
}

// Narrow models get superblock scales, and more bits where 4 lose most, unless a user sets types.
TEST_F(Quantize, RecipeQ4GivesMoreBitsToWhatNeedsThem) {
  const auto type_of = [](const Json& file, const std::string& name) {
    for (const Json& tensor : file.at("tensors"))
      if (tensor.at("name") == name) return tensor.at("scheme").get<std::string>();
    return std::string("none");
  };
  ASSERT_EQ(quantize({"--recipe", "q4", "--tensor-type", "layers\\.1\\.down=int8-g32"}).status, 0);
  const Json file = inspected();
  EXPECT_EQ(type_of(file, "token_embedding"), "q6_k");
  EXPECT_EQ(type_of(file, "layers.0.q"), "q4_k");
  EXPECT_EQ(type_of(file, "layers.0.gate"), "q4_k");
  EXPECT_EQ(type_of(file, "layers.0.v"), "q5_k");
  EXPECT_EQ(type_of(file, "layers.0.down"), "q5_k");
  EXPECT_EQ(type_of(file, "layers.1.down"), "int8-g32");
}

// Without a flag for the method, recipe q8 is used with its gate.
TEST_F(Quantize, TheSimplestCommandIsRecipeQ8) {
  const ToolRun run = quantize({});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("limit of q8: 0.007 nats, passed"), std::string::npos) << run.err;
  const std::string plain = test::read_bytes(file());
  ASSERT_EQ(quantize({"--recipe", "q8"}).status, 0);
  EXPECT_TRUE(test::read_bytes(file()) == plain);
  EXPECT_EQ(quantize({"--no-gate"}).err.find("limit of"), std::string::npos);
  EXPECT_EQ(inspected().at("provenance").at("method"), "smoothquant");
}

// Without --samples and --length, the amount of text depends on the machine's speed.
TEST_F(Quantize, TheSimplestCommandSaysHowMuchTextItTakes) {
  const Json config = test::small_llama_config();
  test::RandomCheckpoint checkpoint(folder_ / "checkpoint");
  checkpoint.add_llama(config, {});
  const std::string source = checkpoint.write(config).string();
  for (const bool named : {false, true}) {
    std::vector<std::string> words = {source, "-o", file(), "-t", "2"};
    if (named) words.insert(words.end(), {"--recipe", "q8"});
    const ToolRun run = run_program("leq-quantize", words);
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_TRUE(run.err.starts_with("calibration 8 windows of 192 tokens, then ")) << run.err;
    EXPECT_NE(run.err.find("limit of q8: 0.007 nats"), std::string::npos) << run.err;
  }
}

// Returns the number in a line such as "gate KL 0.00123 +- ..."; 0 if there is none.
double divergence(const std::string& text) {
  const std::string before = "gate        KL ";
  const std::size_t at = text.find(before);
  return at == std::string::npos ? 0 : std::stod(text.substr(at + before.size()));
}

TEST_F(Quantize, OtherFlagsAreMeasuredOnRequest) {
  const double eight = divergence(quantize({"--type", "int8", "--gate"}).err);
  const double three = divergence(quantize({"--type", "int3-g64", "--gate"}).err);
  EXPECT_GT(eight, 1e-5);
  EXPECT_LT(eight, 0.005);
  EXPECT_GT(three, 10 * eight);
  EXPECT_TRUE(left_beside().empty());
  EXPECT_EQ(divergence(quantize({"--type", "int8"}).err), 0);
}

// This is why the recipe is the default: plain int8 fails if some channels are large.
TEST_F(Quantize, TheSimplestCommandBearsOutliers) {
  LEQ_SHARED_OR_SKIP(model, "models/storyteller-outliers");
  const auto on_outliers = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {model.string(), "-o", file()});
    flags.insert(flags.end(), kShort.begin(), kShort.end());
    return run_program("leq-quantize", flags).err;
  };
  const std::string plain = on_outliers({"--type", "int8", "--gate"});
  EXPECT_GT(divergence(plain), 1) << plain;
  const std::string safe = on_outliers({});
  EXPECT_NE(safe.find("limit of q8: 0.007 nats, passed"), std::string::npos) << safe;
}

TEST_F(Quantize, AFolderWithoutATokenizerIsRefusedBeforeAnyWork) {
  const Json config = test::small_llama_config();
  test::RandomCheckpoint checkpoint(folder_ / "checkpoint");
  checkpoint.add_llama(config, {});
  const std::string source = checkpoint.write(config).string();
  std::filesystem::remove(source + "/vocab.json");
  std::filesystem::remove(source + "/merges.txt");
  test::expect_tool_error(run_program("leq-quantize", {source, "-o", file()}), {"tokenizer"});
  EXPECT_FALSE(written());
}

TEST_F(Quantize, TheDeviceIsTakenAndNotOffered) {
  EXPECT_EQ(run_program("leq-quantize", {"--help"}).out.find("-dev,"), std::string::npos);
  EXPECT_EQ(quantize({"--type", "f16", "-dev", "cpu"}).status, 0);
  std::filesystem::remove(file());
  expect_error({"-dev", "cuda"}, "leq-quantize computes on the CPU");
}

TEST_F(Quantize, ASearchMixesBitsWithinItsTarget) {
  const std::string text =
      folder_.write("text", test::read_bytes(kStoryteller + "/heldout.txt").substr(0, 3000));
  const ToolRun run = quantize({"--method", "rtn", "--search", "--target-bpw", "3.5",
                                "--search-evals", "12", "--group", "64", "--search-text", text});
  ASSERT_EQ(run.status, 0) << run.err;
  const std::size_t told = run.err.find(", then 12 measurements of 16 windows");
  ASSERT_NE(told, std::string::npos) << run.err;
  const std::string line = run.err.substr(told, run.err.find('\n', told) - told);
  // "about 20 s", or a range if other programs use the cores.
  EXPECT_NE(line.find("windows: "), std::string::npos) << line;
  EXPECT_NE(line.find(" s", line.find("windows: ")), std::string::npos) << line;
  const Json search = inspected().at("provenance").at("search");
  EXPECT_LE(search.at("chosen").at("bits_per_weight").get<double>(), 3.5);
  EXPECT_EQ(search.at("uniform").size(), 4u);
  EXPECT_EQ(left_beside(), std::vector<std::string>{"text"});
}

// Weights and cache fit a size by the plan that leq-inspect prints; leq-run uses the same cache.
TEST_F(Quantize, WeightsAndCacheAreFittedTogether) {
  const std::string text =
      folder_.write("text", test::read_bytes(kStoryteller + "/heldout.txt").substr(0, 3000));
  const ToolRun run =
      quantize({"--method", "rtn", "--search", "--fit", "13M", "-c", "1024", "--search-evals", "12",
                "--group", "64", "--search-text", text, "--gate"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("within 13M (13.6 MB) with a context of 1,024"), std::string::npos)
      << run.err;
  const Json found = inspected();
  const Json& cache = found.at("kv_cache");
  EXPECT_EQ(cache.at("keys"), "int8") << run.err;
  EXPECT_EQ(cache.at("context"), 1024);
  EXPECT_EQ(cache.at("kl"), found.at("provenance").at("gate").at("kl_mean"));
  EXPECT_EQ(found.at("provenance").at("gate").at("keys"), cache.at("keys"));
  const ToolRun plan = run_program("leq-inspect", {file(), "--fit", "-c", "1024", "--json"});
  ASSERT_EQ(plan.status, 0) << plan.err;
  const Json planned = parse_json(plan.out, "output");
  EXPECT_EQ(planned.at("key_type"), cache.at("keys"));
  EXPECT_LE(planned.at("total_bytes").get<double>(), 13.0 * (1 << 20));

  const std::vector<std::string> words = {"-m", file(), "-p", "Once upon a time", "-n", "4", "-v"};
  const auto told = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    const ToolRun reply = run_program("leq-run", more);
    EXPECT_EQ(reply.status, 0) << reply.err;
    return reply.err;
  };
  const std::string as_made = told({"-c", "512"});
  EXPECT_NE(as_made.find("kv cache: keys " + cache.at("keys").get<std::string>()),
            std::string::npos)
      << as_made;
  EXPECT_EQ(as_made.find("not what this file was made for"), std::string::npos) << as_made;
  EXPECT_NE(told({"-ctk", "f16"}).find("keys f16"), std::string::npos);
  EXPECT_NE(told({"-ctk", "f16"}).find("not what this file was made for"), std::string::npos);
}

// Presets, activations and overrides must be stored in the file and used by the engine.
TEST_F(Quantize, FlagsReachTheFileAndItRuns) {
  struct Case {
    std::vector<std::string> flags;
    std::string scheme, act;  // expected for layers.1.down
  };
  const std::vector<Case> cases = {
      {{"--act", "tensor"}, "int8", "tensor"},
      {{"--act", "online"}, "int8", "online"},
      {{"--act", "g128"}, "int8", "g128"},
      {{"--type", "int8-g32", "--act", "g32"}, "int8-g32", "g32"},
      {{"--smooth", "o1"}, "int8", "row"},
      // One scale for all tokens is too coarse for this linear.
      {{"--method", "smoothquant", "--smooth", "o3"}, "int8", "row"},
      {{"--method", "zeropoint"}, "uint8", "g32"},
      {{"--bits", "3", "--group", "32"}, "int3-g32", "g32"},
      {{"--method", "nf4"}, "nf4", "none"},
      {{"--recipe", "zeroquant-w48", "--no-gate"}, "int4-g128", "row"},
      {{"--tensor-type", "layers\\.1\\.=uint2-g64"}, "uint2-g64", "g128"}};
  for (const Case& item : cases) {
    const ToolRun run = quantize(item.flags);
    ASSERT_EQ(run.status, 0) << run.err;
    const Json tensors = inspected().at("tensors");
    const auto down = std::ranges::find_if(
        tensors, [](const Json& tensor) { return tensor.at("name") == "layers.1.down"; });
    ASSERT_NE(down, tensors.end());
    EXPECT_EQ(down->at("scheme"), item.scheme);
    EXPECT_EQ(down->at("act"), item.act);
    const ToolRun told = run_program("leq-run", {"-m", file(), "-p", "Once", "-n", "4"});
    EXPECT_EQ(told.status, 0) << told.err;
  }
}

// Returns the required megabytes in a refusal by --max-ram.
double needed_mb(const std::string& message) {
  const std::string before = "calibration needs ";
  const std::size_t at = message.find(before);
  if (at == std::string::npos) return 0;
  const double number = std::stod(message.substr(at + before.size()));
  return message.find(" MB", at) < message.find(" (", at) ? number : 0;
}

// The model needs far more memory than the program itself. The peak is the operating system's, for
// the whole process.
TEST_F(Quantize, StaysBelowMaxRamByTheSystemsAccount) {
  if (*LEQ_SANITIZE != '\0') GTEST_SKIP() << "sanitizers keep memory of their own";
  Json config = test::small_llama_config();
  config["hidden_size"] = 512;
  config["num_attention_heads"] = config["num_key_value_heads"] = 8;
  config["head_dim"] = 64;
  config["intermediate_size"] = 1408;
  test::RandomCheckpoint checkpoint(folder_ / "checkpoint");
  checkpoint.add_llama(config, {});
  const std::string source = checkpoint.write(config).string();
  for (const std::string method : {"gptq", "smoothquant"}) {
    const auto within = [&](const std::string& size) {
      return run_program("leq-quantize", {source, "-o", file(), "--method", method, "--samples",
                                          "64", "--length", "128", "-t", "2", "--max-ram", size});
    };
    const ToolRun refused = within("1M");
    EXPECT_EQ(refused.status, 1);
    const double needed = needed_mb(refused.err);
    ASSERT_GT(needed, 50) << refused.err;
    EXPECT_NE(refused.err.find("on disk"), std::string::npos) << refused.err;
    const auto limit = static_cast<std::uint64_t>(1e6 * needed * 1.02);
    const ToolRun run = within(std::to_string(limit));
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_NE(run.err.find("on disk"), std::string::npos) << run.err;
    EXPECT_LT(run.peak_bytes, limit) << method;
  }
}

// There are 100 MB of experts, those of a layer in two tensors. They must be read, rounded and
// written row by row.
TEST_F(Quantize, ExpertsAreConvertedARowAfterTheOther) {
  if (*LEQ_SANITIZE != '\0') GTEST_SKIP() << "sanitizers keep memory of their own";
  Json config = test::small_config("qwen3_moe", "Qwen3MoeForCausalLM");
  config["hidden_size"] = config["moe_intermediate_size"] = 512;
  config["num_attention_heads"] = config["num_key_value_heads"] = 8;
  config["num_local_experts"] = 16;
  config["num_experts_per_tok"] = 2;
  const auto write = [&] {  // its memory is freed before the tool starts
    test::RandomCheckpoint checkpoint(folder_ / "checkpoint");
    checkpoint.add_llama(config,
                         {.qk_norm = true, .experts = test::RandomCheckpoint::Experts::stacked});
    return checkpoint.write(config).string();
  };
  const std::string source = write();
  const ToolRun run =
      run_program("leq-quantize", {source, "-o", file(), "--type", "int8", "--no-gate", "-t", "2"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_LT(run.peak_bytes, 60'000'000u);
}

TEST_F(Quantize, RefusesFlagsThatContradictEachOther) {
  expect_error({"--recipe", "q8", "--type", "int4-g64"}, "--recipe q8 and --type");
  expect_error({"--recipe", "q7"}, "q8");
  expect_error({"--type", "Q4_K_M"}, "--type Q4_K_M: is a type of llama.cpp; use --recipe q4");
  expect_error({"--recipe", "Q8_0"}, "--recipe Q8_0: is a type of llama.cpp; use --recipe q8");
  expect_error({"--recipe", "Q4_small"}, "--recipe Q4_small: use --recipe q4-small");
  expect_error({"--recipe", "int8-g128"}, "--recipe int8-g128: is a type; use --type int8-g128");
  for (const auto& [words, advice] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"a", "b.leq", "Q4_K_M"}, "`leq-quantize a -o b.leq --recipe q4`"},
           {{"a", "b.leq"}, "`leq-quantize a -o b.leq`"},
           {{"x/a", "Q4_K_M"}, "`leq-quantize x/a -o a.leq --recipe q4`"},
           {{"a.gguf", "q6_k"}, "`leq-quantize a.gguf -o a.leq --type q6_k`"},
           {{"a", "b.leq", "Q4_K_M", "8"}, "`leq-quantize a -o b.leq --recipe q4`"},
           {{"a", "-o", "b.leq", "Q8_0"}, "`leq-quantize a -o b.leq --recipe q8`"}}) {
    test::expect_tool_error(run_program("leq-quantize", words), {"unexpected argument", advice});
  }
  test::expect_tool_error(run_program("leq-quantize", {"x/a"}),
                          {"-o is missing", "`leq-quantize x/a -o a.leq`"});
  expect_error({"--recipe", "q4", "--time", "soon"},
               "--time soon: expected a time as 90s, 3m or 2h");
  expect_error({"--recipe", "q4", "--time", "3m", "--samples", "8"}, "--time and --samples");
  const ToolRun timed =
      run_program("leq-quantize", {kStoryteller, "-o", file(), "--type", "int8", "--time", "3m"});
  EXPECT_NE(timed.err.find("--time belongs to the recipes q8, q6, q5, q4 and q4-small"),
            std::string::npos)
      << timed.err;
  const std::string text = kStoryteller + "/heldout.txt";
  expect_error({"--type", "int8", "--heldout", text}, "--heldout: is the text of --gate");
  expect_error({"--type", "int8", "--bits", "4"}, "--bits");
  expect_error({"--hadamard"}, "--hadamard: rotations are no longer supported; --recipe q8");
  expect_error({"--hadamard-seeds", "4"}, "--hadamard-seeds: rotations are no longer supported");
  expect_error({"--save-stats", "x"}, "--save-stats: statistics are no longer stored");
  expect_error({"--fold-biases"}, "int8 and int4 caches subtract the biases of keys");
  expect_error({"--group", "64"}, "--group needs --bits");
  expect_error({"--bits", "5"}, "expected 8, 4, 3 or 2");
  expect_error({"--method", "awq", "--smooth", "0.5"}, "--smooth");
  expect_error({"--smooth", "o3", "--act", "row"}, "--act");
  expect_error({"--smooth", "1.5"}, "alpha from 0 to 1");
  expect_error({"--search", "--type", "int8"}, "--type");
  expect_error({"--recipe", "q4", "--target-bpw", "3"}, "--target-bpw needs a search");
  expect_error({"--method", "awq", "--search"}, "awq");
  expect_error({"--fit", "1M"}, "with the fewest bits the tensors take at least");
  expect_error({"--fit", "lots"}, "8G");
  expect_error({"--fit", "8G", "-c", "100000"}, "-c 100000");
  expect_error({"--fit", "8G", "--target-bpw", "4"}, "--fit is the target");
  expect_error({"--fit", "8G", "--recipe", "q8"}, "--fit needs a search");
  expect_error({"--recipe", "auto", "--max-kl", "1"}, "--max-kl needs --fit");
  expect_error({"--tensor-type", "nothing=int8"}, "fits no weight");
  expect_error({"--tensor-type", "("}, "REGEX=TYPE");
  expect_error({"--tensor-type", "(=int8"}, "is refused at offset 1");
  expect_error({"--max-ram", "lots"}, "8G");
  expect_error({"--method", "gptq", "--max-ram", "1M"}, "--max-ram");
  expect_error({"--calibration", "/nowhere/text"}, "/nowhere/text");
  expect_error({"--type", "f16", "--method", "gptq"}, "f16");
  const std::string broken = folder_.write("broken", "no text: \xff");
  for (const char* flag : {"--calibration", "--heldout"}) {
    expect_error({"--recipe", "q8", flag, broken}, "no valid UTF-8 at byte 9");
  }
}

}  // namespace
}  // namespace leq

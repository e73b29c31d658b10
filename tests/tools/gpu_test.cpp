// Tests what users see on a GPU, with the emulated one: plans, caps, contexts that are reduced or
// refused, devices by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "model/session.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"
#include "tools/small_models.h"

namespace leq::test {
namespace {

using Words = std::vector<std::string>;

bool lists(const std::string& start) {
  return std::ranges::any_of(list_devices(),
                             [&](const std::string& line) { return line.starts_with(start); });
}

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!lists("sim ")) GTEST_SKIP() << "this build has no emulated GPU";
    model_ = make_small_model(folder_, "llama", "int8");
  }
  std::uint64_t planned(const char* key, const Words& more) const {
    const ToolRun run =
        run_program("leq-inspect", Words{model_, "--fit", "--json", "-dev", "sim"} + more);
    EXPECT_EQ(run.status, 0) << run.err;
    return parse_json(run.out, "output").at(key).get<std::uint64_t>();
  }
  ToolRun bench(const Words& more) const {
    return run_program("leq-bench", Words{"-m", model_, "-p", "0", "-n", "2", "-r", "1", "-t", "1",
                                          "-o", "json", "-dev", "sim"} +
                                        more);
  }

  TemporaryFolder folder_;
  std::string model_;
};

TEST_F(Gpu, EveryToolListsTheDevices) {
  for (const char* tool :
       {"leq-run", "leq-perplexity", "leq-bench", "leq-inspect", "leq-quantize"}) {
    const ToolRun run = run_program(tool, {"--list-devices"});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_TRUE(run.out.starts_with("cpu  ")) << tool << run.out;
    EXPECT_NE(run.out.find("\ncuda"), std::string::npos) << tool << run.out;
    EXPECT_NE(run.out.find("\nsim "), std::string::npos) << tool << run.out;
  }
}

TEST_F(Gpu, ThePlanIsWhatARunTakes) {
  const Model model(model_, {.mode = LoadMode::map});
  for (const KvType kv : {KvType::f32, KvType::int8}) {
    const auto backend = make_backend({.device = "sim", .threads = 1});
    RunLimits limits;
    limits.context = 130;
    limits.sequences = 2;
    limits.sequence_context = std::numeric_limits<std::int64_t>::max();  // as the tools' sequences
    limits.batch_tokens = 7;
    limits.output_tokens = 2;
    limits.key_type = limits.value_type = kv;
    Session session(model, *backend, resolve_limits(limits, model.config()));
    EXPECT_EQ(backend->memory().allocated(), session.plan().total());
    session.feed(0, std::vector<Token>(15, 3));
    session.feed(1, std::vector<Token>(15, 4));
    EXPECT_EQ(backend->memory().peak(), session.plan().total()) << kv_type_name(kv);
    EXPECT_EQ(planned("total_bytes",
                      {"-c", "130", "-np", "2", "-b", "7", "--speculate", "off", "-ctk",
                       std::string(kv_type_name(kv)), "-ctv", std::string(kv_type_name(kv))}),
              session.plan().total());
  }
}

TEST_F(Gpu, ACapOfThePlansBytesIsEnoughAndOneByteLessIsRefused) {
  const std::uint64_t total =
      planned("total_bytes", {"-c", "64", "-b", "64", "--speculate", "off"});
  const std::string most = std::to_string(total), less = std::to_string(total - 1);
  const ToolRun fits = bench({"-ub", "64", "--vram", most});
  EXPECT_EQ(fits.status, 0) << fits.err;
  const Json row = parse_json(fits.out, "output").at(0);
  EXPECT_GT(row.at("tps").get<double>(), 0.0);
  EXPECT_TRUE(row.at("share").is_null()) << "nothing was measured to hold it against";
  expect_tool_error(bench({"-ub", "64", "--vram", less}),
                    {"weights", "KV cache", "scratch", "--vram allows", "no context fits"});
}

TEST_F(Gpu, AContextThatWasAskedForIsRefusedWithTheLargestThatFits) {
  const std::string cap = std::to_string(planned("total_bytes", {"-c", "128"}));
  const Words words = {"-m", model_, "-dev", "sim", "--vram", cap, "-p", "x"};
  expect_tool_error(run_program("leq-run", words + Words{"-c", "192"}),
                    {"context of 192", "--vram allows",
                     "largest context that fits is 128: use -c 128", "-ctk int8", "-dev cpu"});
  const ToolRun fit =
      run_program("leq-inspect", {model_, "--fit", "-dev", "sim", "--vram", cap, "-c", "192"});
  EXPECT_NE(fit.out.find("it does not fit; the largest context that does is 128"),
            std::string::npos)
      << fit.out;
}

TEST_F(Gpu, ADeviceWithoutMemoryIsSaidBeforeAnythingIsLoaded) {
  // In addition to the plan, the lists of a batch, the sampler and moving scales use 11 MB.
  const ToolRun run =
      run_program("leq-run", {"-m", model_, "-dev", "sim:11000k", "-c", "192", "-p", "x"});
  expect_tool_error(run, {"does not fit on sim", "of the device's 11.3 MB are free"});
  expect_tool_error(run_program("leq-run", {"-m", model_, "-dev", "sim:much", "-p", "x"}),
                    {"sim:SIZE"});
}

TEST_F(Gpu, PlansForAGpuThatIsNotHere) {
  const Words words = {model_, "--fit", "-dev", "cuda", "-c", "192"};
  const ToolRun fit = run_program("leq-inspect", words + Words{"--vram", "24G"});
  EXPECT_EQ(fit.status, 0) << fit.err;
  for (const char* part : {"on cuda", "weights (on the GPU)", "24G (25.8 GB) are free: it fits"}) {
    EXPECT_NE(fit.out.find(part), std::string::npos) << part << "\n" << fit.out;
  }
  EXPECT_EQ(
      parse_json(run_program("leq-inspect", words + Words{"--vram", "24G", "--json"}).out, "output")
          .at("total_bytes"),
      planned("total_bytes", {"-c", "192"}));
  if (lists("cuda:0")) GTEST_SKIP() << "a GPU is here: plans need no --vram";
  expect_tool_error(run_program("leq-inspect", words), {"--vram 24G"});
}

// With exact arithmetic, text, receipts and perplexity must be the CPU's, for both model shapes and
// for caches that tensor cores would read otherwise.
TEST_F(Gpu, ExactIsTheCpuToAllWhoLook) {
  for (const char* family : {"llama", "gpt2"}) {
    const std::string model = make_small_model(folder_, family, "int8");
    for (const char* kv : {"f16", "simq4"}) {
      const auto on = [&](const Words& device, const std::string& receipt) {
        const ToolRun run = run_program(
            "leq-run", Words{"-m", model, "-p", "!#%&()", "-n", "40", "-s", "3", "--ignore-eos",
                             "-ctk", kv, "-ctv", kv, "--receipt", receipt} +
                           device);
        EXPECT_EQ(run.status, 0) << run.err;
        return run.out;
      };
      const Words exact = {"-dev", "sim", "--exact"};
      const std::string of_cpu = (folder_ / "cpu.json").string();
      const std::string of_gpu = (folder_ / "gpu.json").string();
      EXPECT_EQ(on({}, of_cpu), on(exact, of_gpu)) << family << " " << kv;
      EXPECT_EQ(read_file(of_cpu, 1 << 20), read_file(of_gpu, 1 << 20)) << family << " " << kv;
      const ToolRun checked =
          run_program("leq-inspect", Words{model, "--check-receipt", of_cpu} + exact);
      EXPECT_EQ(checked.status, 0) << checked.err;
      EXPECT_EQ(run_program("leq-inspect", {model, "--check-receipt", of_gpu}).status, 0);
    }
  }
}

TEST_F(Gpu, ExactPerplexityIsTheCpus) {
  const std::string text = (folder_ / "text").string();
  std::ofstream(text) << std::string(400, 'a') + std::string(200, '#') + std::string(300, 'q');
  const auto measure = [&](const Words& more) {
    const ToolRun run = run_program(
        "leq-perplexity", Words{"-m", model_, "-f", text, "-c", "128", "-o", "json"} + more);
    EXPECT_EQ(run.status, 0) << run.err;
    return parse_json(run.out, "output");
  };
  const Json cpu = measure({});
  for (const Words& more :
       {Words{"-dev", "sim", "--exact"}, Words{"-dev", "sim", "--exact", "--tp", "2"}}) {
    const Json exact = measure(more);
    EXPECT_EQ(cpu.at("nll"), exact.at("nll"));
    EXPECT_EQ(cpu.at("ppl"), exact.at("ppl"));
  }
}

// On several emulated GPUs, text and receipt are the CPU's with --exact, otherwise one GPU's.
TEST_F(Gpu, RanksWriteWhatOneDeviceWrites) {
  const auto written = [&](const Words& more) {
    const std::string receipt = (folder_ / "receipt.json").string();
    const ToolRun run =
        run_program("leq-run", Words{"-m", model_, "-p", "abc", "-s", "7", "-n", "20", "-ctk",
                                     "int8", "-ctv", "int8", "--receipt", receipt} +
                                   more);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.out + read_file(receipt, 1 << 20);
  };
  const std::string cpu = written({}), fast = written({"-dev", "sim"});
  for (const std::string ranks : {"2", "3"}) {
    EXPECT_EQ(written({"-dev", "sim", "--tp", ranks, "--exact"}), cpu) << ranks << " ranks";
    EXPECT_EQ(written({"-dev", "sim", "--tp", ranks}), fast) << ranks << " ranks";
  }
  EXPECT_EQ(written({"-dev", "sim", "--tp", "2", "--no-graph"}), fast);
}

// A rank's plan has its own part of the weights, and memory for data from other ranks.
TEST_F(Gpu, PlansEachRanksMemory) {
  const auto plan = [&](const Words& more) {
    const ToolRun run =
        run_program("leq-inspect", Words{model_, "--fit", "--json", "-dev", "sim"} + more);
    EXPECT_EQ(run.status, 0) << run.err;
    return parse_json(run.out, "plan");
  };
  const auto bytes = [](const Json& of, const char* key) {
    return of.at(key).get<std::uint64_t>();
  };
  const Json alone = plan({}), shared = plan({"--tp", "2"});
  ASSERT_EQ(shared.at("ranks").size(), 2u);
  std::uint64_t weights = 0;
  for (const Json& rank : shared.at("ranks")) {
    EXPECT_LT(bytes(rank, "weight_bytes"), bytes(alone, "weight_bytes"));
    EXPECT_GT(bytes(rank, "scratch_bytes"), bytes(alone, "scratch_bytes")) << "no room for pushes";
    weights += bytes(rank, "weight_bytes");
  }
  EXPECT_EQ(bytes(shared, "weight_bytes"), weights);
}

TEST_F(Gpu, RanksRunInTheBench) {
  const ToolRun run = bench({"--tp", "1,2"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(parse_json(run.out, "output").size(), 2u);
}

TEST_F(Gpu, ExactRefusesWhatItCannotDo) {
  const std::string f16 = make_small_model(folder_, "llama", "f16");
  const Words words = {"-m", f16, "-p", "x", "-dev", "sim", "--exact"};
  expect_tool_error(run_program("leq-run", words),
                    {"--exact: layers.0", "f16 weights", "--type int8", "leave --exact out"});
  expect_tool_error(run_program("leq-inspect", {f16, "--fit", "-dev", "sim:8G", "--exact"}),
                    {"--exact: layers.0"});
  const ToolRun cpu = run_program("leq-run", {"-m", f16, "-p", "x", "-n", "2", "--exact"});
  EXPECT_EQ(cpu.status, 0) << "a CPU is exact: " << cpu.err;
}

TEST_F(Gpu, OptionsThatMakeNoSenseAreRefused) {
  const Words run = {"-m", model_, "-p", "x"};
  expect_tool_error(run_program("leq-run", run + Words{"--vram", "8G"}), {"-dev cuda"});
  expect_tool_error(run_program("leq-run", run + Words{"-dev", "sim", "--vram", "8 apples"}),
                    {"--vram 8 apples", "8G"});
  expect_tool_error(
      run_program("leq-bench", {"-m", model_, "-p", "0", "-n", "2", "-dev", "sim", "-ngl", "1"}),
      {"the model has 2 layers"});
  expect_tool_error(run_program("leq-bench", {"-m", model_, "-dev", "sim", "--load"}), {"-dev"});
  expect_tool_error(run_program("leq-quantize", {LEQ_SOURCE_DIR "/examples/storyteller", "-o",
                                                 "y.leq", "-dev", "cuda"}),
                    {"leq-quantize computes on the CPU"});
  if (lists("cuda:0")) GTEST_SKIP() << "a GPU is here";
  expect_tool_error(run_program("leq-run", run + Words{"-dev", "cuda:GPU-8932f937"}),
                    {"-dev cuda:GPU-8932f937", "-dev cpu"});
}

TEST_F(Gpu, TheDefaultContextIsCutToWhatFitsAndTheUploadIsReported) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  model_ = quantized(folder, "int8");
  const std::string cap = std::to_string(planned("total_bytes", {"-c", "512"}));
  const Words words = {"-m", model_, "-dev",   "sim", "--raw", "-p", "Once upon a time",
                       "-n", "3",    "--temp", "0",   "-v"};
  const ToolRun cut = run_program("leq-run", words + Words{"--vram", cap});
  EXPECT_EQ(cut.status, 0) << cut.err;
  EXPECT_NE(cut.err.find("context cut to 512 of 1,024 positions"), std::string::npos) << cut.err;
  EXPECT_NE(cut.err.find("load: mapped, uploaded "), std::string::npos) << cut.err;
  EXPECT_NE(cut.err.find(" GB/s)"), std::string::npos) << cut.err;
  const ToolRun read = run_program("leq-run", words + Words{"--no-mmap"});
  EXPECT_EQ(read.out, cut.out);
  EXPECT_EQ(read.err.find("context cut"), std::string::npos) << read.err;
  EXPECT_NE(read.err.find("load: read into memory, uploaded "), std::string::npos) << read.err;
}

}  // namespace
}  // namespace leq::test

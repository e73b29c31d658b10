// From a checkpoint to a file with a measured loss in one call: what is measured, what is skipped
// and why, and how an interrupted run is resumed.
#include "quantize/run/quantize_job.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/json.h"
#include "convert/hf_import.h"
#include "errors.h"
#include "format/leq_reader.h"
#include "reference/random_checkpoint.h"
#include "temporary_folder.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Job : public testing::Test {
 protected:
  // Creates a model whose tokenizer has 94 letters.
  fs::path checkpoint(std::int64_t context) {
    const Json config = test::small_config_with({{"hidden_size", 64},
                                           {"num_hidden_layers", 3},
                                           {"num_attention_heads", 4},
                                           {"intermediate_size", 96},
                                           {"vocab_size", 101},
                                           {"max_position_embeddings", context},
                                           {"tokenizer_class", "GPT2Tokenizer"}});
    test::RandomCheckpoint random(folder_.path() / "checkpoint");
    random.add_llama(config, {});
    return random.write(config);
  }

  QuantizeJob job_of(std::int64_t context) {
    QuantizeJob job;
    job.folder = checkpoint(context);
    job.output = folder_.path() / "model.leq";
    job.checkpoint.threads = 1;
    job.checkpoint.say = [this](const std::string& line) { said_ += line + '\n'; };
    job.judged_by = built_in_gate_text();
    return job;
  }
  QuantizeJob recipe_job(std::int64_t context) {
    QuantizeJob job = job_of(context);
    job.recipe = &require_recipe(kDefaultRecipe);
    apply_recipe(*job.recipe, import_hf_config(job.folder), job.checkpoint);
    job.fit_windows = true;
    job.gate_mode = GateMode::gate;
    return job;
  }
  Json provenance() const {
    return LeqReader(folder_.path() / "model.leq", {.mode = LoadMode::map})
        .metadata()
        .at("provenance");
  }
  bool said(const std::string& part) const { return said_.find(part) != std::string::npos; }
  // Only the checkpoint and the model may remain.
  void expect_tidy() const {
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 2);
  }

  test::TemporaryFolder folder_;
  std::string said_;
};

TEST_F(Job, TheDefaultRecipeFitsItsTextAndKeepsItsGate) {
  const auto gate = run_job(recipe_job(64));
  ASSERT_TRUE(gate.has_value());
  EXPECT_TRUE(said("calibration 32 windows of 64 tokens (")) << said_;
  EXPECT_TRUE(said("limit of q8: 0.005 nats, ")) << said_;
  EXPECT_EQ(provenance().at("method"), "smoothquant");
  EXPECT_EQ(provenance().at("calibration").at(0).at("samples"), 32);
  EXPECT_EQ(provenance().at("gate").at("kl_mean"), gate->divergence.kl_mean.value);
  EXPECT_EQ(gate->divergence.windows, 16);
  expect_tidy();
}

TEST_F(Job, ATimeSaysHowManyWindowsAreRead) {
  for (const auto& [seconds, windows] : {std::pair(1e6, 128), std::pair(1e-6, 2)}) {
    QuantizeJob job = recipe_job(64);
    job.seconds = seconds;
    job.gate_mode = GateMode::none;
    said_.clear();
    run_job(job);
    EXPECT_EQ(provenance().at("calibration").at(0).at("samples"), windows) << said_;
    EXPECT_EQ(said(", the least that it takes"), windows == 2) << said_;
    // The file must be the same as with that number of windows given explicitly.
    const std::string timed = bytes_of(job.output);
    fs::remove(job.output);
    job.fit_windows = false;
    job.seconds = std::nullopt;
    job.checkpoint.calibration.samples = windows;
    run_job(job);
    EXPECT_TRUE(bytes_of(job.output) == timed);
    fs::remove(job.output);
  }
}

TEST_F(Job, ADistanceIsALineAndNotKept) {
  QuantizeJob job = job_of(64);
  job.gate_mode = GateMode::distance;
  const auto found = run_job(job);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->divergence.windows, 2);
  EXPECT_GT(found->divergence.kl_mean.value, 0);
  EXPECT_TRUE(said_.starts_with("distance    KL ")) << said_;
  EXPECT_EQ(std::ranges::count(said_, '\n'), 1) << said_;
  EXPECT_FALSE(provenance().contains("gate"));
  expect_tidy();
}

// The unquantized file must have a KL of 0 from itself.
TEST_F(Job, AFileOfTheCheckpointsOwnNumbersIsAtNoDistance) {
  QuantizeJob job = job_of(64);
  job.checkpoint.type = "f32";
  job.gate_mode = GateMode::distance;
  EXPECT_EQ(run_job(job)->divergence.kl_mean.value, 0);
}

TEST_F(Job, SaysWhyItIsNotJudged) {
  for (const GateMode gate_mode : {GateMode::gate, GateMode::distance}) {
    QuantizeJob job = job_of(64);
    job.gate_mode = gate_mode;
    job.checkpoint.max_ram = 1 << 20;
    said_.clear();
    EXPECT_FALSE(run_job(job).has_value());
    EXPECT_TRUE(said("left out: ") && said("of memory are needed, 1.05 MB are there")) << said_;
    EXPECT_EQ(std::ranges::count(said_, '\n'), 1) << said_;
  }
  QuantizeJob asked = job_of(64);
  asked.gate_mode = GateMode::gate_at_a_cost;
  asked.checkpoint.max_ram = 1 << 20;
  EXPECT_TRUE(run_job(asked).has_value());
  expect_tidy();
}

TEST_F(Job, AShortContextIsQuantizedAndNotJudged) {
  for (const GateMode gate_mode : {GateMode::gate, GateMode::gate_at_a_cost, GateMode::distance}) {
    QuantizeJob job = recipe_job(8);
    job.gate_mode = gate_mode;
    said_.clear();
    EXPECT_FALSE(run_job(job).has_value());
    EXPECT_TRUE(said("left out: a context of 8 positions is too short")) << said_;
    EXPECT_TRUE(fs::exists(job.output));
  }
}

TEST_F(Job, ATextTooShortToJudgeByIsNoReasonToFail) {
  QuantizeJob job = job_of(64);
  job.gate_mode = GateMode::distance;
  job.judged_by = {"abc", "three letters"};
  EXPECT_FALSE(run_job(job).has_value());
  EXPECT_TRUE(said("distance    left out: three letters has 3 tokens, too few")) << said_;
}

// A resumed run uses the interrupted run's windows, even if the machine's speed has changed.
TEST_F(Job, AResumedRunKeepsTheWindowsOfTheInterruptedOne) {
  QuantizeJob job = recipe_job(64);
  job.gate_mode = GateMode::none;
  job.fit_windows = false;
  job.checkpoint.calibration.samples = 12;  // not a number that is chosen by speed
  run_job(job);
  const std::string whole = bytes_of(job.output);
  fs::remove(job.output);

  const fs::path block = job.output.string() + ".partial/block-00001.leq";
  job.checkpoint.stop = [&] { return fs::exists(block); };
  EXPECT_THROW(run_job(job), Error);
  EXPECT_FALSE(fs::exists(job.output));
  job.checkpoint.stop = [] { return false; };
  job.fit_windows = true;
  job.checkpoint.calibration.samples = 32;
  run_job(job);
  EXPECT_TRUE(said("resume      2 of 3 blocks are done")) << said_;
  EXPECT_FALSE(said(" s each)")) << said_;
  EXPECT_TRUE(bytes_of(job.output) == whole);
  expect_tidy();
}

// Changing flags by mistake must not discard the work of hours.
TEST_F(Job, ARunOfOtherSettingsKeepsTheWorkUntilItIsToldToRestart) {
  QuantizeJob job = recipe_job(64);
  job.gate_mode = GateMode::none;
  job.fit_windows = false;
  job.checkpoint.calibration.samples = 12;
  const fs::path block = job.output.string() + ".partial/block-00001.leq";
  job.checkpoint.stop = [&] { return fs::exists(block); };
  EXPECT_THROW(run_job(job), Error);
  EXPECT_TRUE(said("kept        what is finished stays in " + block.parent_path().string()))
      << said_;
  job.checkpoint.stop = [] { return false; };
  job.checkpoint.calibration.samples = 13;
  test::expect_error([&] { run_job(job); }, {"other flags"});
  EXPECT_TRUE(fs::exists(block));
  job.checkpoint.resume = false;
  said_.clear();
  run_job(job);
  EXPECT_TRUE(said("restarting  removed the partial results in ")) << said_;
  expect_tidy();
}

TEST_F(Job, SaysNothingOfAFolderThatIsNotThere) {
  QuantizeJob job = recipe_job(64);
  job.fit_windows = false;
  job.checkpoint.calibration.samples = 12;
  job.checkpoint.stop = [] { return true; };
  EXPECT_EQ(test::error_of([&] { run_job(job); }), "interrupted");
  EXPECT_FALSE(said("kept")) << said_;
  EXPECT_FALSE(fs::exists(job.output.string() + ".partial"));
}

// If there is not enough memory for the gate, the file must nevertheless be complete.
TEST_F(Job, NoMemoryForTheGateIsAWarning) {
  const auto throws = {+[] { throw std::bad_alloc(); },
                       +[] { throw Error("no room", ErrorKind::no_memory); }};
  for (const auto& fails : throws) {
    QuantizeJob job = recipe_job(64);
    said_.clear();
    job.progress = [&](std::string_view work, auto, auto, const auto&) {
      if (work == "gate") fails();
    };
    EXPECT_FALSE(run_job(job).has_value());
    EXPECT_TRUE(said("warning     ") &&
                said("model.leq is complete, but its KL divergence was not measured"))
        << said_;
    EXPECT_FALSE(provenance().contains("gate"));
    LeqReader(job.output, {.mode = LoadMode::map}).verify([](auto, auto) {});
    expect_tidy();
  }
}

TEST_F(Job, AnInterruptedGateLeavesTheFile) {
  QuantizeJob job = recipe_job(64);
  job.checkpoint.stop = [&] { return fs::exists(job.output.string() + ".base/base.leq"); };
  EXPECT_EQ(test::error_of([&] { run_job(job); }),
            "interrupted; " + job.output.string() + " is complete, without its gate");
  EXPECT_TRUE(fs::exists(job.output));
  EXPECT_FALSE(provenance().contains("gate"));
  expect_tidy();
}

}  // namespace
}  // namespace leq

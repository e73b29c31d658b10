// From a checkpoint to a file with a measured loss in one call: what is measured, what is skipped
// and why, and how an interrupted run is resumed.
#include "quantize/run/quantize.h"

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

  QuantizeOptions job_of(std::int64_t context) {
    checkpoint_ = checkpoint(context);
    QuantizeOptions job;
    job.threads = 1;
    job.say = [this](const std::string& line) { said_ += line + '\n'; };
    job.gate_text = built_in_gate_text();
    return job;
  }
  QuantizeOptions recipe_job(std::int64_t context) {
    QuantizeOptions job = job_of(context);
    apply_recipe(require_recipe(kDefaultRecipe), import_hf_config(checkpoint_), job);
    job.fit_windows = true;
    job.measure = true;
    return job;
  }
  std::optional<GateResult> run_job(const QuantizeOptions& job) {
    return quantize_checkpoint(checkpoint_, output_, job).gate;
  }
  Json provenance() const {
    return LeqReader(output_, {.mode = LoadMode::map}).metadata().at("provenance");
  }
  bool said(const std::string& part) const { return said_.find(part) != std::string::npos; }
  // Only the checkpoint and the model may remain.
  void expect_tidy() const {
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 2);
  }

  test::TemporaryFolder folder_;
  fs::path checkpoint_, output_ = folder_.path() / "model.leq";
  std::string said_;
};

TEST_F(Job, TheDefaultRecipeFitsItsTextAndKeepsItsGate) {
  const auto gate = run_job(recipe_job(64));
  ASSERT_TRUE(gate.has_value());
  EXPECT_TRUE(said("calibration 8 windows of 64 tokens, then folds and codes: ")) << said_;
  EXPECT_TRUE(said("limit of q8: 0.007 nats, ")) << said_;
  EXPECT_EQ(provenance().at("method"), "smoothquant");
  EXPECT_EQ(provenance().at("calibration").at(0).at("samples"), 8);
  EXPECT_EQ(provenance().at("gate").at("kl_mean"), gate->divergence.kl_mean.value);
  EXPECT_EQ(gate->divergence.windows, 16);
  expect_tidy();
}

TEST_F(Job, ATimeSaysHowManyWindowsAreRead) {
  for (const auto& [seconds, windows] : {std::pair(1e6, 128), std::pair(1e-6, 2)}) {
    QuantizeOptions job = recipe_job(64);
    job.seconds = seconds;
    job.measure = false;
    said_.clear();
    run_job(job);
    EXPECT_EQ(provenance().at("calibration").at(0).at("samples"), windows) << said_;
    EXPECT_EQ(said("the least that it takes"), windows == 2) << said_;
    // The file must be the same as with that number of windows given explicitly.
    const std::string timed = bytes_of(output_);
    fs::remove(output_);
    job.fit_windows = false;
    job.seconds = std::nullopt;
    job.calibration.samples = windows;
    run_job(job);
    EXPECT_TRUE(bytes_of(output_) == timed);
    fs::remove(output_);
  }
}

TEST_F(Job, AnEmbeddingModelIsCalibratedWithoutAGate) {
  QuantizeOptions job = job_of(64);
  checkpoint_ = fs::path(LEQ_SOURCE_DIR) / "tests/golden/embedding-gemma";
  apply_recipe(require_recipe(kDefaultRecipe), import_hf_config(checkpoint_), job);
  job.fit_windows = job.measure = true;
  EXPECT_FALSE(run_job(job).has_value());
  EXPECT_TRUE(said("gate        left out: the model makes embeddings and no text")) << said_;
  EXPECT_EQ(provenance().at("method"), "smoothquant");
  expect_tidy();
  job.search.emplace();
  const std::string error = test::error_of([&] { run_job(job); });
  EXPECT_NE(error.find("makes embeddings, and a search measures"), error.npos) << error;
}

TEST_F(Job, WithoutARecipeTheGateNamesNoLimit) {
  QuantizeOptions job = job_of(64);
  EXPECT_FALSE(run_job(job).has_value());
  EXPECT_EQ(said_, "");
  job.measure = true;
  const auto found = run_job(job);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->divergence.windows, 16);
  EXPECT_GT(found->divergence.kl_mean.value, 0);
  EXPECT_TRUE(said_.starts_with("gate        KL ")) << said_;
  EXPECT_EQ(std::ranges::count(said_, '\n'), 1) << said_;
  expect_tidy();
}

// The unquantized file must have a KL of 0 from itself.
TEST_F(Job, AFileOfTheCheckpointsOwnNumbersIsAtNoDistance) {
  QuantizeOptions job = job_of(64);
  job.type = "f32";
  job.measure = true;
  EXPECT_EQ(run_job(job)->divergence.kl_mean.value, 0);
}

// The limit is that of calibration; the gate maps its files.
TEST_F(Job, AMemoryLimitDoesNotOmitTheGate) {
  QuantizeOptions job = job_of(64);
  job.measure = true;
  job.max_ram = 1 << 20;
  EXPECT_TRUE(run_job(job).has_value());
  expect_tidy();
}

TEST_F(Job, AShortContextIsQuantizedAndNotJudged) {
  EXPECT_FALSE(run_job(recipe_job(8)).has_value());
  EXPECT_TRUE(said("gate        left out: a context of 8 positions is too short")) << said_;
  EXPECT_TRUE(fs::exists(output_));
}

TEST_F(Job, ATextTooShortToJudgeByIsRefused) {
  QuantizeOptions job = job_of(64);
  job.measure = true;
  job.gate_text = {"abc", "three letters"};
  test::expect_error([&] { run_job(job); }, {"three letters", "3 tokens are too few"});
  EXPECT_FALSE(fs::exists(output_));
}

// A resumed run uses the interrupted run's windows, even if the machine's speed has changed.
TEST_F(Job, AResumedRunKeepsTheWindowsOfTheInterruptedOne) {
  QuantizeOptions job = recipe_job(64);
  job.measure = false;
  job.fit_windows = false;
  job.calibration.samples = 12;  // not a number that is chosen by speed
  run_job(job);
  const std::string whole = bytes_of(output_);
  fs::remove(output_);

  const fs::path block = output_.string() + ".partial/block-00001.leq";
  job.stop = [&] { return fs::exists(block); };
  EXPECT_THROW(run_job(job), Error);
  EXPECT_FALSE(fs::exists(output_));
  job.stop = [] { return false; };
  job.fit_windows = true;
  job.calibration.samples = 32;
  run_job(job);
  EXPECT_TRUE(said("resume      2 of 3 blocks are done")) << said_;
  EXPECT_FALSE(said(" s each)")) << said_;
  EXPECT_TRUE(bytes_of(output_) == whole);
  expect_tidy();
}

// Changing flags by mistake must not discard the work of hours.
TEST_F(Job, ARunOfOtherSettingsKeepsTheWorkUntilItIsToldToRestart) {
  QuantizeOptions job = recipe_job(64);
  job.measure = false;
  job.fit_windows = false;
  job.calibration.samples = 12;
  const fs::path block = output_.string() + ".partial/block-00001.leq";
  job.stop = [&] { return fs::exists(block); };
  EXPECT_THROW(run_job(job), Error);
  EXPECT_TRUE(said("kept        what is finished stays in " + block.parent_path().string()))
      << said_;
  job.stop = [] { return false; };
  job.calibration.samples = 13;
  test::expect_error([&] { run_job(job); }, {"other flags"});
  EXPECT_TRUE(fs::exists(block));
  job.resume = false;
  said_.clear();
  run_job(job);
  EXPECT_TRUE(said("restarting  removed the partial results in ")) << said_;
  expect_tidy();
}

TEST_F(Job, SaysNothingOfAFolderThatIsNotThere) {
  QuantizeOptions job = recipe_job(64);
  job.fit_windows = false;
  job.calibration.samples = 12;
  job.stop = [] { return true; };
  EXPECT_EQ(test::error_of([&] { run_job(job); }), "interrupted");
  EXPECT_FALSE(said("kept")) << said_;
  EXPECT_FALSE(fs::exists(output_.string() + ".partial"));
}

// If there is not enough memory for the gate, the file must nevertheless be complete.
TEST_F(Job, NoMemoryForTheGateIsAWarning) {
  const auto throws = {+[] { throw std::bad_alloc(); },
                       +[] { throw Error("no room", ErrorKind::no_memory); }};
  for (const auto& fails : throws) {
    QuantizeOptions job = recipe_job(64);
    said_.clear();
    job.progress = [&](std::string_view work, auto, auto, const auto&) {
      if (work == "gate") fails();
    };
    EXPECT_FALSE(run_job(job).has_value());
    EXPECT_TRUE(said("warning     ") &&
                said("model.leq is complete, but its KL divergence was not measured"))
        << said_;
    EXPECT_FALSE(provenance().contains("gate"));
    LeqReader(output_, {.mode = LoadMode::map}).verify([](auto, auto) {});
    expect_tidy();
  }
}

TEST_F(Job, AnInterruptedGateLeavesTheFile) {
  QuantizeOptions job = recipe_job(64);
  bool measures = false;
  job.progress = [&](std::string_view work, auto, auto, const auto&) {
    measures |= work == "gate";
    if (!measures) return;
    // The unquantized model has no name, so that it is gone however the run ends.
    EXPECT_TRUE(fs::is_empty(output_.string() + ".base"));
  };
  job.stop = [&] { return measures; };
  EXPECT_EQ(test::error_of([&] { run_job(job); }),
            "interrupted; " + output_.string() + " is complete, without its gate");
  EXPECT_TRUE(fs::exists(output_));
  EXPECT_FALSE(provenance().contains("gate"));
  expect_tidy();
}

// What recipe auto takes at 4 bits must be recipe q4's own file, folds and tables included, and the
// plan that it writes at this size must not lose more.
TEST_F(Job, RecipeAutoStartsFromRecipeQ4) {
  QuantizeOptions job = job_of(64);
  job.calibration.samples = 4;
  job.calibration.length = 64;
  QuantizeOptions four = job;
  apply_recipe(require_recipe("q4"), import_hf_config(checkpoint_), four);
  const fs::path other = folder_.path() / "q4.leq";
  quantize_checkpoint(checkpoint_, other, four);

  apply_recipe(require_recipe("auto"), import_hf_config(checkpoint_), job);
  MixedSearch& search = job.search.emplace().search;
  search.text = built_in_gate_text().text;
  search.target_four = true;
  search.window = 64;
  search.windows = 2;
  search.options.evaluations = 40;
  const auto found = quantize_checkpoint(checkpoint_, output_, job).search;
  ASSERT_TRUE(found.has_value());
  const SearchPoint& start = found->search.uniform[kFourBits];
  EXPECT_LE(found->search.chosen.kl, start.kl);
  EXPECT_LE(found->search.chosen.bytes, start.bytes);

  const LeqReader mixed(output_, {.mode = LoadMode::map}), q4(other, {.mode = LoadMode::map});
  std::uint64_t bytes = 0, of_q4 = 0;
  int alike = 0;
  for (const StoredTensor& tensor : q4.tensors()) {
    const StoredTensor& own = *mixed.find(tensor.name);
    bytes += own.bytes();
    of_q4 += tensor.bytes();
    if (own.view.scheme != tensor.view.scheme) continue;
    ++alike;
    ASSERT_EQ(own.planes.size(), tensor.planes.size()) << tensor.name;
    for (std::size_t i = 0; i < tensor.planes.size(); ++i) {
      EXPECT_EQ(own.planes[i].xxh3, tensor.planes[i].xxh3) << tensor.name;
    }
  }
  EXPECT_LE(bytes, of_q4);
  EXPECT_GT(alike, 10);  // 7 norms, the tables, and some linears
}

}  // namespace
}  // namespace leq

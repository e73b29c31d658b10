// Compares calibration statistics with a naive loop in double, and runs that must be identical.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>

#include "base/error.h"
#include "base/text.h"
#include "convert/hf_import.h"
#include "errors.h"
#include "format/leq_reader.h"
#include "model/weights.h"
#include "quantize/block_statistics.h"
#include "quantize/calibration/calibration.h"
#include "quantize/rewrites/fold.h"
#include "quantize/run/block_run.h"
#include "quantize/run/blocks.h"
#include "quantize/run/quantize.h"
#include "reference/family_golden.h"
#include "reference/naive_transformer.h"
#include "reference/random_checkpoint.h"
#include "runtime/make_backend.h"
#include "temporary_folder.h"

namespace leq {
namespace {

bool norms_keys(const ModelConfig& config) { return config.layers[0].attention()->qk_norm; }

// The tolerance of f32 through two layers, relative to the largest number of its kind.
constexpr double kTolerance = 1e-4;

struct Family {
  std::string name;
  Json config;
  test::RandomCheckpoint::Extras extras;
};

std::vector<Family> families() {
  std::vector<Family> all;
  all.push_back({"llama", test::small_config(), {}});
  all.push_back({"mistral", test::small_config("mistral", "MistralForCausalLM"), {}});
  all.back().config["sliding_window"] = 7;
  all.push_back({"qwen2", test::small_config("qwen2", "Qwen2ForCausalLM"), {.qkv_bias = true}});
  all.push_back({"qwen3", test::small_config("qwen3", "Qwen3ForCausalLM"), {.qk_norm = true}});
  all.back().config["head_dim"] = 32;
  all.push_back({"gpt2",
                 {{"model_type", "gpt2"},
                  {"n_embd", 60},
                  {"n_layer", 2},
                  {"n_head", 3},
                  {"n_positions", 48},
                  {"vocab_size", 131},
                  {"layer_norm_epsilon", 1e-5},
                  {"activation_function", "gelu_new"}},
                 {}});
  return all;
}

std::filesystem::path make_checkpoint(const Family& family, const std::filesystem::path& folder) {
  test::RandomCheckpoint checkpoint(folder);
  if (family.name == "gpt2") {
    checkpoint.add_gpt2(family.config, "");
  } else {
    checkpoint.add_llama(family.config, family.extras);
  }
  return checkpoint.write(family.config);
}

// Returns letters for which the checkpoints' tokenizer has ids.
std::string letters(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::string text;
  while (text.size() < count) text += static_cast<char>('a' + random.below(26));
  return text;
}

QuantizeOptions small_run(const std::string& method, const std::string& type) {
  QuantizeOptions options;
  options.method = method;
  options.type = type;
  options.threads = 1;
  options.calibration = {letters(300, 5), "letters", 6, 32, 9};
  return options;
}

std::string run_bytes(const std::filesystem::path& folder, const std::filesystem::path& output,
                      const QuantizeOptions& options) {
  quantize_checkpoint(folder, output, options);
  std::ifstream file(output, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Sums in double over the input rows of the naive transformer.
struct NaiveSums {
  std::vector<double> absmax, abs_sum, sum, product;  // [K], product [K][K]
  std::int64_t tokens = 0;

  void add(const std::vector<double>& row) {
    const std::size_t k = row.size();
    absmax.resize(k);
    abs_sum.resize(k);
    sum.resize(k);
    product.resize(k * k);
    for (std::size_t i = 0; i < k; ++i) {
      absmax[i] = std::max(absmax[i], std::abs(row[i]));
      abs_sum[i] += std::abs(row[i]);
      sum[i] += row[i];
      for (std::size_t j = 0; j < k; ++j) product[i * k + j] += row[i] * row[j];
    }
    ++tokens;
  }
};

// Returns sums over the calibration windows by input ("layers.0.qkv").
std::map<std::string, NaiveSums> naive_inputs(const ImportedModel& model,
                                              const QuantizeOptions& options) {
  const CalibrationData data =
      calibration_data(options.calibration, Tokenizer(model.tokenizer), model.config.context);
  std::map<std::string, NaiveSums> sums;
  test::NaiveTransformer reference(model);
  reference.on_input = [&](const std::string& input, const std::vector<double>& row) {
    sums[input].add(row);
  };
  for (const auto& window : data.windows) reference.forward(window);
  return sums;
}

template <class Found>
void expect_near(const std::vector<Found>& found, const std::vector<double>& want,
                 const std::string& what) {
  ASSERT_EQ(found.size(), want.size()) << what;
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    worst = std::max(worst, std::abs(want[i] - static_cast<double>(found[i])));
  }
  EXPECT_GT(largest, 0) << what;
  EXPECT_LT(worst, kTolerance * largest) << what;
}

// Returns W mean(x) + b for the keys of layer `layer`, in double.
std::vector<double> mean_keys(const ImportedModel& model, const std::vector<double>& mean,
                              std::int64_t layer) {
  std::vector<double> keys;
  for (const TensorInput& tensor : model.tensors) {
    const bool bias = tensor.name == layer_tensor(layer, "k.bias");
    if (!bias && tensor.name != layer_tensor(layer, "k")) continue;
    const auto columns = static_cast<std::size_t>(bias ? 1 : tensor.shape[1]);
    std::vector<float> weight(static_cast<std::size_t>(tensor.shape[0]) * columns);
    tensor.read(0, tensor.shape[0], weight);
    keys.resize(weight.size() / columns);
    for (std::size_t i = 0; i < weight.size(); ++i) {
      keys[i / columns] += static_cast<double>(weight[i]) * (bias ? 1.0 : mean[i % columns]);
    }
  }
  return keys;
}

TEST(Calibration, FilesHaveTheMeanOfKeysBeforeRope) {
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    const test::TemporaryFolder folder;
    const auto source = make_checkpoint(family, folder.path() / "hf");
    const ImportedModel model = import_hf(source);
    for (const char* method : {"absmax", "gptq"}) {
      QuantizeOptions options = small_run(method, "int8");
      options.measure_keys = std::string(method) == "absmax";  // gptq has statistics anyway
      // Inputs of later layers are computed by layers that were already rounded.
      const std::int64_t layers = options.measure_keys ? model.config.layer_count() : 1;
      const auto output = folder.path() / "model.leq";
      if (norms_keys(model.config) && options.measure_keys) {
        EXPECT_THROW(run_bytes(source, output, options), Error);
        continue;
      }
      run_bytes(source, output, options);
      const std::map<std::string, NaiveSums> naive = naive_inputs(model, options);
      const LeqReader file(output, {.mode = LoadMode::map});
      for (std::int64_t layer = 0; layer < layers; ++layer) {
        const StoredTensor* found = file.find(layer_tensor(layer, kKeyMean));
        ASSERT_EQ(found == nullptr, norms_keys(model.config));
        if (found == nullptr) continue;
        const NaiveSums& inputs = naive.at(layer_tensor(layer, "qkv"));
        std::vector<double> mean = inputs.sum;
        for (double& x : mean) x /= static_cast<double>(inputs.tokens);
        const auto* numbers = reinterpret_cast<const float*>(found->view.codes);
        expect_near(std::vector<float>(numbers, numbers + found->view.columns),
                    mean_keys(model, mean, layer), found->name);
      }
    }
  }
}

TEST(Calibration, StatisticsEqualANaiveLoopInAllFamilies) {
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    const test::TemporaryFolder folder;
    const auto source = make_checkpoint(family, folder.path() / "hf");
    const QuantizeOptions options = small_run("gptq", "int4-g32");
    const ImportedModel model = import_hf(source);
    const std::map<std::string, NaiveSums> naive = naive_inputs(model, options);
    const auto statistics = test::block_statistics(model, options);
    for (std::int64_t layer = 0; layer < model.config.layer_count(); ++layer) {
      const std::vector<LinearSite> sites = linear_sites(model.config, layer);
      for (std::size_t site = 0; site < sites.size(); ++site) {
        const std::string name = layer_tensor(layer, sites[site].name);
        const InputStatistics& found = statistics[static_cast<std::size_t>(layer)].at(site);
        const NaiveSums& want = naive.at(name);
        EXPECT_EQ(found.tokens, want.tokens);
        expect_near(found.absmax, want.absmax, name + " absmax");
        expect_near(found.abs_sum, want.abs_sum, name + " abs_sum");
        expect_near(found.sum, want.sum, name + " sum");
        expect_near(found.hessian, want.product, name + " X^T X");
        for (std::int64_t k = 0; k < found.columns; ++k) {
          const auto i = static_cast<std::size_t>(k);
          const double diagonal = want.product[i * want.sum.size() + i];
          EXPECT_NEAR(found.square_sum[i], diagonal, 1e-3 * diagonal + 1e-9) << name;
        }
      }
    }
  }
}

TEST(Calibration, AnyNumberOfThreadsGivesTheSameFile) {
  const Family family = families()[0];
  const test::TemporaryFolder folder;
  const auto source = make_checkpoint(family, folder.path() / "hf");
  for (const auto& [method, type] : {std::pair{"gptq", "int4-g32"},
                                     {"gptq+", "int3-g64"},
                                     {"smoothquant", "int8"},
                                     {"awq", "uint4-g64"}}) {
    QuantizeOptions options = small_run(method, type);
    const std::string one = run_bytes(source, folder.path() / "1.leq", options);
    for (const int threads : {2, 4}) {
      options.threads = threads;
      EXPECT_EQ(run_bytes(source, folder.path() / "n.leq", options), one) << method << threads;
    }
  }
}

TEST(Calibration, AnInterruptedRunResumesToTheSameFile) {
  const test::TemporaryFolder folder;
  const auto source = make_checkpoint(families()[4], folder.path() / "hf");
  const auto output = folder.path() / "model.leq";
  for (const char* method : {"gptq", "smoothquant"}) {
    QuantizeOptions options = small_run(method, "int8");
    const std::string whole = run_bytes(source, output, options);
    std::filesystem::remove(output);
    QuantizeOptions stopped = options;
    const auto one_block = [&] {
      return std::filesystem::exists(output.string() + ".partial/block-00000.leq");
    };
    stopped.stop = one_block;
    EXPECT_THROW(run_bytes(source, output, stopped), Error) << method;
    EXPECT_TRUE(one_block());
    EXPECT_FALSE(std::filesystem::exists(output));
    QuantizeOptions other = options;
    other.calibration.seed = 10;
    EXPECT_THROW(run_bytes(source, output, other), Error) << method;
    bool resumed = false;
    options.say = [&](const std::string& line) { resumed |= line.starts_with("resume"); };
    EXPECT_EQ(run_bytes(source, output, options), whole) << method;
    EXPECT_TRUE(resumed);
    EXPECT_FALSE(std::filesystem::exists(output.string() + ".partial"));
  }
}

// A change of anything that its bytes depend on keeps a run from being resumed.
TEST(Calibration, AnInterruptedRunIsResumedOnlyAsItBegan) {
  const test::TemporaryFolder folder;
  const auto source = make_checkpoint(families()[0], folder.path() / "hf");
  const auto output = folder.path() / "model.leq";
  QuantizeOptions options = small_run("absmax", "int8");
  options.act = ActChoice::online;
  options.fold = smoothing_fold(0.5);
  const auto negate = [](ImportedModel& model, std::string_view name) {
    const auto found = std::ranges::find(model.tensors, name, &TensorInput::name);
    ASSERT_NE(found, model.tensors.end()) << name;
    found->read = [read = found->read](auto first, auto count, std::span<float> out) {
      read(first, count, out);
      for (float& value : out) value = -value;
    };
  };
  QuantizeOptions stopped = options;
  stopped.stop = [&] {
    return std::filesystem::exists(output.string() + ".partial/block-00000.leq");
  };
  EXPECT_THROW(quantize_checkpoint(source, output, stopped), Error);
  using Change = std::function<void(ImportedModel&, QuantizeOptions&)>;
  const std::vector<std::pair<const char*, Change>> changes = {
      {"gate", [&](auto& model, auto&) { negate(model, "layers.1.gate"); }},
      {"norm", [&](auto& model, auto&) { negate(model, "layers.0.mlp_norm"); }},
      {"embedding", [&](auto& model, auto&) { negate(model, "token_embedding"); }},
      {"tokenizer", [](auto& model, auto&) { model.tokenizer.ignore_merges ^= true; }},
      {"act", [](auto&, auto& own) { own.act = ActChoice::streaming; }},
      {"alpha", [](auto&, auto& own) { own.fold = smoothing_fold(0.5004); }},
      {"method", [](auto&, auto& own) { own.method = "smoothquant"; }},
  };
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    ImportedModel model = import_hf(source);
    QuantizeOptions own = options;
    change(model, own);
    test::expect_error([&] { quantize_imported(model, output, own); },
                       {"another model, text or other flags"});
  }
  bool resumed = false;
  options.say = [&](const std::string& line) { resumed |= line.starts_with("resume"); };
  quantize_checkpoint(source, output, options);
  EXPECT_TRUE(resumed);
}

// Returns the input formats of the linears of a file, in order.
std::vector<ActKind> linear_acts(const std::filesystem::path& path) {
  const LeqReader reader(path, {.mode = LoadMode::map});
  std::vector<ActKind> acts;
  for (const StoredTensor& tensor : reader.tensors()) {
    if (tensor.name.starts_with("layers.") && tensor.shape.size() == 2) {
      acts.push_back(tensor.view.act);
    }
  }
  return acts;
}

TEST(Calibration, LinearsThatAFixedScaleDoesNotSuitTakeOneForEachToken) {
  const test::TemporaryFolder folder;
  const auto source = make_checkpoint(families()[0], folder.path() / "hf");
  const auto output = folder.path() / "model.leq";
  QuantizeOptions options = small_run("smoothquant", "int8");
  options.act = ActChoice::tensor;
  std::string said;
  options.say = [&](const std::string& line) { said = line.starts_with("act ") ? line : said; };
  run_bytes(source, output, options);
  EXPECT_EQ(linear_acts(output), std::vector<ActKind>(14, ActKind::tensor));
  EXPECT_EQ(said, "");
  options.max_static_error = 1e9;  // never exceeded
  run_bytes(source, output, options);
  EXPECT_EQ(linear_acts(output), std::vector<ActKind>(14, ActKind::tensor));
  EXPECT_NE(said.find(" 0 of 14 linears"), std::string::npos) << said;
  options.max_static_error = 1e-9;  // always exceeded
  const std::string whole = run_bytes(source, output, options);
  EXPECT_EQ(linear_acts(output), std::vector<ActKind>(14, ActKind::row));
  EXPECT_NE(said.find(" 14 of 14 linears"), std::string::npos) << said;
  // A resumed run also counts the blocks that were finished before.
  std::filesystem::remove(output);
  QuantizeOptions stopped = options;
  stopped.stop = [&] {
    return std::filesystem::exists(output.string() + ".partial/block-00000.leq");
  };
  EXPECT_THROW(run_bytes(source, output, stopped), Error);
  said.clear();
  EXPECT_EQ(run_bytes(source, output, options), whole);
  EXPECT_NE(said.find(" 14 of 14 linears"), std::string::npos) << said;
}

TEST(Calibration, AFileSaysHowItsScalesMove) {
  const test::TemporaryFolder folder;
  const auto source = make_checkpoint(families()[0], folder.path() / "hf");
  const auto output = folder.path() / "model.leq";
  for (const std::string_view method : {"absmax", "smoothquant"}) {
    for (const ActChoice act : {ActChoice::online, ActChoice::streaming}) {
      QuantizeOptions options = small_run(std::string(method), "int8");
      options.act = act;
      run_bytes(source, output, options);
      EXPECT_EQ(linear_acts(output), std::vector<ActKind>(14, ActKind::online));
      const OnlineMode want = act == ActChoice::online ? OnlineMode::safe : OnlineMode::streaming;
      const LeqReader reader(output, {.mode = LoadMode::map});
      EXPECT_EQ(reader.find("layers.0.q")->online_mode, want) << method;
      EXPECT_EQ(reader.find("layers.1.down")->online_mode, want) << method;
    }
  }
}

TEST(Calibration, KeepsToTheMemoryAllowed) {
  const test::TemporaryFolder folder;
  const auto source = make_checkpoint(families()[0], folder.path() / "hf");
  QuantizeOptions options = small_run("gptq", "int4-g32");
  options.calibration.samples = 200;
  const std::string free = run_bytes(source, folder.path() / "1.leq", options);
  options.max_ram = 1 << 20;
  EXPECT_THROW(run_bytes(source, folder.path() / "2.leq", options), Error);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "2.leq.partial"));

  // Memory is slightly too small, so hidden states are written to disk; the file must be the same.
  const ImportedModel model = import_hf(source);
  const auto layout = make_layout({"cpu", 1});
  const CalibrationShape shape = {.windows = 200,
                                  .length = 32,
                                  .together = false,
                                  .hessian_of_one = true,
                                  .sample_tokens = 512};
  options.max_ram = plan_calibration(model.config, shape, *layout, 0).total() - 1;
  bool on_disk = false;
  options.say = [&](const std::string& line) {
    on_disk |= line.find("on disk") != std::string::npos;
  };
  EXPECT_EQ(run_bytes(source, folder.path() / "3.leq", options), free);
  EXPECT_TRUE(on_disk);
}

TEST(Calibration, A7BShapeFitsIn8GB) {
  ModelConfig config;
  config.layers.assign(32, {AttentionConfig(), DenseMlpConfig{.hidden = 11008}});
  config.width = 4096;
  config.heads = config.kv_heads = 32;
  config.head_dim = 128;
  config.vocab = 32000;
  config.context = 4096;
  const auto layout = make_layout({"cpu", 2});
  const std::uint64_t limit = 8ull << 30;
  const CalibrationMemory gptq = plan_calibration(config,
                                                  {.windows = 128,
                                                   .length = 2048,
                                                   .together = false,
                                                   .hessian_of_one = true,
                                                   .sample_tokens = 512},
                                                  *layout, limit);
  EXPECT_LE(gptq.total(), limit);
  EXPECT_EQ(gptq.hidden + gptq.hidden_on_disk, 128ull * 2048 * 4096 * 4);
  EXPECT_NO_THROW(plan_calibration(
      config, {.windows = 128, .length = 512, .hessian_together = true, .sample_tokens = 512},
      *layout, limit));
}

TEST(CalibrationData, ShortTextsGiveSmallerWindows) {
  const test::TemporaryFolder folder;
  const ImportedModel model = import_hf(make_checkpoint(families()[0], folder.path() / "hf"));
  const Tokenizer tokenizer(model.tokenizer);
  const CalibrationData whole = calibration_data({letters(300, 1), "l", 5, 32, 1}, tokenizer, 64);
  EXPECT_EQ(std::ssize(whole.windows), 5);
  EXPECT_TRUE(whole.note.empty());
  for (const auto& window : whole.windows) EXPECT_EQ(std::ssize(window), 32);
  const CalibrationData again = calibration_data({letters(300, 1), "l", 5, 32, 1}, tokenizer, 64);
  EXPECT_EQ(whole.windows, again.windows);
  const CalibrationData other = calibration_data({letters(300, 1), "l", 5, 32, 2}, tokenizer, 64);
  EXPECT_NE(whole.windows, other.windows);
  const CalibrationData cut = calibration_data({letters(20, 1), "l", 5, 32, 1}, tokenizer, 64);
  EXPECT_EQ(cut.length, 20);
  EXPECT_EQ(std::ssize(cut.windows), 1);
  EXPECT_NE(
      cut.note.find("windows of 20 tokens instead of 32, and 1 different windows instead of 5"),
      std::string::npos)
      << cut.note;
  EXPECT_THROW(calibration_data({letters(10, 1), "l", 5, 32, 1}, tokenizer, 64), Error);
}

// Sums of squares of the inputs of each site of each layer, in a forward pass of the whole model.
class SquaresOfInputs final : public Observer {
 public:
  explicit SquaresOfInputs(Backend& backend) : backend_(backend) {}

  bool see(const LayerLinear& linear, const Rows& input, std::int64_t tokens) override {
    std::vector<float> values(static_cast<std::size_t>(tokens * input.width));
    backend_.download(input, tokens, values);
    const auto layer = parse_int(split(linear.name, ".")[1]).value();
    for (const float x : values) squares[{layer, linear.site}] += double{x} * x;
    return true;
  }
  std::map<std::pair<std::int64_t, std::size_t>, double> squares;

 private:
  Backend& backend_;
};

// Layers with scaled embeddings, with inputs of their own, or that read the keys of others.
TEST(Calibration, BlocksReadWhatLayersOfTheModelRead) {
  for (const char* name : {"gemma-3", "gemma-4", "gemma-4-moe", "gemma-4-shared", "gpt-oss",
                           "granite", "lfm2", "muse-glimmer", "phi-3"}) {
    SCOPED_TRACE(name);
    const ImportedModel imported = import_hf(test::family_folder(name));
    CalibrationData data;
    data.length = 24;
    for (Token first : {3, 50}) {
      data.windows.emplace_back();
      for (Token i = 0; i < 24; ++i) data.windows.back().push_back((first + i * i * 5 + i) % 94);
    }
    const auto blocks = test::block_statistics(imported, data, 1);
    const test::TemporaryFolder scratch;
    const Model model = test::f32_model(test::family_folder(name), scratch);
    const auto backend = make_backend({.device = "cpu", .threads = 1});
    RunLimits limits;
    limits.context = limits.batch_tokens = limits.output_tokens = data.length;
    limits.key_type = limits.value_type = KvType::f32;
    Session session(model, *backend, resolve_limits(limits, model.config()));
    SquaresOfInputs whole(*backend);
    session.transformer().observe(&whole);
    for (const auto& window : data.windows) {
      Batch batch;
      batch.add(0, window.data(), data.length, Batch::Want::last);
      session.transformer().forward(batch, session.state());
      session.state().drop(0);
    }
    std::size_t sites = 0;
    for (std::size_t layer = 0; layer < blocks.size(); ++layer) {
      for (const auto& [site, statistics] : blocks[layer]) {
        double sum = 0;
        for (const double x : statistics.square_sum) sum += x;
        const double want = whole.squares.at({static_cast<std::int64_t>(layer), site});
        EXPECT_NEAR(sum, want, 1e-5 * want) << "layer " << layer << " site " << site;
        ++sites;
      }
    }
    EXPECT_EQ(sites, whole.squares.size());
  }
}

}  // namespace
}  // namespace leq

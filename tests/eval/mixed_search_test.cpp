// Mixed models assembled from files with one type each: they must compute the same as those files,
// be written completely, and match the search's report.
#include "eval/mixed_search.h"
#include "model/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "errors.h"
#include "eval/divergence.h"
#include "models_fixture.h"
#include "quantize/run/quantize.h"
#include "reference/random_checkpoint.h"
#include "runtime/make_backend.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq {
namespace {

// Types that stand for 2, 3, 4 and 8 bits, with increasing sizes and decreasing errors.
const std::array<std::string, kChoices> kTypes = {"int4-g128", "int4-g64", "int4-g32", "int8"};

std::array<std::filesystem::path, kChoices> candidates(const std::filesystem::path& folder) {
  std::array<std::filesystem::path, kChoices> paths;
  for (std::size_t c = 0; c < kChoices; ++c) paths[c] = test::quantized(folder, kTypes[c]);
  return paths;
}

class MixedModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto found = test::shared_path("models/storyteller");
    if (!found) GTEST_SKIP() << "needs ../shared (or LEQ_SHARED)";
    folder_ = *found;
    text_ = read_file(folder_ / "heldout.txt", 1u << 24);
    backend_ = make_backend({.device = "cpu", .threads = 2});
  }

  // Perplexity on two short windows; equal perplexities imply equal logits.
  double ppl(const Model& model, Weights weights) const {
    ProtocolSettings settings;
    settings.join = Join::none;
    settings.window = settings.stride = 64;
    settings.chunks = 2;
    const auto tokens = encode_text(model.tokenizer(), text_);
    const auto windows = plan_windows(settings, std::ssize(tokens));
    RunLimits limits;
    limits.context = 64;
    limits.output_tokens = kOutputRows;
    Session session(model.config(), std::move(weights), 0, *backend_,
                    resolve_limits(limits, model.config()));
    ThreadPool pool(2);
    return measure_perplexity(session, pool, {.tokens = tokens, .windows = windows}).ppl;
  }
  double ppl(const std::filesystem::path& path) const {
    const Model model(path, {});
    return ppl(model, bind_weights(model.file(), model.config(), backend_->memory()));
  }

  MixedSearch request() const {
    MixedSearch request;
    request.candidates = candidates(folder_);
    request.base = test::quantized(folder_, "f32");
    request.text = text_;
    request.window = 64;
    request.windows = 2;
    request.threads = 2;
    request.options.evaluations = 14;
    return request;
  }

  // Returns the KL of a resulting file with such a cache from the f32 model with an f32 cache, on
  // the search's windows, measured side by side without a base file.
  double kl_of(const Model& found, const MixedSearch& search, KvType keys, KvType values) const {
    const Model base(search.base, {});
    ProtocolSettings settings;
    settings.window = settings.stride = search.window;
    settings.chunks = search.windows;
    const auto tokens = encode_text(found.tokenizer(), text_);
    const auto windows = plan_windows(settings, std::ssize(tokens));
    RunLimits limits;
    limits.context = search.window;
    limits.output_tokens = kOutputRows;
    limits.key_type = limits.value_type = KvType::f32;
    Session first(base, *backend_, resolve_limits(limits, found.config()));
    limits.key_type = keys;
    limits.value_type = values;
    Session second(found, *backend_, resolve_limits(limits, found.config()));
    ThreadPool pool(2);
    return measure_divergence(first, second, pool, {.tokens = tokens, .windows = windows})
        .summarize(Protocol::hf)
        .kl_mean.value;
  }

  std::filesystem::path folder_;
  std::string text_;
  std::unique_ptr<Backend> backend_;
  test::TemporaryFolder temporary_;
};

TEST_F(MixedModelTest, UniformAssignmentsComputeWhatTheirFilesCompute) {
  const MixedModel mixed(candidates(folder_));
  ASSERT_EQ(mixed.units().size(), 6u * 4);
  for (std::size_t c = 0; c < kChoices; ++c) {
    const Assignment all(mixed.units().size(), static_cast<std::uint8_t>(c));
    const Model model(candidates(folder_)[c], {});
    std::uint64_t bytes = 0;
    for (const StoredTensor& tensor : model.file().tensors()) bytes += tensor.bytes();
    EXPECT_EQ(mixed.bytes(all), bytes);
    EXPECT_EQ(ppl(mixed.model(), mixed.bind(all, *backend_)), ppl(candidates(folder_)[c]))
        << kTypes[c];
  }
  std::int64_t params = 0;
  for (const SearchUnit& unit : mixed.units()) params += unit.params;
  // There are 6 layers; q, o: 256 x 256; k, v: 128 x 256; gate, up, down: 256 x 704.
  EXPECT_EQ(params, 6 * (3 * 256 * 256 + 3 * 256 * 704));
}

TEST_F(MixedModelTest, AWrittenFileIsWhole) {
  const MixedModel mixed(candidates(folder_));
  Assignment assignment(mixed.units().size());
  for (std::size_t l = 0; l < assignment.size(); ++l) {
    assignment[l] = static_cast<std::uint8_t>((l * 7 + l / 4) % 4);
  }
  const auto path = temporary_.path() / "mixed.leq";
  const std::uint64_t bytes =
      mixed.write(path, assignment, {{"search", "by hand"}}, Json::object());
  EXPECT_EQ(bytes, std::filesystem::file_size(path));
  const Model model(path, {});
  model.file().verify([](auto, auto) {});
  EXPECT_EQ(ppl(path), ppl(mixed.model(), mixed.bind(assignment, *backend_)));
  EXPECT_EQ(model.type(), "mixed");
  EXPECT_EQ(model.file().metadata().at("provenance").at("search"), "by hand");
  EXPECT_EQ(model.tokenizer().size(), mixed.model().tokenizer().size());
  std::uint64_t stored = 0;
  for (const StoredTensor& tensor : model.file().tensors()) stored += tensor.bytes();
  EXPECT_EQ(stored, mixed.bytes(assignment));
  for (std::size_t l = 0; l < assignment.size(); ++l) {
    const std::string name = mixed.units()[l].name;
    const std::string tensor = name.ends_with("qkv")       ? name.substr(0, name.size() - 3) + "k"
                               : name.ends_with("gate_up") ? name.substr(0, name.size() - 7) + "up"
                                                           : name;
    EXPECT_EQ(scheme_name(model.file().find(tensor)->view.scheme), kTypes[assignment[l]]) << name;
  }
}

TEST_F(MixedModelTest, CandidatesOfOtherFoldsAreRefused) {
  const auto outliers = test::shared_path("models/storyteller-outliers");
  if (!outliers) GTEST_SKIP() << "needs ../shared/models/storyteller-outliers";
  auto paths = candidates(folder_);
  paths[1] = candidates(*outliers)[1];
  test::expect_error([&] { const MixedModel mixed(paths); }, {"norm"});
}

Json small_llama() {
  return test::small_config_with(
      {{"hidden_size", 64}, {"num_attention_heads", 4}, {"intermediate_size", 160}});
}

// Creates a random model whose inputs of o or down are divided by `scale` in the preceding linear.
std::filesystem::path with_fold(const std::filesystem::path& folder, const std::string& site,
                                float scale, const std::string& type) {
  const auto checkpoint = folder / "checkpoint";
  if (!std::filesystem::exists(checkpoint)) {
    test::RandomCheckpoint random(checkpoint);
    const Json config = small_llama();
    random.add_llama(config, {});
    random.write(config);
  }
  QuantizeOptions options;
  options.type = type;
  options.calibration = {"abcdefghijklmnopqrstuvwxyz abcdefghij", "letters", 1, 16, 0};
  options.fold =
      FoldMethod{"by hand", false, [&](const FoldInput& input) {
                   FoldChoice choice;
                   if (input.site.name != site) return choice;
                   choice.scales.assign(static_cast<std::size_t>(input.site.scales), scale);
                   return choice;
                 }};
  auto path = folder / (site + type + std::to_string(scale) + ".leq");
  quantize_checkpoint(checkpoint, path, options);
  return path;
}

TEST(MixedModel, OtherScalesBetweenUnitsAreRefused) {
  const test::TemporaryFolder folder;
  for (const std::string site : {"o", "down"}) {
    std::array<std::filesystem::path, kChoices> paths;
    for (std::size_t c = 0; c < kChoices; ++c) {
      paths[c] = with_fold(folder.path(), site, 2.0f, kTypes[c]);
    }
    EXPECT_NO_THROW(MixedModel{paths});
    paths[2] = with_fold(folder.path(), site, 3.0f, kTypes[2]);
    test::expect_error([&] { const MixedModel mixed(paths); },
                       {"other scales are folded in front of layers."});
  }
}

TEST_F(MixedModelTest, ProxiesFallWithTheBits) {
  const MixedModel mixed(candidates(folder_));
  for (const SearchUnit& unit : mixed.units()) {
    EXPECT_GT(unit.proxy[0], unit.proxy[1]) << unit.name;
    EXPECT_GT(unit.proxy[1], unit.proxy[2]) << unit.name;
    EXPECT_GT(unit.proxy[2], unit.proxy[3]) << unit.name;
  }
}

TEST_F(MixedModelTest, SearchWritesTheModelThatItMeasured) {
  MixedSearch search = request();
  search.target_bpw = 4.5;
  search.options.log = temporary_.path() / "search.json";
  const auto path = temporary_.path() / "mixed.leq";
  const MixedSearchResult result = search_mixed_model(search, path);
  EXPECT_EQ(temporary_.names(), (std::vector<std::string>{"mixed.leq", "search.json"}));
  EXPECT_LE(result.search.evaluations, 14);
  EXPECT_LE(static_cast<double>(result.search.chosen.bytes) * 8,
            4.5 * 6 * (3 * 256 * 256 + 3 * 256 * 704));
  const Model model(path, {});
  const Json& about = model.file().metadata().at("provenance").at("search");
  EXPECT_EQ(about.at("chosen").at("bits").get<std::string>(),
            bits_text(result.search.chosen.assignment));
  EXPECT_EQ(about.at("uniform").size(), 4u);

  // The KL in the report must be that of the file.
  EXPECT_NEAR(kl_of(model, search, KvType::f32, KvType::f32), result.search.chosen.kl, 1e-6);

  const std::string report = search_report(result);
  for (const auto* part : {"layers.5.down", "8 bits", "14 measurements"}) {
    EXPECT_NE(report.find(part), std::string::npos) << part << " in\n" << report;
  }

  // With the log of the first run, a second run writes the same file without any measurement.
  const std::string bytes = read_file(path, 1u << 28);
  search_mixed_model(search, path);
  EXPECT_EQ(read_file(path, 1u << 28), bytes);

  search.windows = 1;
  EXPECT_THROW(search_mixed_model(search, path), Error) << "the log is of another measurement";
  search.options.log.clear();
  search.target_size = 1000;
  EXPECT_THROW(search_mixed_model(search, path), Error) << "two targets";
  search.target_bpw = 0;
  EXPECT_THROW(search_mixed_model(search, path), Error) << "nothing fits";
}

TEST_F(MixedModelTest, WeightsAndCacheAreChosenTogether) {
  MixedSearch search = request();
  search.window = 256;
  FitRequest fit;
  fit.limits.context = 1024;
  fit.limits.output_tokens = 17;
  const MixedModel mixed(search.candidates);
  fit.limits = resolve_limits(fit.limits, mixed.model().config());
  const auto planned = [&](const Model& model, KvType keys, KvType values) {
    RunLimits limits = fit.limits;
    limits.key_type = keys;
    limits.value_type = values;
    return MemoryPlanner(model, backend_->layout()).plan(limits).total();
  };
  // 8 bits per weight fit with an int8 cache, but not with an f16 cache.
  const Model eight(search.candidates[3], {});
  fit.bytes = planned(eight, KvType::int8, KvType::int8) + (500u << 10);
  ASSERT_LT(fit.bytes, planned(eight, KvType::f16, KvType::f16));
  search.fit = fit;
  const auto path = temporary_.path() / "fit.leq";
  const MixedSearchResult result = search_mixed_model(search, path);
  ASSERT_TRUE(result.fit.has_value());
  const std::vector<FitChoice>& choices = result.fit->choices;
  ASSERT_GE(choices.size(), 2u) << "with copies, coarser caches are no smaller so soon";
  const FitChoice& chosen = choices[result.fit->chosen];
  for (std::size_t i = 0; i < choices.size(); ++i) {
    EXPECT_LE(choices[i].plan.total(), fit.bytes);
    EXPECT_LE(chosen.kl, choices[i].kl);
    if (i > 0) {
      EXPECT_LE(choices[i].plan.kv_bytes, choices[i - 1].plan.kv_bytes);
      EXPECT_GE(choices[i].bits_per_weight, choices[i - 1].bits_per_weight - 0.5);
    }
  }
  EXPECT_EQ(chosen.key_type, KvType::int8) << "it loses less than half of the bits of weights";

  const Model model(path, {});
  ASSERT_TRUE(model.kv_evidence().has_value());
  EXPECT_EQ(*model.kv_evidence(), result.fit->evidence());
  EXPECT_LE(planned(model, chosen.key_type, chosen.value_type), fit.bytes);
  EXPECT_EQ(model.file().metadata().at("provenance").at("fit").at("choices").size(),
            choices.size());

  // The reported KL is that of the file with the cache types that the file names.
  EXPECT_NEAR(kl_of(model, search, chosen.key_type, chosen.value_type), chosen.kl, 1e-6);

  const std::string report = search_report(result);
  for (const auto* part : {"within ", "a context of 1,024", "f16 / f16", "chosen", "+0."}) {
    EXPECT_NE(report.find(part), std::string::npos) << part << " in\n" << report;
  }
  search.fit->max_kl = chosen.kl / 2;
  EXPECT_THROW(search_mixed_model(search, path), Error) << "nothing is so near";
  search.fit->max_kl = 0;
  search.fit->bytes = 2u << 20;
  EXPECT_THROW(search_mixed_model(search, path), Error) << "nothing fits";
}

}  // namespace
}  // namespace leq

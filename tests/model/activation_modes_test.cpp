// Whole models with act tensor, act online and inv_smooth: folds that keep all bits; instruction
// sets, threads and chunks; saved states of online scales, and their refusal of several sequences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "backend/cpu/cpu_backend.h"
#include "convert/hf_import.h"
#include "errors.h"
#include "format/leq_writer.h"
#include "model/session.h"
#include "reference/random_checkpoint.h"
#include "same_bits.h"
#include "temporary_folder.h"

namespace leq {
namespace {

using test::error_of;
using test::same_bits;

constexpr int kIds = 40;
constexpr std::int64_t kVocab = 131;

struct Numbers {
  Shape shape;
  TensorRole role;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Numbers>;

struct Source {
  ModelConfig config;
  Tensors tensors;
};

Source read_source(const std::filesystem::path& folder) {
  ImportedModel model = import_hf(folder);
  Source source;
  source.config = model.config;
  for (const TensorInput& tensor : model.tensors) {
    const bool matrix = tensor.shape.size() == 2;
    Numbers& numbers = source.tensors[tensor.name];
    numbers = {tensor.shape, tensor.role, {}};
    numbers.values.resize(
        static_cast<std::size_t>(matrix ? tensor.shape[0] * tensor.shape[1] : tensor.shape[0]));
    tensor.read(0, tensor.shape[0], numbers.values);
  }
  return source;
}

// Heads of 24 and a hidden size of 200 do not fill whole groups of 128 columns.
Source llama_source() {
  const test::TemporaryFolder folder;
  test::RandomCheckpoint checkpoint(folder.path() / "hf");
  const Json config = test::small_config_with({{"head_dim", 24}, {"vocab_size", kVocab}});
  checkpoint.add_llama(config, {});
  return read_source(checkpoint.write(config));
}

Source gpt2_source() {
  const test::TemporaryFolder folder;
  test::RandomCheckpoint checkpoint(folder.path() / "hf");
  const Json config = {{"model_type", "gpt2"},
                       {"n_embd", 60},
                       {"n_layer", 2},
                       {"n_head", 3},
                       {"n_positions", 64},
                       {"vocab_size", kVocab},
                       {"layer_norm_epsilon", 1e-5},
                       {"activation_function", "gelu_new"}};
  checkpoint.add_gpt2(config, "");
  return read_source(checkpoint.write(config));
}

struct Storage {
  const char* scheme = "f32";
  ActKind act = ActKind::none;
  OnlineMode mode = OnlineMode::safe;
  float act_scale = 0.03f;
};

// Writes a file with these tensors: linears and the head with type `storage`, all others in f32.
std::filesystem::path write_file(const test::TemporaryFolder& folder, const char* name,
                                 const Source& source, const Storage& storage) {
  const auto path = folder.path() / name;
  LeqWriter writer(path);
  for (const auto& [tensor, numbers] : source.tensors) {
    const bool linear = numbers.role != TensorRole::vector &&
                        numbers.role != TensorRole::token_embedding &&
                        numbers.role != TensorRole::position_embedding;
    const std::int64_t rows = numbers.shape.size() == 2 ? numbers.shape[0] : 1;
    const PackedWeight packed = pack_weight(numbers.values, rows, numbers.shape.back(),
                                            linear ? *parse_scheme(storage.scheme) : QuantScheme{},
                                            linear ? storage.act : ActKind::none, tensor);
    TensorFacts facts;
    if (packed.act == ActKind::tensor) facts.act_scale = storage.act_scale;
    facts.online_mode = storage.mode;
    writer.add_tensor(tensor, numbers.shape, packed, facts);
  }
  writer.finish({{"config", config_to_json(source.config)},
                 {"generation", Json::object()},
                 {"provenance", {{"type", "f32"}}}});
  return path;
}

RunLimits limits_of(const Model& model, int sequences = 1) {
  RunLimits limits;
  limits.context = 64 * sequences;
  limits.batch_tokens = limits.output_tokens = 64;
  limits.sequences = sequences;
  limits.key_type = limits.value_type = KvType::f32;
  return resolve_limits(limits, model.config());
}

std::vector<Token> some_ids() {
  Random random(3);
  std::vector<Token> ids;
  for (int i = 0; i < kIds; ++i) ids.push_back(static_cast<Token>(random.below(kVocab)));
  return ids;
}

// Feeds ids [first, last) as one batch and returns their logits.
std::vector<float> feed(Session& session, int first, int last) {
  const auto ids = some_ids();
  Batch batch;
  batch.add(0, ids.data() + first, last - first, Batch::Want::all);
  std::vector<float> logits(static_cast<std::size_t>((last - first) * kVocab));
  const Rows& rows = session.transformer().forward(batch, session.cache());
  session.transformer().backend().download(rows, last - first, logits);
  return logits;
}

std::vector<float> logits_of(const Model& model, Isa isa, int threads, int chunk) {
  const auto backend = make_cpu_backend({threads, isa});
  Session session(model, *backend, limits_of(model));
  std::vector<float> all;
  for (int first = 0; first < kIds; first += chunk) {
    const auto logits = feed(session, first, std::min(first + chunk, kIds));
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

std::vector<float> logits_of(const Model& model) {
  return logits_of(model, supported_isas().back(), 2, kIds);
}

// Returns a power of two for input channel k; query heads of one kv head share their scales.
float smooth_scale(const Source& source, const std::string& part, std::int64_t k) {
  const ModelConfig& config = source.config;
  if (part == "o") {
    const std::int64_t heads_each = config.heads / config.kv_heads;
    k = k / config.head_dim / heads_each * config.head_dim + k % config.head_dim;
  }
  return std::ldexp(1.0f, static_cast<int>(k * 5 % 7) - 3);
}

void scale_columns(const Source& source, const std::string& part, Numbers& weight) {
  const std::int64_t columns = weight.shape[1];
  for (std::size_t i = 0; i < weight.values.size(); ++i) {
    weight.values[i] *= smooth_scale(source, part, static_cast<std::int64_t>(i) % columns);
  }
}

struct Site {
  std::string part;  // the linear that stores the site's inv_smooth
  std::vector<std::string> consumers;
  std::vector<std::string> producers;  // vectors, or matrices whose rows produce the input
};

const std::vector<Site> kLlamaSites = {{"q", {"q", "k", "v"}, {"attention_norm"}},
                                       {"o", {"o"}, {"v"}},
                                       {"gate", {"gate", "up"}, {"mlp_norm"}},
                                       {"down", {"down"}, {"up"}}};
const std::vector<Site> kGpt2Sites = {
    {"q", {"q", "k", "v"}, {"attention_norm", "attention_norm.bias"}},
    {"o", {"o"}, {"v", "v.bias"}},
    {"up", {"up"}, {"mlp_norm", "mlp_norm.bias"}},
    {"down", {"down"}, {}}};

// Multiplies consumers' columns by s; the inverse is applied at run time or folded into producers.
Source smoothed(Source source, const std::vector<Site>& sites, bool at_run_time) {
  for (std::int64_t l = 0; l < source.config.layer_count(); ++l) {
    for (const Site& site : sites) {
      for (const auto& part : site.consumers) {
        scale_columns(source, site.part, source.tensors.at(layer_tensor(l, part)));
      }
      if (at_run_time || site.producers.empty()) {
        const std::int64_t columns = source.tensors.at(layer_tensor(l, site.consumers[0])).shape[1];
        Numbers& vector = source.tensors[layer_tensor(l, site.part) + ".inv_smooth"];
        vector = {{columns}, TensorRole::vector, {}};
        for (std::int64_t k = 0; k < columns; ++k) {
          vector.values.push_back(1.0f / smooth_scale(source, site.part, k));
        }
        continue;
      }
      for (const auto& part : site.producers) {
        Numbers& numbers = source.tensors.at(layer_tensor(l, part));
        const std::int64_t columns = numbers.shape.size() == 2 ? numbers.shape[1] : 1;
        const std::int64_t group = source.config.heads / source.config.kv_heads;
        for (std::size_t i = 0; i < numbers.values.size(); ++i) {
          std::int64_t row = static_cast<std::int64_t>(i) / columns;
          // maps a row of v to the first query head that reads it
          if (site.part == "o") {
            const std::int64_t d = source.config.head_dim;
            row = row / d * group * d + row % d;
          }
          numbers.values[i] /= smooth_scale(source, site.part, row);
        }
      }
    }
  }
  return source;
}

// If s is a power of two, x / s * (w s) equals x w bit for bit.
TEST(InvSmooth, OfPowersOfTwoLeavesAFloatModelAsItIs) {
  for (const bool gated : {true, false}) {
    const test::TemporaryFolder folder;
    const Source plain = gated ? llama_source() : gpt2_source();
    const Source moved = smoothed(plain, gated ? kLlamaSites : kGpt2Sites, true);
    const Model a(write_file(folder, "a.leq", plain, {}), {});
    const Model b(write_file(folder, "b.leq", moved, {}), {});
    EXPECT_TRUE(same_bits(logits_of(a), logits_of(b))) << (gated ? "llama" : "gpt2");
    EXPECT_GT(b.file().tensors().size(), a.file().tensors().size());
  }
}

TEST(InvSmooth, AtRunTimeGivesTheCodesOfTheFold) {
  const Storage storages[] = {
      {"f32", ActKind::none},        {"int8", ActKind::none},       {"int8", ActKind::row},
      {"int8", ActKind::g128},       {"int4-g64", ActKind::row},    {"int8", ActKind::tensor},
      {"int4-g32", ActKind::tensor}, {"int8-g32", ActKind::tensor}, {"int8", ActKind::online}};
  const test::TemporaryFolder folder;
  for (const bool gated : {true, false}) {
    const Source plain = gated ? llama_source() : gpt2_source();
    const auto& sites = gated ? kLlamaSites : kGpt2Sites;
    for (const Storage& storage : storages) {
      const Model folded(write_file(folder, "f.leq", smoothed(plain, sites, false), storage), {});
      const Model moved(write_file(folder, "r.leq", smoothed(plain, sites, true), storage), {});
      EXPECT_TRUE(same_bits(logits_of(folded), logits_of(moved)))
          << storage.scheme << " act " << act_name(storage.act);
    }
  }
}

// The codes of a changed input must differ; otherwise the test above could ignore inv_smooth.
TEST(InvSmooth, ChangesWhatIsQuantized) {
  const test::TemporaryFolder folder;
  const Source plain = llama_source();
  const Storage storage = {"int8", ActKind::row};
  const Model a(write_file(folder, "a.leq", plain, storage), {});
  const Model b(write_file(folder, "b.leq", smoothed(plain, kLlamaSites, true), storage), {});
  EXPECT_FALSE(same_bits(logits_of(a), logits_of(b)));
}

TEST(ActivationModes, LogitsDoNotDependOnIsaThreadsOrChunk) {
  const test::TemporaryFolder folder;
  const Storage storages[] = {{"int8", ActKind::tensor},
                              {"int4-g128", ActKind::tensor},
                              {"f32", ActKind::none},
                              {"int4-g64", ActKind::g128}};
  for (const bool gated : {true, false}) {
    const Source source =
        smoothed(gated ? llama_source() : gpt2_source(), gated ? kLlamaSites : kGpt2Sites, true);
    for (const Storage& storage : storages) {
      const Model model(write_file(folder, "m.leq", source, storage), {});
      const auto want = logits_of(model);
      EXPECT_TRUE(std::all_of(want.begin(), want.end(), [](float x) { return std::isfinite(x); }));
      for (const Isa isa : supported_isas()) {
        for (const int threads : {1, 2, 4}) {
          for (const int chunk : {1, 7, 33, kIds}) {
            if (isa == Isa::portable && chunk == 1) continue;
            EXPECT_TRUE(same_bits(want, logits_of(model, isa, threads, chunk)))
                << storage.scheme << " act " << act_name(storage.act) << " " << isa_name(isa)
                << ", " << threads << " threads, chunk " << chunk;
          }
        }
      }
    }
  }
}

double relative_error(const std::vector<float>& want, const std::vector<float>& found) {
  double error = 0, energy = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += std::pow(double{want[i]} - double{found[i]}, 2);
    energy += std::pow(double{want[i]}, 2);
  }
  return error / energy;
}

// A scale (step) of 0.1 suits these inputs; a step of 1 is too coarse, and with a step of 0.01
// values above 1.27 are clipped. Both of these give larger errors.
TEST(ActivationModes, TheFilesScaleIsTheStepOfTheInputs) {
  const test::TemporaryFolder folder;
  const Source source = llama_source();
  const Model floats(write_file(folder, "f.leq", source, {}), {});
  const auto want = logits_of(floats);
  std::map<float, double> errors;
  for (const float scale : {0.01f, 0.1f, 1.0f}) {
    const Storage storage = {.scheme = "int8", .act = ActKind::tensor, .act_scale = scale};
    const Model model(write_file(folder, "c.leq", source, storage), {});
    const auto backend = make_cpu_backend({1, supported_isas().back()});
    const Weights weights = bind_weights(model.file(), model.config(), backend->memory());
    EXPECT_EQ(weights.layers[1].dense_mlp().down.act_scale, scale);
    EXPECT_EQ(weights.head.act_scale, scale);
    errors[scale] = relative_error(want, logits_of(model));
  }
  EXPECT_LT(errors[0.1f], 0.3 * errors[1.0f]);
  EXPECT_LT(errors[0.1f], 0.3 * errors[0.01f]);
}

TEST(ActOnlineModel, OneScaleForEachLinearThatDoesNotDependOnIsaOrThreads) {
  const test::TemporaryFolder folder;
  for (const OnlineMode mode : {OnlineMode::safe, OnlineMode::streaming}) {
    const Model model(write_file(folder, "m.leq", llama_source(), {"int8", ActKind::online, mode}),
                      {});
    const auto want = logits_of(model, supported_isas().back(), 1, 7);
    for (const Isa isa : supported_isas()) {
      EXPECT_TRUE(same_bits(want, logits_of(model, isa, 3, 7))) << isa_name(isa);
    }
    const auto backend = make_cpu_backend({2, supported_isas().back()});
    Session session(model, *backend, limits_of(model));
    feed(session, 0, 10);
    feed(session, 10, 11);
    const auto online = session.transformer().online();
    ASSERT_EQ(online.size(), 2u * 4 + 1);
    EXPECT_EQ(online[0].linear->name, "layers.0.qkv");
    EXPECT_EQ(online[8].linear->name, "head");
    for (const OnlineInput& input : online) {
      EXPECT_EQ(input.scale.options().mode, mode);
      EXPECT_EQ(input.scale.counters().steps, 2u) << input.linear->name;
      EXPECT_EQ(input.scale.counters().values,
                static_cast<std::uint64_t>(11 * input.linear->inputs));
      EXPECT_GT(input.scale.counters().largest, 0.0f);
    }
  }
}

TEST(ActOnlineModel, SavedStatesGiveTheSameBitsAgain) {
  const test::TemporaryFolder folder;
  const Model model(write_file(folder, "m.leq", llama_source(), {"int8", ActKind::online}), {});
  const auto backend = make_cpu_backend({2, supported_isas().back()});
  Session session(model, *backend, limits_of(model));
  feed(session, 0, 20);
  std::vector<OnlineScale::State> saved;
  for (const OnlineInput& input : session.transformer().online()) {
    saved.push_back(input.scale.save());
  }
  const auto want = feed(session, 20, 25);
  const auto again = [&] {
    (void)session.cache().truncate(0, 20);
    return feed(session, 20, 25);
  };
  const auto restore = [&](float factor) {
    for (std::size_t i = 0; i < saved.size(); ++i) {
      OnlineScale::State state = saved[i];
      state.range *= factor;
      session.transformer().online()[i].scale.restore(state);
    }
  };
  restore(2);
  EXPECT_FALSE(same_bits(want, again()));  // the restored scale matters
  restore(1);
  EXPECT_TRUE(same_bits(want, again()));
}

TEST(ActOnlineModel, RefusesMoreThanOneSequence) {
  const test::TemporaryFolder folder;
  const Model model(write_file(folder, "m.leq", llama_source(), {"int8", ActKind::online}), {});
  const auto backend = make_cpu_backend({1, supported_isas().back()});
  const std::string early =
      error_of([&] { const Session session(model, *backend, limits_of(model, 2)); });
  EXPECT_NE(early.find("sequences 2"), std::string::npos) << early;
  const Weights weights = bind_weights(model.file(), model.config(), backend->memory());
  const RunLimits limits = limits_of(model, 2);
  KvCache cache(backend->memory(), backend->layout(), kv_shape(model.config(), limits));
  Transformer transformer(model.config(), weights, *backend, forward_limits(limits));
  const auto ids = some_ids();
  Batch batch;
  batch.add(0, ids.data(), 3, Batch::Want::last);
  EXPECT_EQ(error_of([&] { transformer.forward(batch, cache); }), "");
  batch.clear();
  batch.add(0, ids.data(), 3, Batch::Want::last);
  batch.add(1, ids.data(), 3, Batch::Want::last);
  const std::string text = error_of([&] { transformer.forward(batch, cache); });
  EXPECT_NE(text.find("layers.0.qkv"), std::string::npos) << text;
  EXPECT_NE(text.find("sequences 1"), std::string::npos) << text;
  EXPECT_EQ(cache.length(0), 3);
}

TEST(ActivationModes, BindingRefusesWhatDoesNotGoTogether) {
  const test::TemporaryFolder folder;
  const auto backend = make_cpu_backend({1, supported_isas().back()});
  const auto bind_error = [&](const Source& source) {
    const auto path = write_file(folder, "m.leq", source, {"int8", ActKind::row});
    return error_of([&] {
      const Model model(path, {});
      bind_weights(model.file(), model.config(), backend->memory());
    });
  };
  Source source = llama_source();
  source.tensors["layers.0.q.inv_smooth"] = {{96}, TensorRole::vector, std::vector<float>(96, 1)};
  EXPECT_EQ(bind_error(source), "");
  Source wrong = source;
  wrong.tensors["layers.0.k.inv_smooth"] = source.tensors["layers.0.q.inv_smooth"];
  EXPECT_NE(bind_error(wrong).find("layers.0.q.inv_smooth"), std::string::npos);
  wrong = source;
  wrong.tensors["layers.1.down.inv_smooth"] = source.tensors["layers.0.q.inv_smooth"];
  EXPECT_NE(bind_error(wrong).find("expected shape [200]"), std::string::npos);
}

// Smoothing vectors are part of the file and need no other memory; rows with one scale are planned
// like all other rows.
TEST(ActivationModes, TheMemoryPlanStaysExact) {
  const test::TemporaryFolder folder;
  const Source source = smoothed(llama_source(), kLlamaSites, true);
  for (const ActKind act : {ActKind::tensor, ActKind::online}) {
    for (const char* scheme : {"int8", "int4-g64"}) {
      const Model model(write_file(folder, "m.leq", source, {scheme, act}), {});
      const auto backend = make_cpu_backend({2, supported_isas().back()});
      Session session(model, *backend, limits_of(model));
      feed(session, 0, kIds);
      EXPECT_EQ(session.plan().kv_bytes + session.plan().scratch_bytes, backend->memory().peak());
      EXPECT_EQ(session.plan().weight_bytes, model.file().memory_bytes());
    }
  }
}

// The gain of layer 1's first norm breaks or repairs this model between steps.
struct Breakable {
  Breakable(const Model& of, int sequences)
      : model(of),
        backend(make_cpu_backend({2, supported_isas().back()})),
        limits(limits_of(of, sequences)),
        weights(bind_weights(of.file(), of.config(), backend->memory())),
        cache(backend->memory(), backend->layout(), kv_shape(of.config(), limits)),
        transformer(of.config(), weights, *backend, forward_limits(limits)),
        gain(weights.layers[1].attention().norm.gain),
        broken(static_cast<std::size_t>(of.config().width), std::nanf("")) {}

  std::vector<float> step(const Batch& batch) {
    std::vector<float> logits(batch.outputs.size() * kVocab);
    backend->download(transformer.forward(batch, cache), std::ssize(batch.outputs), logits);
    return logits;
  }
  std::string failed_step(const Batch& batch) {
    weights.layers[1].attention().norm.gain = broken.data();
    const std::string text = error_of([&] { transformer.forward(batch, cache); });
    weights.layers[1].attention().norm.gain = gain;
    return text;
  }

  const Model& model;
  std::unique_ptr<Backend> backend;
  RunLimits limits;
  Weights weights;
  KvCache cache;
  Transformer transformer;
  const float* gain;
  std::vector<float> broken;
};

// Adjacent rows of the same sequence are in separate runs here.
Batch later_batch(int sequences) {
  const auto ids = some_ids();
  Batch batch;
  batch.add(0, ids.data() + 3, 2, Batch::Want::all);
  if (sequences == 2) batch.add(1, ids.data() + 9, 5, Batch::Want::all);
  batch.add(0, ids.data() + 5, 4, Batch::Want::all);
  return batch;
}

TEST(ForwardThatFails, LeavesCacheAndMovingScalesAsTheyWere) {
  const test::TemporaryFolder folder;
  const auto ids = some_ids();
  for (const ActKind act : {ActKind::row, ActKind::online}) {
    const int sequences = act == ActKind::online ? 1 : 2;
    const Model model(write_file(folder, "m.leq", llama_source(), {"int8", act}), {});
    Breakable whole(model, sequences), tried(model, sequences);
    Batch first;
    first.add(0, ids.data(), 3, Batch::Want::last);
    EXPECT_EQ(whole.step(first), tried.step(first));
    const std::int64_t pages = tried.cache.free_pages();
    for (int attempt = 0; attempt < 2; ++attempt) {
      const std::string text = tried.failed_step(later_batch(sequences));
      EXPECT_NE(text.find("expected finite activations"), std::string::npos) << text;
      EXPECT_EQ(tried.cache.length(0), 3);
      if (sequences == 2) {
        EXPECT_EQ(tried.cache.length(1), 0);
      }
      EXPECT_EQ(tried.cache.free_pages(), pages);
    }
    for (std::size_t i = 0; i < tried.transformer.online().size(); ++i) {
      const OnlineState want = whole.transformer.online()[i].scale.save();
      const OnlineState found = tried.transformer.online()[i].scale.save();
      EXPECT_EQ(found.range, want.range) << i;
      EXPECT_EQ(found.window, want.window) << i;
      EXPECT_EQ(found.counters.steps, want.counters.steps) << i;
    }
    EXPECT_TRUE(same_bits(whole.step(later_batch(sequences)), tried.step(later_batch(sequences))))
        << act_name(act);
    EXPECT_EQ(tried.cache.length(0), 9);
  }
}

TEST(ForwardThatFails, OfOneHalfLeavesTheCacheEmpty) {
  const test::TemporaryFolder folder;
  const Model model(write_file(folder, "m.leq", llama_source(), {"int8", ActKind::row}), {});
  Breakable one(model, 1);
  std::vector<float> hidden(4 * 96, 0.5f);
  hidden[100] = std::nanf("");
  EXPECT_NE(error_of([&] { one.transformer.run_sublayer(Sublayer::mixer, 0, hidden, one.cache); }),
            "");
  EXPECT_EQ(one.cache.length(0), 0);
  hidden[100] = 0.5f;
  EXPECT_TRUE(one.transformer.run_sublayer(Sublayer::mixer, 0, hidden, one.cache));
}

}  // namespace
}  // namespace leq

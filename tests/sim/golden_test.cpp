// Trained models on GPUs, mainly the emulated one: compared with transformers in f32, and with the
// CPU backend for every type of weights, activations and KV cache.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <tuple>

#include "base/file.h"
#include "base/json.h"
#include "errors.h"
#include "format/tensor_source.h"
#include "gpu_devices.h"
#include "models_fixture.h"
#include "shared_data.h"
#include "sim/engine.h"

namespace leq {
namespace {

using test::Engine;
using test::KvTypes;

constexpr const char* kFamilies[] = {"storyteller", "gpt2-tiny",  "mistral-tiny",
                                     "qwen2-tiny",  "qwen3-tiny", "qwen35-tiny"};
constexpr const char* kExperts[] = {"qwen3moe-tiny"};
constexpr const char* kVariants[] = {"storyteller-outliers", "gpt2-tiny-outliers",
                                     "qwen2-tiny-kbias"};

// Emulation is slow, so only the beginning of a long prompt is used; it ends within a page.
constexpr std::size_t kMaxTokens = 70;
constexpr std::size_t kDecoded = 12;

class GpuGolden : public testing::TestWithParam<std::tuple<std::string, const char*>> {
 protected:
  const std::string& device() const { return std::get<0>(GetParam()); }
  std::string folder_name() const { return std::string("models/") + std::get<1>(GetParam()); }
};

// One model of each family, for properties that need not be tested for each variant of a family.
class GpuFamily : public GpuGolden {};
// The same models plus models with experts, for which GPUs only support integer weights.
class GpuCoded : public GpuGolden {};

Json golden_of(const std::filesystem::path& folder) {
  return parse_json(read_file(folder / "golden.json", 1 << 24), "golden.json");
}

std::vector<Token> head_of(const Json& prompt) {
  auto ids = prompt.at("ids").get<std::vector<Token>>();
  ids.resize(std::min(ids.size(), kMaxTokens));
  return ids;
}

TEST_P(GpuGolden, F32LogitsEqualTransformers) {
  LEQ_SHARED_OR_SKIP(folder, folder_name());
  const Json golden = golden_of(folder);
  const auto tensors = open_safetensors(folder / "golden.safetensors");
  const double tolerance = golden.at("tolerance").at("logits_f32_max_abs").get<double>();
  Engine engine(device(), test::quantized(folder, "f32"), {KvType::f32, KvType::f32});
  const std::size_t vocab = engine.vocab();
  for (const auto& prompt : golden.at("prompts")) {
    const auto ids = head_of(prompt);
    const auto got = engine.logits(ids, 65);
    const SourceTensor* want = tensors->find(prompt.at("logits").get<std::string>());
    ASSERT_NE(want, nullptr);
    std::vector<float> row(vocab);
    const auto& rows = prompt.at("rows");
    std::size_t compared = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto at = rows[r].get<std::size_t>();
      if (at >= ids.size()) continue;
      read_floats(*want, static_cast<std::int64_t>(r * vocab), row);
      for (std::size_t v = 0; v < vocab; ++v) {
        ASSERT_NEAR(got[at * vocab + v], row[v], tolerance) << prompt.at("text") << " row " << at;
      }
      ++compared;
    }
    EXPECT_GT(compared, 3u) << prompt.at("text");
  }
}

// Returns the best token of a row that is not an end token.
Token best_of(const Engine& engine, const std::vector<float>& logits, std::size_t row) {
  const std::size_t vocab = engine.vocab();
  std::vector<float> values(logits.begin() + static_cast<std::ptrdiff_t>(row * vocab),
                            logits.begin() + static_cast<std::ptrdiff_t>((row + 1) * vocab));
  for (const Token end : engine.model.generation().end_tokens) {
    values[static_cast<std::size_t>(end)] = -INFINITY;
  }
  return static_cast<Token>(std::ranges::max_element(values) - values.begin());
}

TEST_P(GpuFamily, F32GreedyTextEqualsTransformersWhereItsMarginIsSure) {
  LEQ_SHARED_OR_SKIP(folder, folder_name());
  const Json golden = golden_of(folder);
  Engine engine(device(), test::quantized(folder, "f32"), {KvType::f32, KvType::f32});
  for (const auto& prompt : golden.at("prompts")) {
    if (!prompt.contains("greedy_ids")) continue;  // long prompts have logits only
    auto ids = prompt.at("ids").get<std::vector<Token>>();
    const std::size_t length = ids.size();
    const auto want = prompt.at("greedy_ids").get<std::vector<Token>>();
    const auto steps = std::min(kDecoded, prompt.at("greedy_sure_tokens").get<std::size_t>());
    ids.insert(ids.end(), want.begin(), want.begin() + static_cast<std::ptrdiff_t>(steps - 1));
    const auto logits = engine.logits(ids, 128, length);
    for (std::size_t i = 0; i < steps; ++i) {
      ASSERT_EQ(best_of(engine, logits, length - 1 + i), want[i])
          << prompt.at("text") << " at token " << i;
    }
  }
}

struct Kind {
  const char* type;
  ActChoice act;
  KvTypes kv;
};

// The kinds that a model runs: the storyteller and experts all of them, the other families one of
// `share` each, which differ from family to family.
std::vector<Kind> kinds_of(std::string_view model, std::span<const Kind> kinds, std::size_t share) {
  const auto family = std::ranges::find(kFamilies, model);
  const auto at = static_cast<std::size_t>(family - std::begin(kFamilies));
  if (at == 0 || family == std::end(kFamilies)) return {kinds.begin(), kinds.end()};
  std::vector<Kind> some;
  for (std::size_t i = at % share; i < kinds.size(); i += share) some.push_back(kinds[i]);
  return some;
}

constexpr KvType kF32 = KvType::f32, kF16 = KvType::f16, kInt8 = KvType::int8,
                 kSimq4 = KvType::simq4;
constexpr ActChoice kAuto = ActChoice::automatic;

// Covers every number of bits, grouping and kind of zero point; every pair of key and value types
// that are not packed, and some packed pairs.
const Kind kKinds[] = {
    {"f16", kAuto, {kF16, kF16}},
    {"bf16", kAuto, {kInt8, kF32}},
    {"int8", kAuto, {kF16, kInt8}},
    {"int8", ActChoice::row, {kInt8, kInt8}},
    {"int8", ActChoice::none, {kF32, kF16}},
    {"int8-g128", kAuto, {kInt8, kF16}},
    {"int8-tensor", ActChoice::g128, {kF16, kF32}},
    {"int4-g128", kAuto, {kF16, kF16}},
    {"int4-g128", ActChoice::none, {kInt8, kInt8}},
    {"int3-g64", kAuto, {kF32, kInt8}},
    {"int2-g32", kAuto, {kF32, kF32}},
    {"uint8", kAuto, {kInt8, kInt8}},
    {"uint4-g64", kAuto, {kF16, kInt8}},
    {"uint3-g128", ActChoice::row, {kF16, kF16}},
    {"uint2-g128", ActChoice::none, {kF32, kF32}},  // f16 rounds differently; 2 bits magnify it
    {"q4_k", kAuto, {kF32, kF32}},
    {"q5_k", kAuto, {kF16, kInt8}},
    {"q6_k", ActChoice::row, {kF16, kInt8}},
    {"mxfp4", kAuto, {kF16, kF16}},
    {"iq4_nl", kAuto, {kInt8, kInt8}},
    {"int8", kAuto, {kSimq4, kSimq4}},
    {"int8", kAuto, {kInt8, kSimq4}},
};

// Returns whether GPUs refuse experts of this kind; moving scales are refused on the CPU, too.
bool refuses_experts(const std::filesystem::path& folder, const Kind& kind) {
  const bool has_experts = folder.filename().string().find("moe") != std::string::npos;
  const bool by_row =
      kind.act == kAuto || kind.act == ActChoice::row || kind.act == ActChoice::g128;
  return has_experts && (!by_row || std::string_view(kind.type).starts_with("f") ||
                         std::string_view(kind.type).starts_with("bf") ||
                         std::string_view(kind.type).starts_with("q"));
}

void expect_refused(const std::string& device, const std::filesystem::path& folder,
                    const Kind& kind) {
  if (kind.act == ActChoice::online) return;  // no file of it is made
  test::expect_error(
      [&] { const Engine gpu(device, test::quantized(folder, kind.type, kind.act), kind.kv); },
      {"run on the CPU only"}, ErrorKind::bad_setting);
}

// Logits [texts][tokens + 1][V]: `tokens` ids of each text in one batch, then one more of each.
std::vector<float> logits_of_heads(Engine& engine, const std::vector<std::vector<Token>>& texts,
                                   std::int64_t tokens) {
  const std::size_t vocab = engine.vocab();
  const auto rows_of_text = static_cast<std::size_t>(tokens + 1);
  std::vector<float> all(texts.size() * rows_of_text * vocab);
  for (const bool decode : {false, true}) {
    Batch batch;
    const std::int64_t count = decode ? 1 : tokens;
    for (std::size_t s = 0; s < texts.size(); ++s) {
      batch.add(static_cast<std::int32_t>(s), texts[s].data() + (decode ? tokens : 0), count,
                Batch::Want::all);
    }
    const Rows& rows = engine.session->transformer().forward(batch, engine.session->state());
    std::vector<float> logits(texts.size() * static_cast<std::size_t>(count) * vocab);
    engine.backend->download(rows, std::ssize(texts) * count, logits);
    for (std::size_t s = 0; s < texts.size(); ++s) {
      const auto n = static_cast<std::size_t>(count) * vocab;
      std::copy_n(logits.begin() + static_cast<std::ptrdiff_t>(s * n), n,
                  all.begin() + static_cast<std::ptrdiff_t>(
                                    (s * rows_of_text + (decode ? rows_of_text - 1 : 0)) * vocab));
    }
  }
  return all;
}

// Returns the mean over the rows of KL(want || found) in nats.
double divergence(const std::vector<float>& want, const std::vector<float>& found,
                  std::size_t vocab) {
  const auto log_total = [&](const float* row) {
    const double largest = *std::max_element(row, row + vocab);
    double sum = 0;
    for (std::size_t v = 0; v < vocab; ++v) sum += std::exp(row[v] - largest);
    return largest + std::log(sum);
  };
  double sum = 0;
  for (std::size_t at = 0; at < want.size(); at += vocab) {
    const double of_want = log_total(&want[at]), of_found = log_total(&found[at]);
    for (std::size_t v = at; v < at + vocab; ++v) {
      const double p = want[v] - of_want, q = found[v] - of_found;
      sum += std::exp(p) * (p - q);
    }
  }
  return sum / static_cast<double>(want.size() / vocab);
}

// Attention over keys and values of one type except f32 uses tensor cores, for which its weights
// are rounded to f16.
bool rounds_attention(const Kind& kind, int head_dim) {
  return kind.kv.keys == kind.kv.values && kind.kv.keys != kF32 && head_dim % 16 == 0;
}

// Float weights and act none use tensor cores, which add products in the hardware's own order.
bool rounds_products(const Kind& kind) {
  return kind.act == ActChoice::none || std::string_view(kind.type).ends_with("f16");
}

// Integer products, norms and exact attention give the CPU's bits. Elsewhere logits equal the CPU's
// except for the last bits, until a code is rounded to the other side of a half; after this,
// everything is rounded differently. A bug in a kernel would change all texts. If attention rounds
// its weights, codes differ sooner, but the texts' distributions stay far closer to each other than
// with a wrong scale, zero point or group.
TEST_P(GpuCoded, EveryTypeAgreesWithTheCpu) {
  constexpr float kLastBits = 2e-4f;  // of logits up to 30
  constexpr double kRounded = 2e-3;
  constexpr std::int64_t kHead = 4;
  LEQ_SHARED_OR_SKIP(folder, folder_name());
  const Json golden = golden_of(folder);
  std::vector<std::vector<Token>> texts;
  for (const auto& prompt : golden.at("prompts")) {
    texts.push_back(prompt.at("ids").get<std::vector<Token>>());
  }
  for (const Kind& kind : kinds_of(std::get<1>(GetParam()), kKinds, 4)) {
    const int sequences = static_cast<int>(texts.size());
    if (refuses_experts(folder, kind)) {
      expect_refused(device(), folder, kind);
      continue;
    }
    const auto file = test::quantized(folder, kind.type, kind.act);
    Engine cpu("cpu", file, kind.kv, sequences), gpu(device(), file, kind.kv, sequences);
    const auto want = logits_of_heads(cpu, texts, kHead);
    const auto found = logits_of_heads(gpu, texts, kHead);
    const std::size_t of_text = want.size() / texts.size();
    std::size_t equal = 0;
    for (std::size_t s = 0; s < texts.size(); ++s) {
      float worst = 0;
      for (std::size_t i = s * of_text; i < (s + 1) * of_text; ++i) {
        worst = std::max(worst, std::abs(want[i] - found[i]));
      }
      equal += worst < kLastBits ? 1 : 0;
    }
    const std::string name =
        std::string(kind.type) + ", act " + std::to_string(static_cast<int>(kind.act)) + ", kv " +
        std::string(kv_type_name(kind.kv.keys)) + "/" + std::string(kv_type_name(kind.kv.values));
    std::printf("%-32s %zu of %zu texts equal the CPU's\n", name.c_str(), equal, texts.size());
    if (rounds_attention(kind, static_cast<int>(cpu.model.config().head_dim))) {
      EXPECT_LT(divergence(want, found, cpu.vocab()), kRounded) << name;
    } else if (rounds_products(kind)) {
      EXPECT_GE(2 * equal, texts.size()) << name;
    } else {
      EXPECT_EQ(std::memcmp(want.data(), found.data(), want.size() * sizeof(float)), 0) << name;
    }
  }
}

// With exact arithmetic there is no tolerance. Tests every pair of KV types for which tensor cores
// would be used otherwise, in prompts of several chunks and in recorded and replayed steps.
const Kind kExactKinds[] = {
    {"f32", kAuto, {kF16, kF16}},
    {"int8", kAuto, {kF16, kF16}},
    {"int8", ActChoice::row, {kInt8, kInt8}},
    {"int4-g128", kAuto, {kSimq4, kSimq4, 2}},
    {"uint3-g128", ActChoice::tensor, {kSimq4, kInt8, 2}},
    {"int8-g128", ActChoice::online, {kInt8, kSimq4, 2}},
    {"uint2-g64", ActChoice::g128, {kSimq4, kF16, 2}},
};

TEST_P(GpuCoded, ExactLogitsAreTheCpusBits) {
  constexpr std::size_t kMost = 38, kSteps = 6;
  LEQ_SHARED_OR_SKIP(folder, folder_name());
  const Json golden = golden_of(folder);
  std::vector<Token> ids;
  for (const auto& prompt : golden.at("prompts")) {
    for (const Token id : prompt.at("ids").get<std::vector<Token>>()) ids.push_back(id);
  }
  while (ids.size() < kMost) ids.push_back(ids[ids.size() / 2]);
  const std::vector<Token> all(ids.begin(), ids.begin() + kMost);
  for (const Kind& kind : kinds_of(std::get<1>(GetParam()), kExactKinds, 2)) {
    if (refuses_experts(folder, kind)) {
      expect_refused(device(), folder, kind);
      continue;
    }
    const auto file = test::quantized(folder, kind.type, kind.act);
    Engine cpu("cpu", file, kind.kv), gpu(device(), file, kind.kv, 1, Arithmetic::exact);
    // The first block is closed within the prompt or in a replayed step.
    ids = all;
    ids.resize(kv_scheme(kind.kv.keys).blocked() ? kMost : 14);
    const auto want = cpu.logits(ids, 11, ids.size() - kSteps);
    const auto found = gpu.logits(ids, 11, ids.size() - kSteps);
    EXPECT_EQ(std::memcmp(want.data(), found.data(), want.size() * sizeof(float)), 0)
        << kind.type << " " << kv_type_name(kind.kv.keys);
  }
}

// Operations that no kernel can compute exactly are refused before anything is computed.
TEST_P(GpuFamily, ExactRefusesProductsOfPieces) {
  LEQ_SHARED_OR_SKIP(folder, folder_name());
  for (const Kind& kind : {Kind{"f16", kAuto, {kF16, kF16}}, Kind{"bf16", kAuto, {kF32, kF32}},
                           Kind{"int4-g128", ActChoice::none, {kF16, kF16}}}) {
    test::expect_error(
        [&] {
          const Engine gpu(device(), test::quantized(folder, kind.type, kind.act), kind.kv, 1,
                           Arithmetic::exact);
        },
        {"near the CPU's numbers"}, ErrorKind::bad_setting);
  }
}

// Both devices are fed the CPU's greedy text. If the GPU would continue with another token, the
// CPU's logits of the two tokens must differ by less than quantizing to int8 has changed the logits
// of that row from f32, so that the tie depends on rounding.
TEST_P(GpuCoded, QuantizedGreedyTextsPartAtNearTiesAlone) {
  constexpr int kSteps = 40;
  LEQ_SHARED_OR_SKIP(folder, folder_name());
  const auto file = test::quantized(folder, "int8");
  const KvTypes kv = {kF16, kInt8};
  Engine exact("cpu", test::quantized(folder, "f32"), {kF32, kF32}), cpu("cpu", file, kv),
      gpu(device(), file, kv);
  auto next = golden_of(folder).at("prompts")[0].at("ids").get<std::vector<Token>>();
  const auto feed = [&](Engine& engine) {
    const auto logits = engine.session->feed(0, next);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const auto distance = [](const std::vector<float>& a, const std::vector<float>& b) {
    float largest = 0;
    for (std::size_t v = 0; v < a.size(); ++v) largest = std::max(largest, std::abs(a[v] - b[v]));
    return largest;
  };
  for (int i = 0; i < kSteps; ++i) {
    const auto of_exact = feed(exact), of_cpu = feed(cpu), of_gpu = feed(gpu);
    const auto best = static_cast<std::size_t>(best_of(cpu, of_cpu, 0));
    const auto other = static_cast<std::size_t>(best_of(gpu, of_gpu, 0));
    if (best != other) {
      const float margin = of_cpu[best] - of_cpu[other], noise = distance(of_exact, of_cpu);
      std::printf("token %d: margin %.4f; int8 moved logits by up to %.4f, the GPU by %.4f\n", i,
                  margin, noise, distance(of_cpu, of_gpu));
      EXPECT_LT(margin, noise) << "at token " << i;
    }
    next = {static_cast<Token>(best)};
  }
}

std::string case_name(const testing::TestParamInfo<GpuGolden::ParamType>& item) {
  return test::test_name(std::get<0>(item.param) + "_" + std::get<1>(item.param));
}

INSTANTIATE_TEST_SUITE_P(Models, GpuGolden,
                         testing::Combine(testing::ValuesIn(test::gpu_devices()),
                                          testing::ValuesIn(kFamilies)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Variants, GpuGolden,
                         testing::Combine(testing::ValuesIn(test::gpu_devices()),
                                          testing::ValuesIn(kVariants)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Models, GpuCoded,
                         testing::Combine(testing::ValuesIn(test::gpu_devices()),
                                          testing::ValuesIn(kFamilies)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Experts, GpuCoded,
                         testing::Combine(testing::ValuesIn(test::gpu_devices()),
                                          testing::ValuesIn(kExperts)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Models, GpuFamily,
                         testing::Combine(testing::ValuesIn(test::gpu_devices()),
                                          testing::ValuesIn(kFamilies)),
                         case_name);

}  // namespace
}  // namespace leq

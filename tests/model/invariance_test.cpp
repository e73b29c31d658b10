// Logits are bit-identical for every instruction set, thread count, prefill chunk and batch.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "case_names.h"
#include "model/session.h"
#include "models_fixture.h"
#include "same_bits.h"
#include "shared_data.h"

namespace leq {
namespace {

using test::ids_of;
using test::same_bits;

struct Feeding {
  Isa isa = Isa::portable;
  int threads = 1;
  std::int64_t chunk = 512;
  int neighbours = 0;  // other sequences in every batch
};

// Logits of all positions of sequence 0, fed in chunks in batches with neighbouring sequences.
std::vector<float> logits_of(const Model& model, const Feeding& feeding, KvType kv, int tokens) {
  const auto backend = make_cpu_backend({feeding.threads, feeding.isa});
  RunLimits limits;
  limits.sequences = feeding.neighbours + 1;
  limits.context = model.config().context * limits.sequences;
  limits.batch_tokens = 1024;
  limits.output_tokens = 1024;
  limits.key_type = limits.value_type = kv;
  Session session(model, *backend, resolve_limits(limits, model.config()));
  const std::int64_t vocab = model.config().vocab;
  const auto ids = ids_of(tokens, vocab, 1);
  std::vector<float> all, rows;
  for (std::int64_t first = 0; first < tokens; first += feeding.chunk) {
    const std::int64_t count = std::min<std::int64_t>(feeding.chunk, tokens - first);
    Batch batch;
    for (int n = 1; n <= feeding.neighbours; ++n) {
      const auto other = ids_of(3, vocab, static_cast<std::uint64_t>(100 + n));
      if (session.cache().length(n) < model.config().context - 3)
        batch.add(n, other.data(), n % 3 + 1, Batch::Want::none);
    }
    batch.add(0, ids.data() + first, count, Batch::Want::all);
    rows.resize(static_cast<std::size_t>(count * vocab));
    backend->download(session.transformer().forward(batch, session.state()), count, rows);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

struct Case {
  const char* model;
  const char* type;
  KvType kv;
};

const Case kCases[] = {
    {"storyteller", "f32", KvType::f32},
    {"storyteller", "int8", KvType::f16},
    {"gpt2-tiny", "int8", KvType::int8},
    {"gpt2-tiny", "f16", KvType::f16},
    {"mistral-tiny", "int4-g128", KvType::f16},
    {"mistral-tiny", "int8-g128", KvType::int8},
    {"qwen2-tiny", "bf16", KvType::f32},
    {"qwen2-tiny", "int4-g128", KvType::int8},
    {"qwen3-tiny", "int8", KvType::f16},
    {"qwen2-tiny", "int8", KvType::int4},
    {"storyteller", "int8", KvType::simq4},
    {"mistral-tiny", "f32", KvType::simq8},
    {"qwen3-tiny", "int8", KvType::simq4},
    {"qwen35-tiny", "f32", KvType::f32},
    {"qwen35-tiny", "int8", KvType::f16},
    {"qwen35-tiny", "int4-g64", KvType::int8},
    {"mistral-tiny", "int8", KvType::simq2},
    {"gpt2-tiny", "int4-g128", KvType::simq2},
    {"qwen3moe-tiny", "f32", KvType::f16},
    {"qwen3moe-tiny", "int8", KvType::f16},
    {"qwen3moe-tiny", "int4-g32", KvType::int8},
    {"qwen3moe-tiny", "q4_k", KvType::f16},
    {"qwen3moe-tiny", "mxfp4", KvType::f16},
    {"gpt2-tiny", "iq4_nl", KvType::f16},
    {"mistral-tiny", "nvfp4", KvType::f16},
    {"gemma-3", "f32", KvType::f16},
    {"gemma-3", "int8", KvType::int8},
    {"gemma-3", "int4-g32", KvType::int4},
    {"gemma-3", "int8", KvType::simq4},
    {"gpt-oss", "f32", KvType::f16},
    {"gpt-oss", "int8", KvType::int4},
    {"gpt-oss", "int4-g32", KvType::int8},
    {"gpt-oss", "int8", KvType::simq2},
    {"smollm3", "f32", KvType::simq8},
    {"smollm3", "int8", KvType::f16},
    {"granite", "f32", KvType::int8},
    {"granite", "int8", KvType::simq4},
    {"phi-3", "f32", KvType::int4},
    {"phi-3", "int8", KvType::simq8},
};

class Invariance : public ::testing::TestWithParam<std::size_t> {
 protected:
  static const Case& of() { return kCases[GetParam()]; }
};

// Every two of thread count, chunk and neighbours meet; tokens one by one are slow, so only once.
const Feeding kCuts[] = {
    {.threads = 1, .chunk = 7},   {.threads = 2, .chunk = 1, .neighbours = 2},
    {.threads = 4, .chunk = 512}, {.threads = 1, .chunk = 64, .neighbours = 2},
    {.threads = 2, .chunk = 7},   {.threads = 4, .chunk = 7, .neighbours = 2},
    {.threads = 2, .chunk = 64},  {.threads = 1, .chunk = 512, .neighbours = 2},
    {.threads = 4, .chunk = 64},  {.threads = 2, .chunk = 512, .neighbours = 2}};

// Each instruction set takes three of the cuts, the next ones in each case, so that over the cases
// it takes all of them.
TEST_P(Invariance, LogitsDoNotDependOnIsaThreadsChunkOrBatch) {
  const Case& c = of();
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + c.model);
  const Model model(test::quantized(folder, c.type), {});
  constexpr int kTokens = 100, kCutsOfIsa = 3;
  const auto want = logits_of(model, {supported_isas().back(), 1, 512, 0}, c.kv, kTokens);
  const auto expect_same = [&](const Feeding& s) {
    EXPECT_TRUE(same_bits(want, logits_of(model, s, c.kv, kTokens)))
        << isa_name(s.isa) << ", " << s.threads << " threads, chunk " << s.chunk << ", "
        << s.neighbours << " neighbours";
  };
  std::size_t next = GetParam();
  for (const Isa isa : supported_isas()) {
    if (isa == Isa::portable) {  // fma in software makes it slow
      expect_same({isa, 2, 512, 2});
      continue;
    }
    for (int i = 0; i < kCutsOfIsa; ++i, ++next) {
      Feeding cut = kCuts[next % std::size(kCuts)];
      cut.isa = isa;
      expect_same(cut);
    }
  }
}

// Feeds tokens one by one and in chunks of four, next to two other sequences, on the instruction
// set that the tools select: short enough for ThreadSanitizer.
TEST_P(Invariance, EveryNumberOfThreadsComputesTheSame) {
  const Case& c = of();
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + c.model);
  const Model model(test::quantized(folder, c.type), {});
  const auto want = logits_of(model, {chosen_isa(), 1, 1, 2}, c.kv, 6);
  for (const int threads : {2, 4}) {
    for (const std::int64_t chunk : {1, 4}) {
      EXPECT_TRUE(same_bits(want, logits_of(model, {chosen_isa(), threads, chunk, 2}, c.kv, 6)))
          << threads << " threads, chunk " << chunk;
    }
  }
}

// The context is longer than one span of 512 positions, so that partial results are merged.
TEST_P(Invariance, LongContextsMergeSpansInOneOrder) {
  const Case& c = of();
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + c.model);
  const Model model(test::quantized(folder, c.type), {});
  const int tokens = static_cast<int>(std::min<std::int64_t>(model.config().context, 700));
  const auto want = logits_of(model, {supported_isas().back(), 1, 512, 0}, c.kv, tokens);
  std::size_t next = GetParam();
  for (const Isa isa : supported_isas()) {
    if (isa == Isa::portable) continue;
    const Feeding cut = next++ % 2 == 0 ? Feeding{isa, 2, 64, 1} : Feeding{isa, 4, 33, 0};
    EXPECT_TRUE(same_bits(want, logits_of(model, cut, c.kv, tokens))) << isa_name(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Invariance, ::testing::Range<std::size_t>(0, std::size(kCases)),
                         [](const auto& item) {
                           const Case& c = kCases[item.param];
                           return test::test_name(std::string(c.model) + "_" + c.type + "_" +
                                                  std::string(kv_type_name(c.kv)));
                         });

}  // namespace
}  // namespace leq

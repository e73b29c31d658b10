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

struct Setup {
  Isa isa = Isa::portable;
  int threads = 1;
  std::int64_t chunk = 512;
  int neighbours = 0;  // other sequences in every batch
};

// Logits of all positions of sequence 0, fed in chunks in batches with neighbouring sequences.
std::vector<float> logits_of(const Model& model, const Setup& setup, KvType kv, int tokens) {
  const auto backend = make_cpu_backend({setup.threads, setup.isa});
  RunLimits limits;
  limits.sequences = setup.neighbours + 1;
  limits.context = model.config().context * limits.sequences;
  limits.batch_tokens = 1024;
  limits.output_tokens = 1024;
  limits.key_type = limits.value_type = kv;
  Session session(model, *backend, resolve_limits(limits, model.config()));
  const std::int64_t vocab = model.config().vocab;
  const auto ids = ids_of(tokens, vocab, 1);
  std::vector<float> all, rows;
  for (std::int64_t first = 0; first < tokens; first += setup.chunk) {
    const std::int64_t count = std::min<std::int64_t>(setup.chunk, tokens - first);
    Batch batch;
    for (int n = 1; n <= setup.neighbours; ++n) {
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

class Invariance : public ::testing::TestWithParam<Case> {};

TEST_P(Invariance, LogitsDoNotDependOnIsaThreadsChunkOrBatch) {
  const Case& c = GetParam();
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + c.model);
  const Model model(test::quantized(folder, c.type), {});
  constexpr int kTokens = 100;
  const auto want = logits_of(model, {supported_isas().back(), 1, 512, 0}, c.kv, kTokens);
  for (const Isa isa : supported_isas()) {
    // software fma makes the baseline slow, so it only runs one chunk size
    const std::vector<std::int64_t> chunks = isa == Isa::portable
                                                 ? std::vector<std::int64_t>{512}
                                                 : std::vector<std::int64_t>{1, 7, 64, 512};
    for (const int threads : {1, 2, 4}) {
      if (isa == Isa::portable && threads == 4) continue;
      for (const std::int64_t chunk : chunks) {
        for (const int neighbours : {0, 2}) {
          if (chunk == 1 && threads != 2) continue;
          if (chunk != 7 && neighbours == 2 && threads == 4) continue;
          EXPECT_TRUE(
              same_bits(want, logits_of(model, {isa, threads, chunk, neighbours}, c.kv, kTokens)))
              << isa_name(isa) << ", " << threads << " threads, chunk " << chunk << ", "
              << neighbours << " neighbours";
        }
      }
    }
  }
}

// Feeds tokens one by one and in chunks of four, next to two other sequences, on the instruction
// set that the tools select: short enough for ThreadSanitizer.
TEST_P(Invariance, EveryNumberOfThreadsComputesTheSame) {
  const Case& c = GetParam();
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
  const Case& c = GetParam();
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + c.model);
  const Model model(test::quantized(folder, c.type), {});
  const int tokens = static_cast<int>(std::min<std::int64_t>(model.config().context, 700));
  const auto want = logits_of(model, {supported_isas().back(), 1, 512, 0}, c.kv, tokens);
  for (const Isa isa : supported_isas()) {
    if (isa == Isa::portable) continue;
    EXPECT_TRUE(same_bits(want, logits_of(model, {isa, 2, 64, 1}, c.kv, tokens))) << isa_name(isa);
    EXPECT_TRUE(same_bits(want, logits_of(model, {isa, 4, 33, 0}, c.kv, tokens))) << isa_name(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Invariance,
    ::testing::Values(
        Case{"storyteller", "f32", KvType::f32}, Case{"storyteller", "int8", KvType::f16},
        Case{"gpt2-tiny", "int8", KvType::int8}, Case{"gpt2-tiny", "f16", KvType::f16},
        Case{"mistral-tiny", "int4-g128", KvType::f16},
        Case{"mistral-tiny", "int8-g128", KvType::int8}, Case{"qwen2-tiny", "bf16", KvType::f32},
        Case{"qwen2-tiny", "int4-g128", KvType::int8}, Case{"qwen3-tiny", "int8", KvType::f16},
        Case{"qwen2-tiny", "int8", KvType::int4}, Case{"storyteller", "int8", KvType::simq4},
        Case{"mistral-tiny", "f32", KvType::simq8}, Case{"qwen3-tiny", "int8", KvType::simq4},
        Case{"qwen35-tiny", "f32", KvType::f32}, Case{"qwen35-tiny", "int8", KvType::f16},
        Case{"qwen35-tiny", "int4-g64", KvType::int8}, Case{"mistral-tiny", "int8", KvType::simq2},
        Case{"gpt2-tiny", "int4-g128", KvType::simq2}, Case{"qwen3moe-tiny", "f32", KvType::f16},
        Case{"qwen3moe-tiny", "int8", KvType::f16}, Case{"qwen3moe-tiny", "int4-g32", KvType::int8},
        Case{"qwen3moe-tiny", "q4_k", KvType::f16}),
    [](const auto& item) {
      return test::test_name(std::string(item.param.model) + "_" + item.param.type + "_" +
                             std::string(kv_type_name(item.param.kv)));
    });

}  // namespace
}  // namespace leq

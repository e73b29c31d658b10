// If all layers of a model have sliding windows, only the positions within the windows are cached,
// and results are the same as with a full cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/random.h"
#include "case_names.h"
#include "model/session.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "same_bits.h"
#include "shared_data.h"

namespace leq {
namespace {

using test::same_bits;

// Runs the model with a cache that never releases a page.
struct WholeCache {
  WholeCache(const Model& model, Backend& backend, const RunLimits& limits)
      : weights(bind_weights(model.file(), model.config(), backend.memory())),
        cache(backend.memory(), backend.layout(), whole(model, weights, backend, limits)),
        transformer(model.config(), weights, backend, forward_limits(limits)) {}

  static KvShape whole(const Model& model, const Weights& weights, Backend& backend,
                       const RunLimits& limits) {
    KvShape shape = kv_shape(model.config(), weights, backend.layout(), limits);
    shape.window = 0;
    return shape;
  }

  Weights weights;
  KvCache cache;
  Transformer transformer;
};

std::vector<float> step(Transformer& transformer, KvCache& cache, std::int32_t sequence,
                        std::span<const Token> tokens) {
  Batch batch;
  batch.add(sequence, tokens.data(), std::ssize(tokens), Batch::Want::last);
  std::vector<float> logits(static_cast<std::size_t>(transformer.config().vocab));
  transformer.backend().download(transformer.forward(batch, cache), 1, logits);
  return logits;
}

std::int64_t held(const KvCache& cache, std::int32_t sequence) {
  return std::ranges::count_if(cache.pages(sequence), [](auto page) { return page >= 0; });
}

class Windows : public testing::TestWithParam<KvType> {};

TEST_P(Windows, PagesBehindThemAreGivenUpAndNoBitChanges) {
  LEQ_SHARED_OR_SKIP(folder, "models/mistral-tiny");
  const Model model(test::quantized(folder, "int8"), {});
  for (std::int64_t layer = 0; layer < model.config().layer_count(); ++layer) {
    ASSERT_EQ(model.config().window(layer), 128);
  }
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  RunLimits limits;
  limits.sequences = 2;
  limits.context = 2 * model.config().context;
  limits.batch_tokens = 64;
  limits.key_type = limits.value_type = GetParam();
  limits = resolve_limits(limits, model.config());
  Session session(model, *backend, limits);
  WholeCache all(model, *backend, limits);
  EXPECT_LT(session.cache().page_count(), all.cache.page_count());
  Random random(3);
  std::vector<Token> tokens;
  const auto more = [&](std::int32_t sequence, std::size_t count) {
    tokens.clear();
    while (tokens.size() < count) {
      tokens.push_back(
          static_cast<Token>(random.below(static_cast<std::uint32_t>(model.config().vocab))));
    }
    const auto want = step(all.transformer, all.cache, sequence, tokens);
    const auto found = step(session.transformer(), session.cache(), sequence, tokens);
    EXPECT_TRUE(same_bits(want, found)) << session.cache().length(sequence);
  };
  const auto both = [&](auto act) {
    act(all.cache);
    act(session.cache());
  };
  for (int i = 0; i < 14; ++i) more(0, 64);
  EXPECT_EQ(session.cache().pages(0)[0], KvCache::kNoPage);
  EXPECT_LT(held(session.cache(), 0), held(all.cache, 0));
  both([](KvCache& cache) { EXPECT_EQ(cache.truncate(0, 870), 870); });
  more(0, 5);
  both([](KvCache& cache) { cache.fork(0, 1); });
  more(1, 64);
  more(0, 30);
  const std::vector<std::byte> saved = session.cache().save(0);
  session.cache().clear(0);
  session.cache().load(0, saved, "a saved sequence");
  more(0, 20);
  more(1, 20);
}

INSTANTIATE_TEST_SUITE_P(Types, Windows,
                         testing::Values(KvType::f16, KvType::int8, KvType::simq4, KvType::simq2),
                         [](const auto& item) {
                           return test::test_name(kv_type_name(item.param));
                         });

}  // namespace
}  // namespace leq

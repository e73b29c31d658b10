// Tests how models are divided between ranks, for shapes of many families and 1 to 64 ranks.
#include "model/sharding.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tools/bench/parts/synthetic.h"

namespace leq {
namespace {

// Creates a configuration that only has a shape.
ModelConfig shape(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                  std::int64_t width, std::int64_t hidden, std::int64_t vocab) {
  ModelConfig config;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.width = width;
  config.layers = {{AttentionConfig(), DenseMlpConfig{.hidden = hidden}}};
  config.vocab = vocab;
  return config;
}

std::vector<ModelConfig> shapes() {
  std::vector<ModelConfig> all = {
      shape(4, 4, 32, 128, 512, 2048),                                               // gpt2-tiny
      shape(5, 1, 32, 160, 432, 2048),                                               // mistral-tiny
      shape(6, 2, 32, 192, 512, 2051),                                               // qwen2-tiny
      shape(4, 2, 64, 128, 384, 2053),                                               // qwen3-tiny
      shape(8, 4, 32, 256, 704, 4096),                                               // storyteller
      shape(14, 2, 64, 896, 4864, 151936),                                           // Qwen2-0.5B
      shape(64, 8, 128, 8192, 28672, 128256), shape(71, 1, 64, 4544, 18176, 65024),  // one kv head
      shape(25, 5, 80, 1600, 6400, 50257),    shape(3, 3, 20, 60, 240, 131)};
  for (const std::string& name : synthetic_shapes()) {
    all.push_back(synthetic_config(name, 0));
  }
  return all;
}

// Every item must belong to one rank, in order; boundaries are multiples of `unit`, and ranks
// differ by at most one unit.
void expect_even(std::int64_t count, std::int64_t unit, const std::vector<Slice>& slices) {
  std::int64_t end = 0, fewest = count, most = 0;
  for (const Slice& slice : slices) {
    EXPECT_EQ(slice.first, end);
    EXPECT_GE(slice.count(), 0);
    end = slice.last;
    EXPECT_TRUE(end % unit == 0 || end == count) << end << " of " << count;
    const std::int64_t units = (slice.count() + unit - 1) / unit;
    fewest = std::min(fewest, units);
    most = std::max(most, units);
  }
  EXPECT_EQ(end, count);
  EXPECT_LE(most, fewest + 1);
  EXPECT_EQ((slices[0].count() + unit - 1) / unit, fewest) << "the leader has more than another";
}

TEST(Sharding, EveryRankHasWholeUnitsAndAllIsShared) {
  for (const ModelConfig& config : shapes()) {
    for (int ranks = 1; ranks <= 64; ++ranks) {
      SCOPED_TRACE(describe(config) + " on " + std::to_string(ranks));
      std::vector<Slice> heads, columns, mlp, stream, vocabulary;
      for (const RankShare& share : cut_model(config, ranks)) {
        heads.push_back(share.heads);
        columns.push_back(share.of(Axis::query_heads, config.heads * config.head_dim));
        mlp.push_back(share.of(Axis::mlp, config.widest_mlp()));
        stream.push_back(share.stream);
        vocabulary.push_back(share.vocabulary);
      }
      expect_even(config.heads, std::lcm<std::int64_t>(config.head_dim, 128) / config.head_dim,
                  heads);
      for (const Slice& slice : columns) {
        EXPECT_TRUE(slice.last % 128 == 0 || slice.last == config.heads * config.head_dim);
      }
      expect_even(config.widest_mlp(), 128, mlp);
      expect_even(config.width, 64, stream);
      expect_even(config.vocab, 64, vocabulary);
    }
  }
}

TEST(Sharding, ARankHoldsTheKvHeadsThatItsQueriesReadAndFewOthers) {
  for (const ModelConfig& config : shapes()) {
    const std::int64_t group = config.heads / config.kv_heads;
    for (int ranks = 1; ranks <= 64; ++ranks) {
      SCOPED_TRACE(describe(config) + " on " + std::to_string(ranks));
      for (const RankShare& share : cut_model(config, ranks)) {
        const Slice kv = share.kv_heads({config.kv_heads, config.head_dim});
        if (share.heads.empty()) {
          EXPECT_TRUE(kv.empty());
          continue;
        }
        for (std::int64_t head = share.heads.first; head < share.heads.last; ++head) {
          EXPECT_LE(kv.first, head / group);
          EXPECT_LT(head / group, kv.last);
        }
        // Rows of k and v are cut at panel boundaries, and no slice is larger than necessary.
        EXPECT_EQ(kv.first * config.head_dim % 64, 0);
        EXPECT_TRUE(kv.last * config.head_dim % 64 == 0 || kv.last == config.kv_heads);
        const std::int64_t step = std::lcm<std::int64_t>(config.head_dim, 64) / config.head_dim;
        EXPECT_GT(kv.first + step, share.heads.first / group);
        EXPECT_LT(kv.last - step, (share.heads.last - 1) / group + 1);
      }
    }
  }
}

// Key heads of Gated DeltaNet whose rows are whole panels of 64 and whose outputs whole groups of
// 128.
TEST(Sharding, HybridsAreCutWhereKeyHeadsFillPanelsAndGroups) {
  struct Case {
    DeltaNetConfig delta;
    std::int64_t unit;
  };
  for (const Case& c :
       {Case{{.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128}, 1},
        {{.key_heads = 16, .value_heads = 16, .key_dim = 32, .value_dim = 64}, 2},
        {{.key_heads = 16, .value_heads = 16, .key_dim = 64, .value_dim = 32}, 4},
        {{.key_heads = 3, .value_heads = 6, .key_dim = 20, .value_dim = 128}, 3}}) {
    ModelConfig config = shape(4, 2, 64, 256, 512, 2048);
    config.layers.push_back({c.delta, DenseMlpConfig{.hidden = 512}});
    for (int ranks = 1; ranks <= 20; ++ranks) {
      SCOPED_TRACE(std::to_string(c.delta.key_dim) + " on " + std::to_string(ranks));
      std::vector<Slice> heads;
      for (const RankShare& share : cut_model(config, ranks)) heads.push_back(share.delta_heads);
      expect_even(c.delta.key_heads, c.unit, heads);
    }
  }
}

TEST(Sharding, LlamaOverEightRanksIsCutWhereItsHeadsAre) {
  const ModelConfig llama = shape(32, 32, 128, 4096, 11008, 32000);
  const std::vector<RankShare> shares = cut_model(llama, 8);
  EXPECT_EQ(shares[3].heads, (Slice{12, 16}));
  EXPECT_EQ(shares[3].kv_heads({32, 128}), (Slice{12, 16}));
  EXPECT_EQ(shares[0].mlp(11008), (Slice{0, 10 * 128}));  // 86 groups: ten or eleven per rank
  EXPECT_EQ(shares[7].mlp(11008), (Slice{75 * 128, 11008}));
  EXPECT_EQ(shares[1].stream, (Slice{512, 1024}));
  // The four query heads of one kv head are on two ranks.
  const std::vector<RankShare> sixteen = cut_model(shape(64, 8, 128, 8192, 28672, 128256), 16);
  EXPECT_EQ(sixteen[3].heads, (Slice{12, 16}));
  EXPECT_EQ(sixteen[3].kv_heads({8, 128}), (Slice{1, 2}));
  EXPECT_EQ(sixteen[2].kv_heads({8, 128}), (Slice{1, 2}));
}

}  // namespace
}  // namespace leq

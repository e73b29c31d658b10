// The bytes in a plan for described GPUs must be those that ranks really exchange and read.
#include "eval/rank_plan.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "eval/synthetic.h"
#include "model/ranks.h"
#include "model/session.h"
#include "platform/make_backend.h"

namespace leq {
namespace {

// Counts the bytes that the leader receives.
class CountingRanks : public Communicator {
 public:
  explicit CountingRanks(Communicator& ranks) : ranks_(ranks) {}
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  void gather(std::span<const SharedRows> blocks, Receivers to, std::string_view site) override {
    ++exchanges;
    for (const SharedRows& block : blocks) {
      for (std::size_t i = 0; i < block.parts.size(); ++i) {
        if (static_cast<int>(i) == rank()) continue;
        received += static_cast<std::uint64_t>(block.rows) * block.parts[i].count();
      }
    }
    ranks_.gather(blocks, to, site);
  }
  void broadcast(std::vector<std::byte>& bytes, std::string_view site) override {
    ranks_.broadcast(bytes, site);
  }
  void barrier(std::string_view site) override { ranks_.barrier(site); }
  Error abort(const Error& error) noexcept override { return ranks_.abort(error); }
  std::chrono::milliseconds patience() const override { return ranks_.patience(); }

  std::uint64_t received = 0;
  std::int64_t exchanges = 0;

 private:
  Communicator& ranks_;
};

constexpr RankMachine kMachine;

class RankPlans : public testing::TestWithParam<const char*> {
 protected:
  RankPlans() : pool_(1), model_(parse_synthetic(GetParam()), 128, pool_) {}

  RankPlan plan(int ranks, std::int64_t sequences) const {
    const auto bytes_of = [&](std::string_view name) { return model_.find(name)->bytes(); };
    const ColumnBytes column_bytes = {exchanged_bytes(model_.find("layers.0.o")->view),
                                      exchanged_bytes(model_.find("layers.0.down")->view)};
    return plan_ranks_on_paper(model_.config(), bytes_of, column_bytes, ranks, sequences, 64,
                               kMachine);
  }

  ThreadPool pool_;
  SyntheticModel model_;
};

TEST_P(RankPlans, ReceiveWhatRanksReceive) {
  constexpr int kRanks = 2;
  const auto find = [&](std::string_view name) { return model_.find(name); };
  RunLimits wanted;
  wanted.context = 128;
  const RunLimits limits = resolve_limits(wanted, model_.config());
  const auto bind = [&](Backend& backend, const RankPlace& place) {
    return load_weights(find, model_.name(), model_.config(), backend, limits, place);
  };
  std::vector<std::unique_ptr<Backend>> others;
  others.push_back(make_backend({.device = "cpu", .threads = 1}));
  ThreadFollowers followers(model_.config(), bind, std::move(others), limits, {.threads = kRanks});
  CountingRanks ranks(followers.leader());
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  Session session(model_.config(), bind(*backend, place_of(model_.config(), 0, kRanks)),
                  model_.weight_bytes(), *backend, limits, ranks);
  ranks.received = 0;
  ranks.exchanges = 0;
  const std::vector<Token> tokens = {7};
  session.feed(0, tokens);
  EXPECT_EQ(ranks.received, plan(kRanks, 1).received_bytes);
  EXPECT_EQ(ranks.exchanges, plan(kRanks, 1).exchanges);
}

TEST_P(RankPlans, DivideWeightsAndCache) {
  const RankPlan alone = plan(1, 8), two = plan(2, 8);
  // With 2 ranks, only panels of the vocabulary are divided unevenly for these shapes.
  const std::uint64_t panel = alone.weight_bytes / 100;
  EXPECT_GE(2 * two.weight_bytes, alone.weight_bytes);
  EXPECT_LE(2 * two.weight_bytes, alone.weight_bytes + panel);
  EXPECT_EQ(2 * two.kv_bytes, alone.kv_bytes);
  const ModelConfig& config = model_.config();
  EXPECT_EQ(alone.kv_bytes, static_cast<std::uint64_t>(8 * 64 * 2 * 2 * config.layer_count() *
                                                       config.kv_heads * config.head_dim));
  EXPECT_EQ(alone.exchange_seconds, 0);
  EXPECT_GT(two.tokens_per_second(), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, RankPlans,
                         testing::Values("synthetic:llama-110m:int8:layers=2",
                                         "synthetic:llama-110m:int4-g128:layers=2",
                                         "synthetic:llama-110m:uint4-g64:layers=2",
                                         "synthetic:llama-110m:f16:layers=2"));

// Memory, links and waits of this machine are round numbers, so that the plan is computed by hand.
TEST(RankPlan, AddsReadingAndWaiting) {
  const ModelConfig config = synthetic_config("llama-7b", 0);
  const std::uint64_t parameters = 1'000'000;  // parameters of each tensor
  const RankMachine machine = {.read_gbps = 1000,
                               .tera_ops = 1e9,
                               .ranks_per_node = 4,
                               .link_gbps = 1e9,
                               .link_microseconds = 10,
                               .network_gbps = 1e9,
                               .network_microseconds = 100};
  const auto plan = [&](int ranks) {
    return plan_ranks_on_paper(
        config, [](std::string_view) { return parameters; }, {4, 4}, ranks, 1, 0, machine);
  };
  // 32 blocks of 7 linears, and the head: 225 tensors.
  EXPECT_EQ(plan(1).weight_bytes, 225 * parameters);
  EXPECT_NEAR(plan(1).step_seconds(), 225e-6, 1e-9);
  EXPECT_NEAR(plan(4).exchange_seconds, (4 * 32 + 1) * 10e-6, 1e-9);
  EXPECT_NEAR(plan(8).exchange_seconds, (4 * 32 + 1) * 100e-6, 1e-9);
  EXPECT_NEAR(plan(4).reduce_seconds, (2 * 32 + 1) * 10e-6, 1e-9);
}

}  // namespace
}  // namespace leq

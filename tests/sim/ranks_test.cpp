// A model on several GPUs, mainly emulated ones: logits must equal one GPU's bit for bit, and with
// exact arithmetic the CPU's.
#include <gtest/gtest.h>

#include "base/error.h"
#include "gpu_devices.h"
#include "model/memory_plan.h"
#include "model/ranks.h"
#include "models_fixture.h"
#include "same_bits.h"
#include "shared_data.h"
#include "sim/engine.h"

namespace leq {
namespace {

using test::KvTypes;
using test::same_bits;

constexpr std::size_t kPrompt = 40, kSteps = 6, kChunk = 23;

RunLimits limits_of(const Model& model, KvTypes kv) {
  RunLimits limits;
  limits.context = std::min<std::int64_t>(128, model.config().context);
  limits.batch_tokens = 32;
  limits.output_tokens = 32;
  limits.key_type = kv.keys;
  limits.value_type = kv.values;
  limits.kv_recent = kv.recent;
  return resolve_limits(limits, model.config());
}

// Ranks with one device each.
struct GpuRanks {
  GpuRanks(const Model& model, const std::string& device, int ranks, Arithmetic arithmetic,
           const RunLimits& limits)
      : backend(backend_of(device, 0, ranks, arithmetic)),
        followers(model, others(device, ranks, arithmetic), limits, {.threads = ranks}),
        session(model, *backend, limits, followers.leader()) {}

  static std::unique_ptr<Backend> backend_of(const std::string& device, int rank, int ranks,
                                             Arithmetic arithmetic) {
    return make_backend({device, 1, {0, arithmetic, rank, ranks}});
  }
  static std::vector<std::unique_ptr<Backend>> others(const std::string& device, int ranks,
                                                      Arithmetic arithmetic) {
    std::vector<std::unique_ptr<Backend>> backends;
    for (int rank = 1; rank < ranks; ++rank) {
      backends.push_back(backend_of(device, rank, ranks, arithmetic));
    }
    return backends;
  }

  std::unique_ptr<Backend> backend;
  ThreadFollowers followers;
  Session session;
};

// Feeds a prompt in chunks, then tokens one by one, which are run, recorded and replayed.
std::vector<float> logits_of(Session& session) {
  Transformer& transformer = session.transformer();
  const std::int64_t vocab = transformer.config().vocab;
  const auto ids = test::ids_of(kPrompt + kSteps, vocab, 5);
  std::vector<float> all;
  for (std::size_t first = 0; first < ids.size();) {
    const std::size_t count = first < kPrompt ? std::min(kChunk, kPrompt - first) : 1;
    Batch batch;
    batch.add(0, ids.data() + first, static_cast<std::int64_t>(count), Batch::Want::all);
    const Rows& rows = transformer.forward(batch, session.state());
    std::vector<float> logits(count * static_cast<std::size_t>(vocab));
    transformer.backend().download(rows, static_cast<std::int64_t>(count), logits);
    all.insert(all.end(), logits.begin(), logits.end());
    first += count;
  }
  return all;
}

struct Case {
  const char* model;
  const char* type;
  KvTypes kv;
  ActChoice act = ActChoice::automatic;
  int ranks = 2;
};

constexpr KvTypes kF16 = {KvType::f16, KvType::f16}, kInt8 = {KvType::int8, KvType::int8},
                  kSimq4 = {KvType::simq4, KvType::simq4, 2};

constexpr ActChoice kAuto = ActChoice::automatic;

// These cases do not use tensor cores.
const Case kExactCases[] = {
    {"storyteller", "int8", kF16},
    {"storyteller", "int8", kSimq4, kAuto, 3},
    {"storyteller", "int4-g128", kInt8, kAuto, 3},
    {"storyteller", "int8", kF16, ActChoice::online},
    {"storyteller", "f32", kF16, kAuto, 3},
    {"gpt2-tiny", "int8", kInt8},
    {"gpt2-tiny", "int4-g128", kSimq4, kAuto, 3},
    {"mistral-tiny", "int8-g128", kSimq4, kAuto, 3},
    {"qwen2-tiny", "int3-g64", kInt8},
    {"qwen2-tiny", "int8", kF16, ActChoice::tensor, 3},
    {"qwen3-tiny", "int8", kF16},
    {"qwen3-tiny", "uint4-g64", kSimq4, ActChoice::row, 3},
    {"qwen35-tiny", "int8", kF16, kAuto, 3},
    {"qwen3moe-tiny", "int8-g128", kF16},
    {"qwen3moe-tiny", "int8", kInt8, kAuto, 3},
};
// These cases multiply split inputs, whose rows must be complete before they are split.
const Case kFastCases[] = {
    {"storyteller", "int8", kF16, kAuto, 3},
    {"storyteller", "int8", kInt8, ActChoice::none},
    {"storyteller", "int8", kSimq4},
    {"gpt2-tiny", "int4-g128", kInt8},
    {"mistral-tiny", "f16", kF16},
    {"qwen2-tiny", "int3-g64", kInt8, kAuto, 3},
    {"qwen2-tiny", "int8", kF16, ActChoice::online},
    {"qwen3-tiny", "bf16", kF16, kAuto, 3},
    {"qwen3-tiny", "int8", kF16},
    {"qwen35-tiny", "int4-g128", kF16},
};

class RanksOfGpus : public testing::TestWithParam<std::tuple<std::string, Case>> {
 protected:
  const std::string& device() const { return std::get<0>(GetParam()); }
  const Case& of() const { return std::get<1>(GetParam()); }
  void expect_logits(const Model& model, const std::vector<float>& want, Arithmetic arithmetic) {
    const int count = device() == "sim" ? of().ranks : 2;  // that there are devices for
    GpuRanks ranks(model, device(), count, arithmetic, limits_of(model, of().kv));
    EXPECT_TRUE(same_bits(want, logits_of(ranks.session))) << count << " ranks";
    EXPECT_GT(ranks.backend->step_counts().replayed, 0) << "no step was replayed";
  }
};

TEST_P(RanksOfGpus, GiveTheLogitsOfOne) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + of().model);
  const Model model(test::quantized(folder, of().type, of().act), {});
  const auto backend = GpuRanks::backend_of(device(), 0, 1, Arithmetic::fast);
  Session alone(model, *backend, limits_of(model, of().kv));
  expect_logits(model, logits_of(alone), Arithmetic::fast);
}

class ExactRanksOfGpus : public RanksOfGpus {};

TEST_P(ExactRanksOfGpus, GiveTheLogitsOfTheCpu) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + of().model);
  const Model model(test::quantized(folder, of().type, of().act), {});
  const auto backend = make_backend({"cpu", 1});
  Session alone(model, *backend, limits_of(model, of().kv));
  expect_logits(model, logits_of(alone), Arithmetic::exact);
}

std::string case_name(const testing::TestParamInfo<RanksOfGpus::ParamType>& info) {
  const auto& [device, c] = info.param;
  return test::test_name(device + "_" + c.model + "_" + c.type + "_" +
                         std::string(kv_type_name(c.kv.keys)) + "_act" +
                         std::to_string(static_cast<int>(c.act)));
}

INSTANTIATE_TEST_SUITE_P(Models, RanksOfGpus,
                         testing::Combine(testing::ValuesIn(test::gpu_devices()),
                                          testing::ValuesIn(kFastCases)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Models, ExactRanksOfGpus,
                         testing::Combine(testing::ValuesIn(test::gpu_devices()),
                                          testing::ValuesIn(kExactCases)),
                         case_name);

class GpuRanksDevices : public testing::TestWithParam<std::string> {};

// The memory of each rank's device must equal its plan, including the window for peers' data.
TEST_P(GpuRanksDevices, TakeTheMemoryOfTheirPlan) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int4-g128"), {});
  const RunLimits limits = limits_of(model, kF16);
  GpuRanks ranks(model, GetParam(), 2, Arithmetic::fast, limits);
  (void)logits_of(ranks.session);
  const MemoryPlan plan = ranks.session.plan();
  EXPECT_EQ(plan.total(), ranks.backend->memory().peak());
  const auto planned = [&](int count) {
    return MemoryPlanner(model, ranks.backend->layout(), place_of(model.config(), 0, count))
        .plan(limits);
  };
  EXPECT_EQ(planned(2).total(), plan.total());
  EXPECT_LT(planned(2).weight_bytes, planned(1).weight_bytes);
}

TEST_P(GpuRanksDevices, AnswerAlikeInOneSessionAfterAnother) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const RunLimits limits = limits_of(model, kF16);
  std::vector<float> first;
  for (int round = 0; round < 3; ++round) {
    GpuRanks ranks(model, GetParam(), 2, Arithmetic::fast, limits);
    const auto found = logits_of(ranks.session);
    if (round == 0) first = found;
    EXPECT_TRUE(same_bits(first, found));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, GpuRanksDevices, testing::ValuesIn(test::gpu_devices()),
                         [](const auto& item) { return test::test_name(item.param); });

}  // namespace
}  // namespace leq

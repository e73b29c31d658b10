// The memory of whole models on the emulated GPU: plans, memory that sessions leave allocated, and
// saved sequences that are moved to another device.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "case_names.h"
#include "errors.h"
#include "kv_numbers.h"
#include "model/memory_plan.h"
#include "model/session.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

RunLimits limits_of(const Model& model, KvType keys, KvType values, std::int64_t context) {
  RunLimits limits;
  limits.context = context;
  limits.batch_tokens = 70;
  limits.output_tokens = 3;
  limits.key_type = keys;
  limits.value_type = values;
  return resolve_limits(limits, model.config());
}
RunLimits limits_of(const Model& model, KvType kv, std::int64_t context) {
  return limits_of(model, kv, kv, context);
}

class SimMemory : public testing::TestWithParam<const char*> {};

TEST_P(SimMemory, ThePlanIsExactForEveryTypeOfWeights) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  const auto backend = make_backend({.device = "sim", .threads = 1});
  for (const char* type : {"f32", "int8", "int4-g128", "uint3-g64"}) {
    const Model model(test::quantized(folder, type), {.mode = LoadMode::map});
    const RunLimits limits = limits_of(model, KvType::int8, 300);
    const auto layout = make_layout({.device = "cuda:3"});  // neither present nor built
    const MemoryPlan planned = MemoryPlanner(model, *layout).plan(limits);
    const Session session(model, *backend, limits);
    EXPECT_EQ(backend->memory().allocated(), planned.total()) << type;
    EXPECT_EQ(session.plan().total(), planned.total()) << type;
    EXPECT_EQ(session.plan().weight_bytes, session.weights().memory_bytes) << type;
    EXPECT_GT(session.weights().upload.bytes, 0u) << type;
    std::uint64_t weights = 0;
    for (const Buffer& block : session.weights().memory) weights += block.size();
    EXPECT_EQ(weights, planned.weight_bytes) << type;
    const std::size_t before = backend->memory().allocated();
    const KvCache cache(backend->memory(), backend->layout(), kv_shape(model.config(), limits));
    EXPECT_EQ(backend->memory().allocated() - before, planned.kv_bytes) << type;
  }
  EXPECT_EQ(backend->memory().allocated(), 0u) << "nothing outlives the sessions";
}

TEST_P(SimMemory, ThePlanIsExactForEveryTypeOfTheCache) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  const auto backend = make_backend({.device = "sim", .threads = 1});
  const auto layout = make_layout({.device = "cuda"});
  const Model model(test::quantized(folder, "int8"), {.mode = LoadMode::map});
  for (const KvType kv : {KvType::simq4, KvType::int8, KvType::f16, KvType::f32}) {
    const RunLimits limits = limits_of(model, kv, 300);
    const MemoryPlan planned = MemoryPlanner(model, *layout).plan(limits);
    const Session session(model, *backend, limits);
    EXPECT_EQ(backend->memory().allocated(), planned.total()) << kv_type_name(kv);
    const std::size_t others = backend->memory().allocated();
    const KvCache cache(backend->memory(), backend->layout(),
                        kv_shape(model.config(), session.weights(), backend->layout(), limits));
    EXPECT_EQ(backend->memory().allocated() - others, planned.kv_bytes) << kv_type_name(kv);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SimMemory,
                         testing::Values("storyteller", "gpt2-tiny", "qwen3-tiny"),
                         test::named_by_text);

TEST(SimMemoryOf, PlansOfHybridsAndExpertsAreExact) {
  for (const char* name : {"qwen35-tiny", "qwen3moe-tiny"}) {
    LEQ_SHARED_OR_SKIP(folder, std::string("models/") + name);
    const auto layout = make_layout({.device = "cuda"});
    for (const char* type : {"int8", "int4-g64"}) {
      const auto backend = make_backend({.device = "sim", .threads = 1});
      const Model model(test::quantized(folder, type), {.mode = LoadMode::map});
      RunLimits limits = limits_of(model, KvType::int8, 300);
      limits.sequences = 2;
      limits = resolve_limits(limits, model.config());
      const MemoryPlan planned = MemoryPlanner(model, *layout).plan(limits);
      Session session(model, *backend, limits);
      EXPECT_EQ(backend->memory().allocated(), planned.total()) << name << " " << type;
      session.feed(0, std::vector<Token>(80, 7));
      session.feed(1, std::vector<Token>{3, 4});
      EXPECT_EQ(backend->memory().peak(), planned.total()) << name << " " << type;
    }
  }
}

TEST(SimMemoryOf, ASecondSessionHasAllTheRoomOfTheFirst) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {.mode = LoadMode::map});
  const auto backend = make_backend({.device = "sim", .threads = 1});
  const std::uint64_t before = backend->memory().info()->bytes;
  for (const std::int64_t context : {256, 1024, 64}) {
    Session session(model, *backend, limits_of(model, KvType::f16, context));
    session.feed(0, std::vector<Token>(2, 5));
    EXPECT_EQ(backend->memory().info()->bytes, before - session.plan().total());
  }
  EXPECT_EQ(backend->memory().info()->bytes, before);
}

TEST(SimMemoryOf, TheLargestContextThatFitsIsTheLargest) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {.mode = LoadMode::map});
  const auto backend = make_backend({.device = "sim", .threads = 1});
  const MemoryPlanner planner(model, backend->layout());
  for (const std::int64_t context : {64, 320, 960}) {
    const std::uint64_t memory = planner.plan(limits_of(model, KvType::f16, context)).total();
    RunLimits wanted = limits_of(model, KvType::f16, context);
    EXPECT_EQ(planner.largest_context(wanted, 1024, memory), context);
    EXPECT_EQ(planner.largest_context(wanted, 1024, memory - 1), context - kPageTokens);
    wanted.context = 0;
    const FittedLimits cut = planner.fit(wanted, {.bytes = memory, .total = 2 * memory}, "sim");
    EXPECT_EQ(cut.limits.context, context);
    EXPECT_NE(cut.note.find("cut to"), std::string::npos) << cut.note;
    wanted.context = 1024;
    EXPECT_THROW(planner.fit(wanted, {.bytes = memory, .total = 2 * memory}, "sim"), Error);
  }
}

TEST(SimMemoryOf, CachesOfTheCpuAloneAreRefused) {
  const auto layout = make_layout({.device = "cuda"});
  const auto refused = [&](KvPart part, KvType type) {
    return test::error_of([&] { (void)layout->page_bytes(part, type, 2, 64); });
  };
  for (const KvType type : {KvType::int4, KvType::simq8}) {
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      EXPECT_NE(refused(part, type).find("use int8 or simq4"), std::string::npos)
          << kv_type_name(type);
    }
  }
}

// A session that can be saved on one device and continued on another.
struct Player {
  Player(const char* device, const Model& of, KvType kv)
      : model(of), backend(make_backend({device, 1})) {
    session.emplace(model, *backend, limits_of(model, kv, 256));
  }
  std::vector<Token> continue_from(Token last, int count) {
    std::vector<Token> written;
    for (int i = 0; i < count; ++i) {
      const auto logits = session->feed(0, {&last, 1});
      last = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
      written.push_back(last);
    }
    return written;
  }

  const Model& model;
  std::unique_ptr<Backend> backend;
  std::optional<Session> session;
};

std::vector<Token> prompt_of(const std::filesystem::path& folder, std::size_t length) {
  const Json golden = parse_json(read_file(folder / "golden.json", 1 << 24), "golden.json");
  const auto ids = golden.at("prompts")[0].at("ids").get<std::vector<Token>>();
  std::vector<Token> prompt;
  while (prompt.size() < length) prompt.push_back(ids[prompt.size() % ids.size()]);
  return prompt;
}

// The text crosses a page's end, so a whole and a partial page are moved, and fixed-size states.
// Another device has another layout, and refuses the bytes.
TEST(SavedSequences, GoOnOnTheSameDeviceAlone) {
  for (const auto& [name, kv] : {std::pair{"qwen3-tiny", KvType::f16},
                                 {"qwen3-tiny", KvType::int8},
                                 {"qwen3-tiny", KvType::simq4},
                                 {"qwen35-tiny", KvType::f16}}) {
    LEQ_SHARED_OR_SKIP(folder, std::string("models/") + name);
    const Model model(test::quantized(folder, "int8"), {.mode = LoadMode::map});
    const std::vector<Token> prompt = prompt_of(folder, 69);
    Player cpu("cpu", model, kv), sim("sim", model, kv), other("sim", model, kv);
    sim.session->feed(0, std::span(prompt).first(prompt.size() - 1));
    const std::vector<std::byte> saved = sim.session->state().save(0);
    other.session->state().load(0, saved, "saved");
    EXPECT_EQ(other.session->state().save(0), saved) << "what was loaded is what is there";
    EXPECT_THROW(cpu.session->state().load(0, saved, "saved"), Error);
    EXPECT_EQ(other.continue_from(prompt.back(), 6), sim.continue_from(prompt.back(), 6))
        << name << " " << kv_type_name(kv);
  }
}

// Fixed-size states on the device are kept, restored and shared like those of the CPU.
TEST(FixedStatesOnADevice, AreRestoredAndForked) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen35-tiny");
  const Model model(test::quantized(folder, "int8"), {.mode = LoadMode::map});
  const std::vector<Token> prompt = prompt_of(folder, 20);
  const auto backend = make_backend({"sim", 1});
  RunLimits limits = limits_of(model, KvType::f16, 256);
  limits.sequences = 2;
  Session session(model, *backend, resolve_limits(limits, model.config()));
  const SequenceState state = session.state();
  const auto feed = [&](std::int32_t sequence, std::size_t first, std::size_t count) {
    const auto logits = session.feed(sequence, std::span(prompt).subspan(first, count));
    return std::vector<float>(logits.begin(), logits.end());
  };
  feed(0, 0, 12);
  state.checkpoint(0);
  const std::vector<float> want = feed(0, 12, 8);
  ASSERT_EQ(state.restore(0, 15), 12) << "the checkpoint before it";
  EXPECT_EQ(feed(0, 12, 8), want);
  ASSERT_EQ(state.restore(0, 12), 12);
  state.fork(0, 1);
  feed(0, 3, 5);
  EXPECT_EQ(feed(1, 12, 8), want) << "the fork has the state as it was";
}

// If attention is exact, keys, values and their codes in every layer must equal the CPU's.
TEST(KeysAndValues, OfPackedTypesHaveTheNumbersOfTheCpu) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {.mode = LoadMode::map});
  for (const auto& [keys, values] :
       {std::pair{KvType::simq4, KvType::int8}, {KvType::int8, KvType::simq4}}) {
    RunLimits limits = limits_of(model, keys, values, 256);
    limits.kv_recent = 20;
    std::vector<std::byte> of_cpu;
    for (const char* device : {"cpu", "sim"}) {
      const auto backend = make_backend({device, 1});
      Session session(model, *backend, limits);
      std::vector<Token> ids;
      for (Token i = 0; i < 150; ++i) ids.push_back(10 + 7 * i);
      session.feed(0, ids);
      const auto saved = test::kv_numbers(session.cache(), backend->memory(), backend->layout(), 0);
      if (of_cpu.empty()) of_cpu = saved;
      EXPECT_EQ(saved, of_cpu) << kv_type_name(keys) << " " << kv_type_name(values);
    }
  }
}

}  // namespace
}  // namespace leq

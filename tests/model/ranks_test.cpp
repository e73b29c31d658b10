// Several ranks compute the same bits as one: logits, hidden states and operations on a session's
// sequences, for every family, weight type, activation format and KV type. Also tests what happens
// when a rank fails.
#include "model/ranks.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "case_names.h"
#include "convert/hf_import.h"
#include "errors.h"
#include "format/leq_writer.h"
#include "models_fixture.h"
#include "ranks_fixture.h"
#include "reference/small_hybrid.h"
#include "same_bits.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq {
namespace {

using test::ids_of;
using test::same_bits;

RunLimits limits_of(const Model& model, KvType kv, int sequences) {
  RunLimits limits;
  limits.sequences = sequences;
  limits.context = std::min<std::int64_t>(model.config().context, 192) * sequences;
  limits.batch_tokens = 64;
  limits.output_tokens = 64;
  limits.key_type = limits.value_type = kv;
  return resolve_limits(limits, model.config());
}

// Appends the logits of all rows of a batch to `all`.
void run_batch(Session& session, const Batch& batch, std::vector<float>& all) {
  const auto rows = std::ssize(batch.outputs);
  const std::int64_t vocab = session.transformer().config().vocab;
  std::vector<float> logits(static_cast<std::size_t>(rows * vocab));
  const Rows& found = session.transformer().forward(batch, session.state());
  if (rows > 0) session.transformer().backend().download(found, rows, logits);
  all.insert(all.end(), logits.begin(), logits.end());
}

// Feeds a prompt in chunks of several sizes, and the last tokens one by one.
std::vector<float> prompt_logits(Session& session, int tokens) {
  const auto ids = ids_of(tokens, session.transformer().config().vocab, 1);
  std::vector<float> all;
  int first = 0;
  for (const int chunk : {33, 1, 1, 7, 64, 1, 1}) {
    const int count = std::min(chunk, tokens - first);
    if (count <= 0) break;
    Batch batch;
    batch.add(0, ids.data() + first, count, first < 34 ? Batch::Want::none : Batch::Want::all);
    run_batch(session, batch, all);
    first += count;
  }
  return all;
}

// Logits of sequences that fork within a page, continue differently, are truncated and grow again.
std::vector<float> forked_logits(Session& session) {
  const auto ids = ids_of(150, session.transformer().config().vocab, 2);
  std::vector<float> all;
  const SequenceState state = session.state();
  Batch batch;
  batch.add(0, ids.data(), 40, Batch::Want::last);
  run_batch(session, batch, all);
  state.fork(0, 1);
  state.fork(0, 2);
  batch.clear();
  batch.add(0, ids.data() + 40, 3, Batch::Want::all);
  batch.add(1, ids.data() + 80, 30, Batch::Want::last);
  batch.add(2, ids.data() + 110, 1, Batch::Want::all);
  run_batch(session, batch, all);
  (void)state.restore(1, 50);  // to its start, if there are fixed-size states
  state.fork(1, 0);
  batch.clear();
  batch.add(0, ids.data() + 50, 20, Batch::Want::last);
  batch.add(1, ids.data() + 5, 2, Batch::Want::all);
  run_batch(session, batch, all);
  batch.clear();
  batch.add(2, ids.data() + 7, 3, Batch::Want::none);
  run_batch(session, batch, all);
  batch.add(0, ids.data() + 9, 1, Batch::Want::all);
  run_batch(session, batch, all);
  return all;
}

constexpr int kTokens = 100;

void expect_one_rank(const Model& model, KvType kv, std::initializer_list<int> ranks) {
  const RunLimits limits = limits_of(model, kv, 1);
  test::RankedModel alone(model, 1, 1, limits);
  const auto want = prompt_logits(alone.session, kTokens);
  for (const int count : ranks) {
    test::RankedModel ranked(model, count, count == 2 ? 2 : 1, limits);
    EXPECT_TRUE(same_bits(want, prompt_logits(ranked.session, kTokens))) << count << " ranks";
  }
}

struct Case {
  const char* model;
  const char* type;
  KvType kv;
  ActChoice act = ActChoice::automatic;
};

const Case kCases[] = {
    {"storyteller", "f32", KvType::f32},
    {"storyteller", "int8", KvType::f16},
    {"storyteller", "int4-g128", KvType::int8},
    {"storyteller", "int8", KvType::simq4},
    {"storyteller", "int3-g128", KvType::f16},
    {"storyteller", "int8", KvType::f16, ActChoice::none},
    {"storyteller", "int8", KvType::f16, ActChoice::row},
    {"storyteller", "int8", KvType::f16, ActChoice::g128},
    {"storyteller", "int8", KvType::f16, ActChoice::tensor},
    {"storyteller", "int8", KvType::f16, ActChoice::online},
    {"storyteller", "int8", KvType::f16, ActChoice::streaming},
    {"storyteller", "uint4-g64", KvType::f16, ActChoice::row},
    {"storyteller", "uint8", KvType::f16, ActChoice::tensor},
    {"gpt2-tiny", "f32", KvType::f32},
    {"gpt2-tiny", "int8", KvType::int8},
    {"gpt2-tiny", "int4-g128", KvType::simq4},
    {"mistral-tiny", "f16", KvType::f16},
    {"mistral-tiny", "int8-g128", KvType::simq4},
    {"mistral-tiny", "int8", KvType::int8, ActChoice::online},
    {"qwen2-tiny", "bf16", KvType::f32},
    {"qwen2-tiny", "int8", KvType::int8},
    {"qwen2-tiny", "int4-g128", KvType::simq4},
    {"qwen2-tiny", "int8", KvType::f16, ActChoice::tensor},
    {"qwen2-tiny-kbias", "int8", KvType::simq4},
    {"qwen3-tiny", "f32", KvType::f16},
    {"qwen3-tiny", "int8", KvType::int8},
    {"qwen3-tiny", "uint2-g64", KvType::simq4},
    {"qwen3-tiny", "int8", KvType::simq2},
    {"qwen3moe-tiny", "f32", KvType::f16},
    {"qwen3moe-tiny", "int8", KvType::int8},
    {"qwen35-tiny", "f32", KvType::f32},
    {"qwen35-tiny", "int8", KvType::f16},
    {"qwen3moe-tiny", "int8", KvType::f16, ActChoice::row},
    {"qwen3moe-tiny", "int4-g32", KvType::simq4},
    {"qwen3moe-tiny", "iq4_nl", KvType::f16},
    {"gemma-3", "int8", KvType::int8},
    {"gemma-3", "int4-g32", KvType::simq4},
    {"gpt-oss", "int8", KvType::f16},
    {"gpt-oss", "int4-g32", KvType::simq2},
    {"smollm3", "int8", KvType::int4},
    {"smollm3", "f32", KvType::simq8},
    {"granite", "int8", KvType::simq4},
    {"granite", "f32", KvType::int8},
    {"phi-3", "int8", KvType::f16},
    {"phi-3", "int4-g32", KvType::int4},
};

class RanksOf : public ::testing::TestWithParam<std::size_t> {};

// One half of the numbers of ranks for each case, the other half for the next.
TEST_P(RanksOf, GiveTheLogitsOfOne) {
  const Case& c = kCases[GetParam()];
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + c.model);
  const Model model(test::quantized(folder, c.type, c.act), {});
  if (GetParam() % 2 == 0) {
    expect_one_rank(model, c.kv, {2, 8});
  } else {
    expect_one_rank(model, c.kv, {3, 4});
  }
}

class SequencesOfRanks : public ::testing::TestWithParam<Case> {};

TEST_P(SequencesOfRanks, AreThoseOfOne) {
  const Case& c = GetParam();
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + c.model);
  const Model model(test::quantized(folder, c.type, c.act), {});
  const RunLimits limits = limits_of(model, c.kv, 3);
  test::RankedModel alone(model, 1, 1, limits);
  const auto want = forked_logits(alone.session);
  for (const int count : {2, 3}) {
    test::RankedModel ranked(model, count, 1, limits);
    EXPECT_TRUE(same_bits(want, forked_logits(ranked.session))) << count << " ranks";
  }
}

std::string name_of(const Case& c) {
  return test::test_name(std::string(c.model) + "_" + c.type + "_" +
                         std::string(kv_type_name(c.kv)) + "_act" +
                         std::to_string(static_cast<int>(c.act)));
}

INSTANTIATE_TEST_SUITE_P(Models, RanksOf, ::testing::Range<std::size_t>(0, std::size(kCases)),
                         [](const auto& item) { return name_of(kCases[item.param]); });

INSTANTIATE_TEST_SUITE_P(Models, SequencesOfRanks,
                         ::testing::Values(Case{"storyteller", "f32", KvType::f32},
                                           Case{"storyteller", "int8", KvType::simq4},
                                           Case{"storyteller", "int4-g128", KvType::int8},
                                           Case{"gpt2-tiny", "int8", KvType::f16},
                                           Case{"mistral-tiny", "int8", KvType::simq4},
                                           Case{"qwen2-tiny", "int8", KvType::int8},
                                           Case{"qwen2-tiny-kbias", "int8", KvType::simq4},
                                           Case{"qwen3-tiny", "int4-g128", KvType::simq4},
                                           Case{"qwen35-tiny", "int8", KvType::f16},
                                           Case{"qwen3moe-tiny", "int8", KvType::f16},
                                           Case{"gemma-3", "int8", KvType::f16},
                                           Case{"gpt-oss", "int8", KvType::simq4}),
                         [](const auto& item) { return name_of(item.param); });

// Each rank has some of the rows of each expert.
TEST(RanksOfExperts, GiveTheLogitsOfOne) {
  const test::TemporaryFolder folder;
  test::RandomCheckpoint checkpoint(folder.path() / "hf");
  Json config = test::small_config("mixtral", "MixtralForCausalLM");
  config["hidden_size"] = 192;
  config["intermediate_size"] = 520;
  config["max_position_embeddings"] = 192;
  config["num_local_experts"] = 5;
  config["num_experts_per_tok"] = 3;
  checkpoint.add_llama(config, {.experts = test::RandomCheckpoint::Experts::mixtral});
  const auto hf = checkpoint.write(config);
  for (const auto& [type, act] :
       {std::pair("f32", ActChoice::automatic), std::pair("int8", ActChoice::row),
        std::pair("int8", ActChoice::g128), std::pair("int4-g128", ActChoice::automatic)}) {
    SCOPED_TRACE(type);
    QuantizeOptions options;
    options.type = type;
    options.act = act;
    options.threads = 1;
    const auto path = folder.path() / "experts.leq";
    quantize_checkpoint(hf, path, options);
    const Model model(path, {});
    expect_one_rank(model, KvType::f16, {2, 3, 4});
  }
}

// One scale for all rows would require the largest input of a step's experts over all ranks.
TEST(RanksOfExperts, OneScaleForAllInputsIsRefusedByName) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen3moe-tiny");
  const Model model(test::quantized(folder, "int8", ActChoice::online), {});
  const RunLimits limits = limits_of(model, KvType::f16, 1);
  EXPECT_NO_THROW(test::RankedModel(model, 1, 1, limits));
  test::expect_error([&] { const test::RankedModel ranked(model, 2, 1, limits); },
                     {"act tensor and act online of experts"});
}

// Creates Gated DeltaNet with `group` value heads for each of `key_heads`, all of size `dims`.
Model hybrid_of(const test::TemporaryFolder& folder, int key_heads, int group,
                const QuantizeOptions& options, int dims = 64) {
  test::RandomCheckpoint checkpoint(folder.path() / "hf");
  Json config = test::small_hybrid_config({key_heads, key_heads * group, dims, dims});
  config["hidden_size"] = 192;
  config["intermediate_size"] = 300;
  config["head_dim"] = 64;
  config["max_position_embeddings"] = 192;
  checkpoint.add_qwen3_5(config, test::RandomCheckpoint::Experts::none);
  const auto path = folder.path() / "hybrid.leq";
  quantize_checkpoint(checkpoint.write(config), path, options);
  return Model(path, {});
}

Model lfm2_of(const test::TemporaryFolder& folder, const QuantizeOptions& options) {
  test::RandomCheckpoint checkpoint(folder.path() / "hf");
  Json config = test::small_lfm2_config(512);
  config["max_position_embeddings"] = 192;
  checkpoint.add_lfm2(config);
  const auto path = folder.path() / "lfm2.leq";
  quantize_checkpoint(checkpoint.write(config), path, options);
  return Model(path, {});
}

TEST(RanksOfHybrids, GiveTheLogitsOfOne) {
  struct Shape {
    int key_heads, group, dims;
  };
  // In the last shape, panels contain rows of both q and k, so one rank has all of them.
  constexpr Shape kShapes[] = {{4, 1, 64}, {4, 2, 64}, {3, 3, 64}, {2, 2, 16}};
  for (const Shape& shape : kShapes) {
    for (const auto& [type, act] :
         {std::pair("f32", ActChoice::automatic), std::pair("int8", ActChoice::g128),
          std::pair("int8", ActChoice::row), std::pair("int4-g128", ActChoice::automatic)}) {
      SCOPED_TRACE(std::to_string(shape.key_heads) + " key heads of " + std::to_string(shape.dims) +
                   ", ratio " + std::to_string(shape.group) + " " + type);
      const test::TemporaryFolder folder;
      QuantizeOptions options;
      options.type = type;
      options.act = act;
      options.threads = 1;
      const Model model = hybrid_of(folder, shape.key_heads, shape.group, options, shape.dims);
      expect_one_rank(model, KvType::f16, {2, 3, 4});
      if (&shape != &kShapes[0]) continue;
      expect_one_rank(lfm2_of(folder, options), KvType::f16, {2, 3, 5});
    }
  }
}

// Tests the states of several ranks, their saved bytes, and the memory that they use.
void expect_shared_states(const Model& model) {
  const RunLimits limits = limits_of(model, KvType::f16, 3);
  test::RankedModel alone(model, 1, 1, limits);
  const auto want = forked_logits(alone.session);
  const auto saved_by_one = alone.session.state().save(2);
  const auto ids = ids_of(9, model.config().vocab, 5);
  const auto next = [&](Session& session, std::int32_t sequence) {
    const auto logits = session.feed(sequence, ids);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const auto after = next(alone.session, 2);
  for (const int count : {2, 3, 4}) {
    SCOPED_TRACE(std::to_string(count) + " ranks");
    test::RankedModel ranked(model, count, 1, limits);
    EXPECT_TRUE(same_bits(want, forked_logits(ranked.session)));
    const auto saved = ranked.session.state().save(2);
    ranked.session.state().drop(0);
    EXPECT_THROW(ranked.session.state().load(0, saved_by_one, "of one rank"), Error);
    ranked.session.state().load(0, saved, "saved");
    EXPECT_TRUE(same_bits(after, next(ranked.session, 0)));
    const MemoryPlan &plan = ranked.session.plan(), &whole = alone.session.plan();
    EXPECT_EQ(ranked.backend->memory().peak(),
              plan.kv_bytes + plan.state_bytes + plan.scratch_bytes);
    if (count != 3) {
      EXPECT_EQ(plan.state_bytes, whole.state_bytes / static_cast<std::uint64_t>(count));
    }
  }
}

TEST(RanksOfHybrids, ShareStates) {
  const test::TemporaryFolder folder;
  QuantizeOptions options;
  options.type = "int8";
  options.threads = 1;
  expect_shared_states(hybrid_of(folder, 4, 2, options));
  expect_shared_states(lfm2_of(folder, options));
}

// In these shapes, ranks share kv heads, have heads only because of whole panels, or have none.
struct Odd {
  const char* name;
  int heads, kv_heads, head_dim, width, hidden, vocab;
};

class OddRanks : public ::testing::TestWithParam<Odd> {};

TEST_P(OddRanks, GiveTheLogitsOfOne) {
  const Odd& odd = GetParam();
  const test::TemporaryFolder folder;
  test::RandomCheckpoint checkpoint(folder.path() / "hf");
  const Json config = test::small_config_with({{"hidden_size", odd.width},
                                               {"intermediate_size", odd.hidden},
                                               {"num_attention_heads", odd.heads},
                                               {"num_key_value_heads", odd.kv_heads},
                                               {"head_dim", odd.head_dim},
                                               {"vocab_size", odd.vocab},
                                               {"max_position_embeddings", 192}});
  checkpoint.add_llama(config, {});
  const auto hf = checkpoint.write(config);
  for (const auto& [type, kv] : {std::pair("f32", KvType::f32), std::pair("int8", KvType::int8),
                                 std::pair("int4-g128", KvType::simq4)}) {
    SCOPED_TRACE(type);
    QuantizeOptions options;
    options.type = type;
    options.threads = 1;
    const auto path = folder.path() / "odd.leq";
    quantize_checkpoint(hf, path, options);
    const Model model(path, {});
    if (kv == KvType::int8) {
      expect_one_rank(model, kv, {3, 4, 7});
    } else {
      expect_one_rank(model, kv, {2, 5});
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, OddRanks,
                         ::testing::Values(Odd{"SevenQueriesAKvHead", 14, 2, 64, 192, 448, 131},
                                           Odd{"FewKvHeads", 16, 2, 128, 256, 700, 515},
                                           Odd{"OneKvHead", 7, 1, 64, 128, 130, 128},
                                           Odd{"NarrowHeads", 40, 20, 16, 128, 256, 200},
                                           Odd{"OddHeads", 20, 4, 80, 160, 1000, 333}),
                         [](const auto& item) { return std::string(item.param.name); });

TEST(Ranks, GiveTheHiddenStatesOfOne) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const RunLimits limits = limits_of(model, KvType::f16, 1);
  const auto ids = ids_of(30, model.config().vocab, 3);
  Batch batch;
  batch.add(0, ids.data(), 30, Batch::Want::all);
  std::vector<float> want(static_cast<std::size_t>(30 * model.config().width)), found = want;
  test::RankedModel alone(model, 1, 1, limits), ranked(model, 3, 1, limits);
  const auto hidden = [&](test::RankedModel& on, std::vector<float>& out) {
    const Rows& rows = on.session.transformer().hidden(batch, on.session.state());
    on.backend->download(rows, 30, out);
  };
  hidden(alone, want);
  hidden(ranked, found);
  EXPECT_TRUE(same_bits(want, found));
}

// Writes a checkpoint in which one row of a weight overflows, so that a known rank fails.
std::filesystem::path broken_model(const test::TemporaryFolder& folder, const std::string& tensor,
                                   std::int64_t row) {
  test::RandomCheckpoint checkpoint(folder.path() / "hf");
  const Json config = test::small_config_with({{"hidden_size", 256},
                                               {"intermediate_size", 512},
                                               {"num_attention_heads", 4},
                                               {"num_key_value_heads", 4},
                                               {"vocab_size", 256}});
  checkpoint.add_llama(config, {});
  const ImportedModel source = import_hf(checkpoint.write(config));
  const auto path = folder.path() / "broken.leq";
  LeqWriter writer(path);
  for (const TensorInput& one : source.tensors) {
    const std::int64_t rows = one.shape.size() == 2 ? one.shape[0] : 1;
    std::vector<float> values(static_cast<std::size_t>(rows * one.shape.back()));
    one.read(0, one.shape[0], values);
    if (one.name == tensor) {
      std::fill_n(values.begin() + row * one.shape.back(), one.shape.back(),
                  std::numeric_limits<float>::max());
    }
    writer.add_tensor(
        one.name, one.shape,
        pack_weight(values, rows, one.shape.back(), QuantScheme{}, ActKind::none, one.name), {});
  }
  writer.finish({{"config", config_to_json(source.config)},
                 {"generation", Json::object()},
                 {"provenance", {{"type", "f32"}}}});
  return path;
}

TEST(Ranks, ARankThatFailsEndsAllWithItsNumberAndStep) {
  // The last query head's weights are on the last rank, which detects non-finite values.
  const test::TemporaryFolder folder;
  const Model model(broken_model(folder, "layers.1.q", 255), {});
  for (const int ranks : {2, 3}) {
    const RunLimits limits = limits_of(model, KvType::f32, 1);
    test::RankedModel ranked(model, ranks, 1, limits);
    std::vector<float> all;
    Batch batch;
    const Token id = 3;
    batch.add(0, &id, 1, Batch::Want::last);
    for (int attempt = 0; attempt < 2; ++attempt) {  // the second finds them ended
      const std::string text = test::error_of([&] { run_batch(ranked.session, batch, all); });
      const std::string rank = "rank " + std::to_string(ranks - 1) + " of " +
                               std::to_string(ranks) + ": step 1: input of attention";
      EXPECT_TRUE(text.starts_with(rank)) << text;
    }
  }
}

TEST(Ranks, ALeaderThatFailsEndsAll) {
  const test::TemporaryFolder folder;
  const Model model(broken_model(folder, "layers.0.q", 0), {});
  test::RankedModel ranked(model, 2, 1, limits_of(model, KvType::f32, 1));
  std::vector<float> all;
  Batch batch;
  const Token id = 3;
  batch.add(0, &id, 1, Batch::Want::last);
  const std::string text = test::error_of([&] { run_batch(ranked.session, batch, all); });
  EXPECT_TRUE(text.starts_with("rank 0 of 2: step 1:")) << text;
}

// If the leader refuses a batch before its step begins, the ranks continue.
TEST(Ranks, GoOnAfterABatchThatWasRefused) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const RunLimits limits = limits_of(model, KvType::f16, 1);
  test::RankedModel alone(model, 1, 1, limits), ranked(model, 2, 1, limits);
  Batch batch;
  const auto ids = ids_of(60, model.config().vocab, 4);
  std::vector<float> all, want;
  for (int i = 0; i < 3; ++i) {
    batch.clear();
    batch.add(0, ids.data(), 60, Batch::Want::none);
    run_batch(ranked.session, batch, all);
    run_batch(alone.session, batch, want);
  }
  EXPECT_THROW(run_batch(ranked.session, batch, all), Error);  // the context is full
  ranked.session.cache().clear(0);
  alone.session.cache().clear(0);
  EXPECT_TRUE(same_bits(prompt_logits(alone.session, 50), prompt_logits(ranked.session, 50)));
}

class SavedByRanks : public ::testing::TestWithParam<Case> {};

// Ranks continue from a sequence that as many ranks saved, with the logits of one rank. Another
// number of ranks refuses it.
TEST_P(SavedByRanks, GoesOnWithAsManyRanks) {
  const Case& c = GetParam();
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + c.model);
  const Model model(test::quantized(folder, c.type, c.act), {});
  const RunLimits limits = limits_of(model, c.kv, 2);
  const auto ids = ids_of(160, model.config().vocab, 5);
  const auto feed = [&](Session& session, std::int32_t sequence, std::size_t first,
                        std::size_t count) {
    const auto logits = session.feed(sequence, std::span(ids).subspan(first, count));
    return std::vector<float>(logits.begin(), logits.end());
  };
  std::vector<float> want;
  std::vector<std::byte> of_others;
  for (const int ranks : {1, 2, 3, 8}) {
    test::RankedModel writer(model, ranks, 1, limits), reader(model, ranks, 1, limits);
    (void)feed(writer.session, 1, 100, 7);  // so that page numbers differ
    (void)feed(writer.session, 0, 0, 90);
    const auto saved = writer.session.state().save(0);
    const auto logits = feed(writer.session, 0, 90, 3);
    if (ranks == 1) want = logits;
    EXPECT_TRUE(same_bits(want, logits)) << ranks << " ranks after saving";
    (void)feed(reader.session, 0, 50, 30);
    if (ranks > 1) {
      EXPECT_THROW(reader.session.state().load(1, of_others, "of others"), Error);
    }
    reader.session.state().load(1, saved, "the saved sequence");
    EXPECT_EQ(reader.session.cache().length(1), 90);
    EXPECT_TRUE(same_bits(want, feed(reader.session, 1, 90, 3))) << ranks << " ranks";
    of_others = saved;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SavedByRanks,
                         ::testing::Values(Case{"storyteller", "f32", KvType::f32},
                                           Case{"storyteller", "int8", KvType::simq4},
                                           Case{"gpt2-tiny", "int8", KvType::int8},
                                           Case{"mistral-tiny", "int8", KvType::f16},
                                           Case{"qwen2-tiny", "int8", KvType::int4},
                                           Case{"qwen2-tiny-kbias", "int8", KvType::int8},
                                           Case{"qwen3-tiny", "int8", KvType::simq2},
                                           Case{"qwen35-tiny", "int8", KvType::f16},
                                           Case{"qwen3moe-tiny", "int8", KvType::f16},
                                           Case{"gemma-3", "int8", KvType::simq4},
                                           Case{"gpt-oss", "int8", KvType::int8}),
                         [](const auto& item) { return name_of(item.param); });

// A saved sequence that the leader refuses does not end the ranks, as with steps.
TEST(Ranks, GoOnAfterASavedSequenceThatWasRefused) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const RunLimits limits = limits_of(model, KvType::f16, 1);
  test::RankedModel alone(model, 1, 1, limits), ranked(model, 2, 1, limits);
  const auto want = prompt_logits(alone.session, 50);
  (void)prompt_logits(ranked.session, 50);
  auto saved = ranked.session.cache().save(0);
  saved.pop_back();
  EXPECT_THROW(ranked.session.cache().load(0, saved, "cut"), Error);
  ranked.session.cache().clear(0);
  EXPECT_TRUE(same_bits(want, prompt_logits(ranked.session, 50)));
}

TEST(Ranks, DivideTheirThreads) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int threads = 1; threads <= 20; ++threads) {
      int sum = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const int own = threads_of_rank(threads, rank, ranks);
        EXPECT_GE(own, 1);
        EXPECT_LE(own, threads / ranks + 1);
        sum += own;
      }
      EXPECT_EQ(sum >= threads, true);
      if (threads >= ranks) {
        EXPECT_EQ(sum, threads);
      }
    }
  }
}

// The memory that a rank uses must equal its plan.
TEST(Ranks, TakeTheMemoryThatIsPlanned) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const RunLimits limits = limits_of(model, KvType::simq4, 2);
  std::uint64_t kv_bytes = 0;
  for (const int ranks : {1, 2}) {
    test::RankedModel ranked(model, ranks, 1, limits);
    (void)prompt_logits(ranked.session, 50);
    const MemoryPlan& plan = ranked.session.plan();
    EXPECT_EQ(ranked.backend->memory().peak(), plan.kv_bytes + plan.scratch_bytes);
    if (ranks == 1) kv_bytes = plan.kv_bytes;
    EXPECT_EQ(plan.kv_bytes, kv_bytes / static_cast<std::uint64_t>(ranks));
  }
}

}  // namespace
}  // namespace leq

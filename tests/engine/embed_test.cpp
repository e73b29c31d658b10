// Embeddings are the hidden states that the head reads. The test multiplies them by the
// checkpoint's embedding table, which is also the storyteller's head, and compares the logits with
// a naive transformer in double.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "engine/engine.h"
#include "errors.h"
#include "models_fixture.h"
#include "ranks_fixture.h"
#include "reference/model_tensors.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

constexpr double kTolerance = 1e-2;  // f32 with its roundings against double; logits reach 20

std::unique_ptr<Session> session_of(const Model& model, Backend& backend, std::int64_t batch,
                                    int sequences = 2) {
  RunLimits limits;
  limits.context = 256;
  limits.sequences = sequences;
  limits.sequence_context = 256;
  limits.batch_tokens = limits.output_tokens = batch;
  return std::make_unique<Session>(model, backend, resolve_limits(limits, model.config()));
}

// Checks all positions by computing logits with the checkpoint's own head.
void expect_what_the_head_reads(const std::filesystem::path& folder) {
  const Model model(test::quantized(folder, "f32"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 2});
  const auto ids =
      model.tokenizer().encode("Once upon a time a fox met a crow.", {.add_bos = true});
  const test::ModelTensors tensors = test::read_tensors(import_hf(folder));
  const test::Logits expected = test::naive_logits(tensors, ids);
  const Matrix* table = tensors.find(model.config().tied ? "token_embedding" : "head");
  ASSERT_NE(table, nullptr);
  const auto session = session_of(model, *backend, 64);
  Batch batch;
  batch.add(0, ids.data(), std::ssize(ids), Batch::Want::all);
  const auto width = static_cast<std::size_t>(model.config().width);
  std::vector<float> rows(ids.size() * width);
  backend->download(session->transformer().hidden(batch, session->state()), std::ssize(ids), rows);
  for (std::size_t t = 0; t < ids.size(); ++t) {
    for (std::size_t v = 0; v < expected[t].size(); v += 7) {
      double logit = 0;
      for (std::size_t k = 0; k < width; ++k) {
        logit += double{rows[t * width + k]} * double{table->values[v * width + k]};
      }
      ASSERT_NEAR(logit, expected[t][v], kTolerance) << "position " << t << ", token " << v;
    }
  }
  Engine engine(*session, model.tokenizer(), {});
  session->state().drop(0);
  const std::vector<float> mean = engine.embed(ids);
  for (std::size_t k = 0; k < width; ++k) {
    double sum = 0;
    for (std::size_t t = 0; t < ids.size(); ++t) sum += double{rows[t * width + k]};
    EXPECT_NEAR(mean[k], sum / static_cast<double>(ids.size()), 1e-5) << k;
  }
  const auto chunks = session_of(model, *backend, 3);
  Engine in_chunks(*chunks, model.tokenizer(), {});
  EXPECT_EQ(in_chunks.embed(ids), mean);
  for (Engine* one : {&engine, &in_chunks}) {
    EXPECT_EQ(one->embed(ids, Pooling::last),
              std::vector<float>(rows.end() - std::ssize(mean), rows.end()));
    EXPECT_EQ(one->embed(ids, Pooling::cls),
              std::vector<float>(rows.begin(), rows.begin() + std::ssize(mean)));
    EXPECT_EQ(one->embed(ids, Pooling::none), rows);
    EmbeddedText judged = {.tokens = ids, .pooling = Pooling::rank, .answers = {7, 300}};
    while (!judged.done()) one->embed_chunk(judged);
    ASSERT_EQ(judged.values.size(), 2u);
    EXPECT_NEAR(judged.values[0], expected.back()[7], kTolerance);
    EXPECT_NEAR(judged.values[1], expected.back()[300], kTolerance);
  }
}

TEST(EmbeddingsOfModels, AreWhatTheHeadReads) {
  expect_what_the_head_reads(std::string(LEQ_SOURCE_DIR) + "/examples/storyteller");
}

TEST(EmbeddingsOfModels, AreWhatTheHeadReadsOfHybridsAndExperts) {
  for (const std::string name : {"qwen35-tiny", "qwen3moe-tiny"}) {
    SCOPED_TRACE(name);
    LEQ_SHARED_OR_SKIP(folder, "models/" + name);
    expect_what_the_head_reads(folder);
  }
}

// Like EmbeddingGemma: attention in both directions, also within windows; a projection after
// pooling.
TEST(EmbeddingsOfModels, OfBothDirectionsAreThoseOfSentenceTransformers) {
  const std::filesystem::path folder =
      std::filesystem::path(LEQ_SOURCE_DIR) / "tests/golden/embedding-gemma";
  const Json golden = parse_json(read_file(folder / "golden.json", 1 << 20), "golden.json");
  const Model model(test::quantized(folder, "f32"), {});
  EXPECT_EQ(model.embedding(), (EmbeddingRules{.pooling = Pooling::mean, .normalize = true}));
  RunLimits limits;
  limits.context = 128;
  limits.batch_tokens = 7;  // a text needs a step for all of its tokens
  limits.key_type = limits.value_type = KvType::f32;
  limits = resolve_limits(limits, model.config());
  const auto one = make_backend({.device = "cpu", .threads = 1});
  const auto two = make_backend({.device = "cpu", .threads = 2});
  Session alone(model, *one, limits), session(model, *two, limits);
  test::RankedModel ranked(model, 2, 1, limits);
  Engine engine(session, model.tokenizer(), {}), first(alone, model.tokenizer(), {}),
      ranks(ranked.session, model.tokenizer(), {});
  for (const Json& text : golden["texts"]) {
    std::vector<Token> ids;
    for (int i = 0; i < text["length"].get<int>(); ++i) {
      ids.push_back((i * i * 7 + i * 13 + i / 5) % 94);
    }
    const std::vector<float> have = engine.embed(ids);
    const auto want = text["embedding"].get<std::vector<double>>();
    ASSERT_EQ(have.size(), want.size());
    double squares = 0;
    for (const float x : have) squares += double{x} * double{x};
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(have[i] / std::sqrt(squares), want[i], 2e-5) << ids.size() << " tokens, " << i;
    }
    EXPECT_EQ(first.embed(ids), have);
    EXPECT_EQ(ranks.embed(ids), have);
  }
  EXPECT_THROW(engine.embed(std::vector<Token>(200, 5)), Error) << "longer than the context";
  Batch batch;
  const Token id = 5;
  batch.add(0, &id, 1, Batch::Want::last);
  test::expect_error([&] { session.transformer().forward(batch, session.state()); },
                     {"both directions", "no text"});
  EngineRequest request;
  request.prompt = {5, 6};
  test::expect_error([&] { engine.submit(std::move(request)); }, {"both directions", "no text"});
  limits.key_type = KvType::simq4;  // not for a cache that lives for one step
  limits = resolve_limits(limits, model.config());
  EXPECT_EQ(limits.key_type, KvType::f16);
  EXPECT_EQ(limits.value_type, KvType::f16);
}

class Embeddings : public testing::Test {
 protected:
  Embeddings()
      : folder_(std::string(LEQ_SOURCE_DIR) + "/examples/storyteller"),
        model_(test::quantized(folder_, "f32"), {}),
        backend_(make_backend({.device = "cpu", .threads = 2})),
        ids_(model_.tokenizer().encode("Once upon a time a fox met a crow.", {.add_bos = true})) {}

  std::filesystem::path folder_;
  Model model_;
  std::unique_ptr<Backend> backend_;
  std::vector<Token> ids_;
};

TEST_F(Embeddings, DoNotDependOnChunksOrOnWhatElseIsWritten) {
  const auto whole = session_of(model_, *backend_, 64);
  Engine engine(*whole, model_.tokenizer(), {});
  const std::vector<float> expected = engine.embed(ids_);
  const auto cut = session_of(model_, *backend_, 3);
  Engine other(*cut, model_.tokenizer(), {});
  EngineReply ended;
  EngineRequest request;
  request.prompt = ids_;
  request.sampling.temperature = 0;
  request.stop.max_tokens = 12;
  request.on_end = [&](const EngineReply& reply) { ended = reply; };
  EngineRequest alone = request;
  engine.submit(std::move(alone));
  while (engine.step()) {
  }
  const std::vector<Token> reply = ended.tokens;
  other.submit(std::move(request));
  for (int i = 0; i < 8; ++i) other.step();
  EXPECT_EQ(other.embed(ids_), expected);
  while (other.step()) {
  }
  EXPECT_EQ(ended.tokens, reply);
}

// Between two chunks of the text, a reply gets a token; the text keeps its sequence meanwhile.
TEST_F(Embeddings, ComeChunkByChunkBetweenSteps) {
  const auto whole = session_of(model_, *backend_, 64);
  Engine engine(*whole, model_.tokenizer(), {});
  const std::vector<float> expected = engine.embed(ids_);
  const auto cut = session_of(model_, *backend_, 4);
  Engine other(*cut, model_.tokenizer(), EngineOptions{.speculate = false});
  std::int64_t written = 0, ended = 0;
  const auto submit = [&] {
    EngineRequest request;
    request.prompt = {ids_.begin(), ids_.begin() + 3};
    request.stop.max_tokens = 20;
    request.on_tokens = [&](std::span<const Token> tokens) { written += std::ssize(tokens); };
    request.on_end = [&](const EngineReply&) { ++ended; };
    other.submit(std::move(request));
  };
  submit();
  other.step();
  submit();  // of two sequences, the text takes the second one
  EmbeddedText text = {.tokens = ids_};
  int chunks = 0;
  while (!text.done()) {
    other.embed_chunk(text);
    ++chunks;
    if (text.done()) break;
    EXPECT_FALSE(other.has_idle_sequence());
    EXPECT_EQ(other.running(), 1u);
    const std::int64_t before = written;
    other.step();
    EXPECT_EQ(written, before + 1);
  }
  EXPECT_EQ(chunks, (std::ssize(ids_) + 3) / 4);
  EXPECT_EQ(text.values, expected);
  while (other.step()) {
  }
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(cut->cache().length(0) + cut->cache().length(1), 0);
}

// If there are not enough pages for both, the reply continues, and the text is embedded later.
TEST_F(Embeddings, GiveWayToRepliesWherePagesRunOut) {
  std::vector<Token> prompt, words;
  while (prompt.size() < 180) prompt.insert(prompt.end(), ids_.begin(), ids_.end());
  while (words.size() < 190) words.insert(words.end(), ids_.rbegin(), ids_.rend());
  prompt.resize(180);
  words.resize(190);
  const auto session = session_of(model_, *backend_, 16);
  Engine engine(*session, model_.tokenizer(), {});
  const std::vector<float> expected = engine.embed(words);
  EngineReply ended;
  const auto submit = [&] {
    EngineRequest request;
    request.prompt = prompt;
    request.stop.max_tokens = 70;
    request.on_end = [&](const EngineReply& reply) { ended = reply; };
    engine.submit(std::move(request));
  };
  submit();
  while (engine.step()) {
  }
  const std::vector<Token> reply = ended.tokens;
  ASSERT_EQ(reply.size(), 70u);
  for (const bool text_first : {true, false}) {
    ended = {};
    EmbeddedText text = {.tokens = words};
    for (int i = 0; i < 8 && text_first; ++i) engine.embed_chunk(text);
    submit();
    for (int turn = 0; turn < 1000 && !text.done(); ++turn) {
      engine.step();
      engine.embed_chunk(text);
    }
    EXPECT_EQ(text.values, expected);
    while (engine.step()) {
    }
    EXPECT_EQ(ended.tokens, reply);
  }
}

// The oldest text evicts the others, which start again after it.
TEST_F(Embeddings, OfSeveralTextsAreThoseOfEachWherePagesRunOut) {
  const auto session = session_of(model_, *backend_, 16, 4);
  Engine engine(*session, model_.tokenizer(), {});
  const std::int64_t free = session->cache().free_pages();
  std::vector<EmbeddedText> texts(4);
  std::vector<std::vector<float>> expected;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    while (texts[i].tokens.size() < 256) texts[i].tokens.push_back(ids_[i + 1]);
    expected.push_back(engine.embed(texts[i].tokens));
  }
  std::vector<std::size_t> ended;
  for (int turn = 0; turn < 1000 && ended.size() < texts.size(); ++turn) {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].done()) continue;
      engine.embed_chunk(texts[i]);
      if (texts[i].done()) ended.push_back(i);
    }
  }
  EXPECT_EQ(ended, (std::vector<std::size_t>{0, 1, 2, 3}));
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i].values, expected[i]) << i;
  EXPECT_EQ(session->cache().free_pages(), free);
}

TEST_F(Embeddings, ReleaseTheSequenceOfATextThatIsGivenUp) {
  const auto session = session_of(model_, *backend_, 4, 1);
  bool fails = false;
  EngineOptions options;
  options.check_step = [&] { require(!fails, "the disk failed"); };
  Engine engine(*session, model_.tokenizer(), options);
  EmbeddedText dropped = {.tokens = ids_}, failed = {.tokens = ids_};
  engine.embed_chunk(dropped);
  EXPECT_FALSE(engine.has_idle_sequence());
  engine.drop_text(dropped);
  EXPECT_TRUE(engine.has_idle_sequence());
  fails = true;
  EXPECT_THROW(engine.embed_chunk(failed), Error);
  EXPECT_TRUE(engine.has_idle_sequence());
}

TEST_F(Embeddings, RefuseWhatIsNoText) {
  const auto session = session_of(model_, *backend_, 64);
  Engine engine(*session, model_.tokenizer(), {});
  const std::int64_t free = session->cache().free_pages();
  EXPECT_THROW(engine.embed({}), Error);
  EXPECT_THROW(engine.embed(std::vector<Token>{-1}), Error);
  EXPECT_THROW(engine.embed(std::vector<Token>(257, 5)), Error);
  EXPECT_EQ(engine.embed(std::vector<Token>(256, 5)).size(),
            static_cast<std::size_t>(model_.config().width));
  EXPECT_EQ(session->cache().free_pages(), free);
}

}  // namespace
}  // namespace leq

// Trained models on the emulated GPU: recorded and replayed steps must give the same bits as steps
// run one by one, whatever happens in between.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "base/random.h"
#include "case_names.h"
#include "cuda/emulated/emulated_device.h"
#include "cuda/sim/emulator.h"
#include "model/session.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

struct Kind {
  const char* model;
  const char* type;
  KvType kv;
  std::int64_t context = 1024;
  int sequences = 3;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.model << " " << kind.type; }

// Runs all operations on one backend in a fixed order, and collects the logits.
class Course {
 public:
  Course(const Kind& kind, const std::filesystem::path& file, bool record)
      : kind_(kind), model_(file, {}), backend_(make_backend({"sim", 1})) {
    backend_->record_steps(record);
    new_session();
  }

  void new_session() {
    RunLimits limits;
    limits.key_type = limits.value_type = kind_.kv;
    limits.sequences = kind_.sequences;
    limits.output_tokens = kind_.sequences;
    limits.context = kind_.context * kind_.sequences;
    limits.batch_tokens = std::max(64, kind_.sequences);
    session_.reset();
    session_.emplace(model_, *backend_, resolve_limits(limits, model_.config()));
  }
  KvCache& cache() { return session_->cache(); }
  SequenceState state() { return session_->state(); }
  StepCounts counts() const { return backend_->step_counts(); }

  // Tokens determined by the seed only.
  void prompt(std::int32_t sequence, int count) {
    Batch batch;
    const auto ids = tokens(count);
    batch.add(sequence, ids.data(), count, Batch::Want::last);
    feed(batch);
  }
  // Feeds one token of each sequence, with logits for the last `outputs` of them.
  void steps(int count, const std::vector<std::int32_t>& sequences, std::size_t outputs) {
    for (int i = 0; i < count; ++i) {
      Batch batch;
      for (std::size_t s = 0; s < sequences.size(); ++s) {
        const auto id = tokens(1);
        const bool wanted = s + outputs >= sequences.size();
        batch.add(sequences[s], id.data(), 1, wanted ? Batch::Want::last : Batch::Want::none);
      }
      feed(batch);
    }
  }
  const std::vector<float>& logits() const { return logits_; }

 private:
  std::vector<Token> tokens(int count) {
    std::vector<Token> ids;
    for (int i = 0; i < count; ++i) {
      const auto vocab = static_cast<std::uint32_t>(model_.config().vocab);
      ids.push_back(static_cast<Token>(random_.below(vocab)));
    }
    return ids;
  }
  void feed(const Batch& batch) {
    const Rows& rows = session_->transformer().forward(batch, state());
    if (batch.outputs.empty()) return;
    const auto vocab = static_cast<std::size_t>(model_.config().vocab);
    const std::size_t before = logits_.size();
    logits_.resize(before + batch.outputs.size() * vocab);
    backend_->download(rows, std::ssize(batch.outputs), std::span(logits_).subspan(before));
  }

  Kind kind_;
  Random random_{11};
  Model model_;
  std::unique_ptr<Backend> backend_;
  std::optional<Session> session_;
  std::vector<float> logits_;
};

void all_that_happens(Course& course, std::int64_t context) {
  course.prompt(0, 6);
  course.steps(3, {0}, 1);
  course.prompt(1, 3);
  course.steps(3, {0, 1}, 2);  // one more sequence
  course.steps(3, {1, 0}, 1);  // in reverse, and one without logits
  course.state().drop(0);      // its pages are reused by the next one
  course.steps(2, {1}, 1);
  course.state().fork(1, 2);
  course.steps(3, {1, 2}, 2);
  course.state().drop(1);
  course.prompt(1, 64 - 1);
  course.steps(3, {1, 2}, 2);  // across the end of a page
  course.state().drop(2);
  (void)course.state().restore(1, 64);
  if (context > 512) {  // across the end of a bucket of contexts
    course.cache().repeat_pages(1, 509);
    course.steps(7, {1}, 1);
    (void)course.state().restore(1, 64);
  }
  course.steps(1, {1}, 0);  // without logits
  course.steps(2, {1}, 1);
}

std::uint64_t launches() {
  std::uint64_t count = 0;
  for (const auto& [kernel, times] : simt::launch_counts()) count += times;
  return count;
}

// Launches of a layer: norm, qkv, rope and append, attention, o, norm, gate and up, down. For one
// sequence the norms are part of the launches before, except the first, and rope is part of qkv's.
// Quantizing the inputs of o and down and merging the spans of attention need no launch of their
// own. Besides the layers there are embed, last norm, head, and gathering rows. If inputs of down
// have groups of 32, as in narrow models, a layer has one more launch.
TEST(StepLaunches, AreThreeFewerALayerForOneSequence) {
  struct Launches {
    Kind kind;
    int layers, one, several;  // launches of a layer for one sequence and for several
  };
  // The heads of storyteller that share a KV head have 64 columns, so that attention does not make
  // codes. The inputs of qwen3-tiny's qkv have a single group of 128, so that rope is not joined.
  const std::vector<Launches> cases = {{{"storyteller", "int8", KvType::int8}, 6, 6, 9},
                                       {{"storyteller", "int4-g128", KvType::int8}, 6, 6, 9},
                                       {{"qwen3-tiny", "int8", KvType::int8}, 4, 6, 8},
                                       {{"qwen3-tiny", "int8", KvType::simq4}, 4, 6, 8}};
  constexpr int kOthers = 4;
  for (const auto& [kind, layers, one, several] : cases) {
    LEQ_SHARED_OR_SKIP(folder, std::string("models/") + kind.model);
    const int quantizing = kv_scheme(kind.kv).blocked() ? 1 : 0;  // for all layers at once
    Course course(kind, test::quantized(folder, kind.type, ActChoice::g128), false);
    for (int page = 0; page < 2; ++page) course.prompt(0, 64);  // simq4: the first page is encoded
    course.cache().repeat_pages(0, 600);                        // two spans
    for (int sequences = 1; sequences <= 2; ++sequences) {
      if (sequences == 2) course.prompt(1, 3);
      const std::uint64_t before = launches();
      course.steps(
          1, sequences == 1 ? std::vector<std::int32_t>{0} : std::vector<std::int32_t>{0, 1}, 1);
      const int of_layers = sequences == 1 ? one * layers + 1 : several * layers;
      EXPECT_LE(launches() - before, of_layers + kOthers + quantizing)
          << kind.model << ", " << kind.type << ", " << kv_type_name(kind.kv) << ", " << sequences;
    }
  }
}

class Steps : public testing::TestWithParam<Kind> {};

TEST_P(Steps, ReplayedGiveTheBitsOfStepsRunOneByOne) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam().model);
  const auto file = test::quantized(folder, GetParam().type);
  Course plain(GetParam(), file, false), recorded(GetParam(), file, true);
  for (Course* course : {&plain, &recorded}) {
    all_that_happens(*course, GetParam().context);
    course->new_session();
    course->prompt(0, 5);
    course->steps(3, {0}, 1);
  }
  ASSERT_EQ(plain.logits().size(), recorded.logits().size());
  EXPECT_EQ(std::memcmp(plain.logits().data(), recorded.logits().data(),
                        plain.logits().size() * sizeof(float)),
            0);
  EXPECT_EQ(plain.counts().recorded, 0);
  EXPECT_EQ(plain.counts().replayed, 0);
  EXPECT_GE(recorded.counts().recorded, GetParam().context > 512 ? 5 : 4);
  EXPECT_GE(recorded.counts().replayed, 10);
}

INSTANTIATE_TEST_SUITE_P(Models, Steps,
                         testing::Values(Kind{"storyteller", "int8", KvType::f16},
                                         Kind{"gpt2-tiny", "f16", KvType::f32, 512},
                                         Kind{"mistral-tiny", "int8-g128", KvType::f16},
                                         Kind{"qwen2-tiny", "uint4-g64", KvType::int8},
                                         Kind{"qwen3-tiny", "int4-g128", KvType::int8},
                                         Kind{"qwen3-tiny", "int8", KvType::simq4, 512},
                                         Kind{"storyteller", "int4-g64", KvType::simq4, 512}),
                         [](const auto& item) {
                           return test::test_name(std::string(item.param.model) + "_" +
                                                  item.param.type);
                         });

// As in a server, sequences come and go, and their order changes; tested on older chips and on
// compute capability 9.0.
TEST(StepsOfManySequences, ReplayedGiveTheBitsOfStepsRunOneByOne) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen3-tiny");
  constexpr int kSequences = 130;
  const Kind kind = {"qwen3-tiny", "int8", KvType::int8, 128, kSequences};
  const auto file = test::quantized(folder, kind.type);
  const auto run = [&](Course& course) {
    std::vector<std::int32_t> sequences(kSequences);
    std::iota(sequences.begin(), sequences.end(), 0);
    for (const std::int32_t sequence : {0, 69, 70, 129}) {
      course.prompt(sequence, 62);  // steps cross the end of a page
    }
    for (const std::size_t count : {130u, 70u}) {
      sequences.resize(count);
      for (int step = 0; step < 3; ++step) {
        std::ranges::rotate(sequences, sequences.begin() + 29);
        course.steps(1, sequences, count - 1);
      }
    }
    return course.logits();
  };
  const sim::rt::DeviceInfo usual = sim::rt::emulated_device();
  std::vector<float> expected;
  for (const int major : {8, 9}) {
    sim::rt::emulated_device().major = major;
    if (major == 9) sim::rt::emulated_device().shared_limit_bytes = std::size_t{227} << 10;
    Course plain(kind, file, false), recorded(kind, file, true);
    if (expected.empty()) expected = run(plain);
    EXPECT_TRUE(run(recorded) == expected) << major;
    EXPECT_EQ(recorded.counts().recorded, 2);
    EXPECT_EQ(recorded.counts().replayed, 2);
  }
  sim::rt::emulated_device() = usual;
}

// Two sessions step alternately on one device; neither may replay the other's steps.
TEST(StepsOfTwoSessions, AreKeptApart) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({"sim", 1});
  RunLimits limits;
  limits.context = 128;
  limits = resolve_limits(limits, model.config());
  const auto feed = [](Session& session, Token token) {
    const auto logits = session.feed(0, std::vector<Token>{token});
    return std::vector<float>(logits.begin(), logits.end());
  };
  std::vector<std::vector<float>> alone;
  {
    Session session(model, *backend, limits);
    for (Token i = 0; i < 5; ++i) alone.push_back(feed(session, 10 + i));
  }
  Session a(model, *backend, limits), b(model, *backend, limits);
  for (Token i = 0; i < 5; ++i) {
    EXPECT_EQ(feed(a, 10 + i), alone[static_cast<std::size_t>(i)]) << "step " << i;
    feed(b, 500 - i);
  }
  EXPECT_EQ(backend->step_counts().recorded, 3);
}

// Moving scales are stored on the device and change with the inputs there, also in replayed steps.
TEST(StepsOfMovingScales, ReplayedGiveTheBitsOfStepsRunOneByOne) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8", ActChoice::online), {});
  RunLimits limits;
  limits.context = 128;
  limits = resolve_limits(limits, model.config());
  std::vector<std::vector<float>> plain;
  for (const bool record : {false, true}) {
    const auto backend = make_backend({"sim", 1});
    backend->record_steps(record);
    Session session(model, *backend, limits);
    for (std::size_t i = 0; i < 8; ++i) {
      const auto found = session.feed(0, std::vector<Token>{static_cast<Token>(10 + 37 * i)});
      const std::vector<float> logits(found.begin(), found.end());
      if (!record) {
        plain.push_back(logits);
      } else {
        EXPECT_EQ(logits, plain[i]) << "step " << i;
      }
    }
    EXPECT_EQ(backend->step_counts().replayed, record ? 6 : 0);
    EXPECT_EQ(session.transformer().online()[0].scale.counters().steps, 8u);
  }
}

// If the driver cannot build a graph of the recording, the reply is slower but the same.
TEST(StepsThatCannotBeRecorded, RunOneByOneAndSaySo) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Kind kind = {"storyteller", "int8", KvType::f16, 512};
  const auto file = test::quantized(folder, kind.type);
  Course plain(kind, file, false), failing(kind, file, true);
  sim::rt::fail_captures(1);
  for (Course* course : {&plain, &failing}) all_that_happens(*course, kind.context);
  EXPECT_EQ(plain.logits(), failing.logits());
  EXPECT_EQ(failing.counts().recorded, 0);
  EXPECT_EQ(failing.counts().replayed, 0);
  EXPECT_NE(failing.counts().failure.find("this recording fails"), std::string::npos);
  EXPECT_TRUE(plain.counts().failure.empty());
}

}  // namespace
}  // namespace leq

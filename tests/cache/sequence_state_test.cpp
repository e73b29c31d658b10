// Tests pages and fixed-size states together against plain lists of tokens. Two toy layers
// represent a model: one stores a number for each position like attention, the other folds all
// tokens into a few numbers like a recurrent layer. Whatever happened to a sequence, both layers
// must have the state that feeding its tokens once gives.
#include "cache/sequence_state.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/random.h"

namespace leq {
namespace {

constexpr int kToySequences = 4;
constexpr std::int64_t kToyPositions = 40 * kPageTokens;
using Toy = std::array<float, 5>;

// The recurrence of the toy layer differs for each channel and is exact in floats.
void fold_token(Toy& state, float token) {
  for (std::size_t i = 0; i < state.size(); ++i) {
    const float next = state[i] * static_cast<float>(i + 2) + token;
    state[i] = next - 4096.0f * std::floor(next / 4096.0f);
  }
}

struct Toys {
  explicit Toys(std::int64_t states = 12)
      : pages(backend->memory(), backend->layout(),
              {1, 1, 2, KvType::f32, KvType::f32, kToyPositions, kToySequences}),
        fixed(backend->memory(), sizeof(Toy), states, kToySequences),
        state(pages, &fixed) {}

  float& slot(std::int32_t sequence, std::int64_t position) {
    const KvLayer kv = pages.layer(0);
    const auto page = static_cast<std::size_t>(
        pages.pages(sequence)[static_cast<std::size_t>(position / kPageTokens)]);
    return reinterpret_cast<float*>(kv.keys + page * kv.key_page_bytes)[position % kPageTokens];
  }

  // Runs one step of both layers over the tokens that were appended.
  void compute(std::int32_t sequence, std::int64_t first, const std::vector<float>& tokens) {
    Toy toy = {};
    const FixedStates::StepStates step = fixed.step_states(sequence);
    if (step.from != FixedStates::kZeros) std::memcpy(&toy, fixed.bytes_of(step.from), sizeof toy);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      slot(sequence, first + static_cast<std::int64_t>(i)) = tokens[i];
      fold_token(toy, tokens[i]);
    }
    std::memcpy(fixed.bytes_of(step.to), &toy, sizeof toy);
  }

  Toy toy(std::int32_t sequence) const {
    Toy found = {};
    if (fixed.state(sequence) == FixedStates::kZeros) return found;
    std::array<std::byte, sizeof found> bytes;
    fixed.read(fixed.state(sequence), bytes);
    std::memcpy(&found, bytes.data(), sizeof found);
    return found;
  }

  std::unique_ptr<Backend> backend = make_cpu_backend({1, chosen_isa()});
  KvCache pages;
  FixedStates fixed;
  SequenceState state;
};

// The toy layers together with plain lists of the tokens fed.
class Fed {
 public:
  explicit Fed(std::int64_t states = 12) : toys(states) {}

  void feed(std::int32_t sequence, std::int64_t count) {
    const std::vector<float> tokens = next_tokens(count);
    const std::int64_t first = std::ssize(at(sequence));
    toys.state.append(sequence, count);
    toys.compute(sequence, first, tokens);
    toys.state.commit();
    at(sequence).insert(at(sequence).end(), tokens.begin(), tokens.end());
  }
  // Computes a step, perhaps only partly, and rolls it back.
  void fail(std::int32_t sequence, std::int64_t count) {
    const std::int64_t first = std::ssize(at(sequence));
    toys.state.append(sequence, count);
    toys.compute(sequence, first, next_tokens(count));
    ASSERT_EQ(toys.state.restore(sequence, first), first);
  }
  std::int64_t restore(std::int32_t sequence, std::int64_t position) {
    const std::int64_t kept = toys.state.restore(sequence, position);
    EXPECT_LE(kept, position);
    EXPECT_EQ(toys.state.length(sequence), kept);
    at(sequence).resize(static_cast<std::size_t>(kept));
    return kept;
  }
  void fork(std::int32_t from, std::int32_t to) {
    toys.state.fork(from, to);
    at(to) = at(from);
  }
  void drop(std::int32_t sequence) {
    toys.state.drop(sequence);
    at(sequence).clear();
  }
  void move_by_bytes(std::int32_t from, std::int32_t to) {
    toys.state.load(to, toys.state.save(from), "test");
    at(to) = at(from);
  }

  std::vector<float>& at(std::int32_t sequence) {
    return tokens_[static_cast<std::size_t>(sequence)];
  }
  void check() {
    for (std::int32_t s = 0; s < kToySequences; ++s) {
      ASSERT_EQ(toys.state.length(s), std::ssize(at(s)));
      ASSERT_EQ(toys.fixed.position(s), std::ssize(at(s)));
      Toy want = {};
      for (std::int64_t i = 0; i < std::ssize(at(s)); ++i) {
        ASSERT_EQ(toys.slot(s, i), at(s)[static_cast<std::size_t>(i)]);
        fold_token(want, at(s)[static_cast<std::size_t>(i)]);
      }
      ASSERT_EQ(toys.toy(s), want) << "sequence " << s;
    }
  }

  Toys toys;

 private:
  std::vector<float> next_tokens(std::int64_t count) {
    std::vector<float> tokens;
    for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<float>(++token_ % 997));
    return tokens;
  }

  std::array<std::vector<float>, kToySequences> tokens_;
  std::int64_t token_ = 0;
};

TEST(SequenceState, IsWhatFeedingItsTokensGivesWhateverHappened) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Fed fed;
    Random random(seed);
    const auto any = [&] { return static_cast<std::int32_t>(random.below(kToySequences)); };
    for (int i = 0; i < 400; ++i) {
      const std::int32_t s = any(), other = any();
      const std::int64_t length = std::ssize(fed.at(s)), count = 1 + random.below(70);
      const bool has_room = length + count <= kToyPositions / (2 * kToySequences);
      switch (random.below(8)) {
        case 0:
        case 1:
          if (has_room) fed.feed(s, count);
          break;
        case 2:
          if (has_room) {
            ASSERT_NO_FATAL_FAILURE(fed.fail(s, count));
          }
          break;
        case 3:
          fed.toys.state.checkpoint(s);
          break;
        case 4:
          (void)fed.restore(s, random.below(static_cast<std::uint32_t>(length) + 1));
          break;
        case 5:
          fed.fork(s, other);
          break;
        case 6:
          if (s != other) fed.move_by_bytes(s, other);
          break;
        default:
          if (random.below(4) == 0) fed.drop(s);
      }
      ASSERT_NO_FATAL_FAILURE(fed.check()) << "seed " << seed << " step " << i;
    }
    for (std::int32_t s = 0; s < kToySequences; ++s) fed.drop(s);
    EXPECT_EQ(fed.toys.fixed.free_states(), fed.toys.fixed.count()) << "a state is lost";
    EXPECT_EQ(fed.toys.pages.free_pages(), fed.toys.pages.page_count());
  }
}

TEST(SequenceState, GoesBackToTheNewestCheckpointBeforeAPosition) {
  Fed fed;
  for (const std::int64_t count : {100, 60, 5}) {
    fed.feed(0, count);
    fed.toys.state.checkpoint(0);
  }
  fed.feed(0, 3);
  EXPECT_EQ(fed.restore(0, 168), 168) << "it is there";
  EXPECT_EQ(fed.restore(0, 167), 165);
  EXPECT_EQ(fed.restore(0, 164), 160);
  fed.feed(0, 7);
  EXPECT_EQ(fed.restore(0, 165), 160) << "a later checkpoint is gone with its tokens";
  EXPECT_EQ(fed.restore(0, 160), 160);
  EXPECT_EQ(fed.restore(0, 99), 0);
  fed.check();
}

// As in the engine with drafts, the accepted tokens are fed again after a rollback.
TEST(SequenceState, RejectedDraftsLeaveNoTrace) {
  Fed fed;
  fed.feed(0, 64);
  for (int i = 0; i < 50; ++i) {
    fed.toys.state.checkpoint(0);
    const std::int64_t before = std::ssize(fed.at(0));
    fed.feed(0, 6);
    EXPECT_EQ(fed.restore(0, before + i % 6), before);
    fed.feed(0, 1 + i % 6);
    ASSERT_NO_FATAL_FAILURE(fed.check());
  }
}

TEST(SequenceState, WithoutFixedStatesIsCutAnywhere) {
  Toys toys;
  const SequenceState state(toys.pages);
  state.append(0, 200);
  state.commit();
  state.checkpoint(0);
  EXPECT_EQ(state.restore(0, 77), 77);
  EXPECT_EQ(state.save(0), toys.pages.save(0));
}

TEST(FixedStates, GiveUpTheOldestCheckpointsForStepsAndThenRefuse) {
  Fed fed(4);
  fed.feed(0, 1);
  fed.toys.state.checkpoint(0);
  fed.feed(0, 1);
  fed.toys.state.checkpoint(0);
  fed.feed(0, 1);  // three states are in use
  fed.feed(1, 1);
  fed.feed(1, 1);  // evicts the oldest checkpoint's state
  EXPECT_EQ(fed.toys.fixed.restorable(0, 1), 0);
  EXPECT_EQ(fed.toys.fixed.restorable(0, 2), 2);
  fed.feed(2, 1);
  fed.feed(3, 1);  // all four are in use by sequences
  EXPECT_EQ(fed.toys.fixed.restorable(0, 2), 0) << "the last checkpoint went";
  for (std::int32_t s = 0; s < kToySequences; ++s) {
    const std::int64_t pages = fed.toys.pages.free_pages();
    EXPECT_THROW(fed.toys.state.append(s, 200), Error);
    EXPECT_EQ(fed.toys.pages.free_pages(), pages) << "a refused step keeps pages";
  }
  fed.check();
  fed.drop(2);
  fed.feed(1, 3);
  fed.check();
}

TEST(SequenceState, RefusesDamagedBytes) {
  Fed fed;
  fed.feed(0, 70);
  fed.feed(1, 5);
  const std::vector<std::byte> saved = fed.toys.state.save(0);
  const auto load = [&](std::vector<std::byte> bytes) { fed.toys.state.load(1, bytes, "test"); };
  for (std::size_t cut = 0; cut < saved.size(); cut += 1 + saved.size() / 50) {
    EXPECT_THROW(load({saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(cut)}), Error);
    ASSERT_NO_FATAL_FAILURE(fed.check()) << "a refused file changes nothing";
  }
  std::vector<std::byte> broken = saved;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(broken.data() + broken.size() - sizeof nan, &nan, sizeof nan);
  EXPECT_THROW(load(broken), Error);
  fed.check();
  fed.toys.state.load(1, saved, "test");
  fed.at(1) = fed.at(0);
  fed.check();
  fed.toys.state.load(2, fed.toys.state.save(3), "test");  // saved from an empty sequence
  fed.check();
}

}  // namespace
}  // namespace leq

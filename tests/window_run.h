// Random operations on a session whose layers with windows keep few pages. Its logits must have the
// bits of a cache that keeps all pages of all layers and reuses nothing.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "engine/prefix_cache.h"
#include "model/session.h"
#include "models_fixture.h"
#include "reference/family_golden.h"
#include "same_bits.h"
#include "temporary_folder.h"

namespace leq::test {

// A family's golden model, which takes longer texts than it was made for. With `all_windowed` all
// layers have windows.
inline std::filesystem::path with_long_context(const std::string& family, bool all_windowed,
                                               const TemporaryFolder& scratch) {
  const auto folder = scratch.path() / (family + (all_windowed ? "-windows" : "-long"));
  std::filesystem::copy(family_folder(family), folder, std::filesystem::copy_options::recursive);
  const auto file = folder / "config.json";
  Json config = parse_json(read_file(file, 1 << 20), "config.json");
  Json& text = config.contains("text_config") ? config["text_config"] : config;
  text["max_position_embeddings"] = 2048;
  for (Json& type : text["layer_types"]) {
    if (all_windowed) type = "sliding_attention";
  }
  std::ofstream(file) << config.dump();
  return folder;
}

class WindowRun {
 public:
  static constexpr int kSequences = 3;
  static constexpr std::int64_t kLongest = 1500, kBatch = 64;

  static RunLimits limits_of(const Model& model, KvType type) {
    RunLimits limits;
    limits.sequences = kSequences;
    limits.sequence_context = kLongest + kBatch;
    limits.context = kSequences * limits.sequence_context;
    limits.batch_tokens = kBatch;
    limits.key_type = limits.value_type = type;
    return resolve_limits(limits, model.config());
  }

  // `backend` runs the cache that keeps all pages; arguments must outlive this object.
  WindowRun(const Model& model, Session& session, Backend& backend)
      : session_(session),
        prefixes_(session.state()),
        backend_(backend),
        weights_(bind_weights(model.file(), model.config(), backend.memory())),
        whole_(backend.memory(), backend.layout(), whole_shape(model)),
        transformer_(model.config(), weights_, backend, forward_limits(session.limits())) {}

  // Sequence 0 begins with `start` tokens.
  void run(std::int64_t start, int steps, std::uint64_t seed) {
    Random random(seed);
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random.below(static_cast<std::uint32_t>(n)));
    };
    feed(0, some(start, below));
    for (int step = 0; step < steps; ++step) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
      const auto s = static_cast<std::int32_t>(below(kSequences));
      const std::int64_t length = std::ssize(text(s)), action = below(20);
      if (length == 0) {
        begin(s, below);
      } else if (action < 12) {
        feed(s, some(action < 4 ? 1 + below(3) : kBatch, below));
      } else if (action < 15) {  // as after drafts
        truncate(s, length - std::min(length, below(80)));
      } else if (action == 15) {
        truncate(s, below(length + 1));
      } else if (action == 16) {
        fork(s, static_cast<std::int32_t>(below(kSequences)));
      } else if (action == 17) {
        save_and_load(s, static_cast<std::int32_t>(below(kSequences)));
      } else {
        end(s, below(2) == 0);
      }
      if (testing::Test::HasFailure()) return;
    }
  }

  // How often a text began with kept pages, and of these without the frame of its first page; how
  // often its end could not be reused.
  int reused = 0, reused_behind = 0, shortened = 0;

 private:
  KvShape whole_shape(const Model& model) const {
    KvShape shape = kv_shape(model.config(), weights_, backend_.layout(), session_.limits());
    EXPECT_GT(shape.window, 0);
    shape.window = 0;
    shape.layer_windowed.clear();
    return shape;
  }
  std::vector<Token>& text(std::int32_t sequence) {
    return texts_[static_cast<std::size_t>(sequence)];
  }
  std::vector<Token> some(std::int64_t count, const auto& below) const {
    std::vector<Token> tokens;
    while (std::ssize(tokens) < count) tokens.push_back(static_cast<Token>(below(90)));
    return tokens;
  }
  static std::vector<float> step(Transformer& transformer, const SequenceState& state,
                                 std::int32_t sequence, std::span<const Token> tokens) {
    Batch batch;
    batch.add(sequence, tokens.data(), std::ssize(tokens), Batch::Want::last);
    std::vector<float> logits(static_cast<std::size_t>(transformer.config().vocab));
    transformer.backend().download(transformer.forward(batch, state), 1, logits);
    return logits;
  }

  void feed(std::int32_t s, std::span<const Token> tokens) {
    const auto room = static_cast<std::size_t>(kLongest - std::ssize(text(s)));
    tokens = tokens.first(std::min(room, tokens.size()));
    while (!tokens.empty()) {
      const auto part = tokens.first(std::min<std::size_t>(kBatch, tokens.size()));
      prefixes_.make_free(cache().pages_to_append(s, std::ssize(part)));
      const auto want = step(transformer_, whole_, s, part);
      ASSERT_TRUE(same_bits(want, step(session_.transformer(), session_.state(), s, part)))
          << "sequence " << s << " after " << text(s).size() << " tokens";
      text(s).insert(text(s).end(), part.begin(), part.end());
      tokens = tokens.subspan(part.size());
    }
  }
  void truncate(std::int32_t s, std::int64_t length) {
    const std::int64_t kept = session_.state().restore(s, length);
    ASSERT_TRUE(kept == length || kept == 0) << kept << " of " << length;
    recompute(s, {text(s).begin(), text(s).begin() + kept});
  }
  // The other cache computes the whole text again.
  void recompute(std::int32_t s, const std::vector<Token>& tokens) {
    text(s) = tokens;
    whole_.clear(s);
    for (std::span<const Token> rest = tokens; !rest.empty();) {
      const auto part = rest.first(std::min<std::size_t>(kBatch, rest.size()));
      step(transformer_, whole_, s, part);
      rest = rest.subspan(part.size());
    }
  }
  void fork(std::int32_t from, std::int32_t to) {
    if (from == to) return;
    session_.state().fork(from, to);
    recompute(to, text(from));
  }
  void save_and_load(std::int32_t from, std::int32_t to) {
    const std::vector<std::byte> saved = session_.state().save(from);
    session_.state().drop(to);
    prefixes_.make_free(pages_for(std::ssize(text(from))));
    session_.state().load(to, saved, "a saved sequence");
    recompute(to, std::vector<Token>(text(from)));
  }
  void end(std::int32_t s, bool last_too) {
    prefixes_.keep(s, text(s), last_too);
    ended_.push_back(text(s));
    session_.state().drop(s);
    recompute(s, {});
  }
  // Continues a beginning of an ended text, or another text.
  void begin(std::int32_t s, const auto& below) {
    std::vector<Token> tokens = some(1 + below(300), below);
    if (!ended_.empty() && below(4) > 0) {
      const std::vector<Token>& old =
          ended_[ended_.size() - 1 -
                 static_cast<std::size_t>(below(std::min<std::int64_t>(4, std::ssize(ended_))))];
      const std::int64_t most = std::ssize(old);
      const auto kept = below(2) == 0 ? most : most - below(most);
      tokens.insert(tokens.begin(), old.begin(), old.begin() + kept);
      tokens.resize(static_cast<std::size_t>(std::min(kLongest - 100, std::ssize(tokens))));
    }
    const auto found = prefixes_.find(std::span(tokens).first(tokens.size() - 1), true);
    session_.state().adopt(s, found.prefix());
    shortened += found.tokens < found.matched ? 1 : 0;
    if (found.tokens > 0) {
      ++reused;
      const auto frames = cache().layers().frames;
      if (frames[static_cast<std::size_t>(found.pages[0])] < 0) ++reused_behind;
    }
    recompute(s, {tokens.begin(), tokens.begin() + found.tokens});
    feed(s, std::span(tokens).subspan(static_cast<std::size_t>(found.tokens)));
  }
  KvCache& cache() { return session_.cache(); }

  Session& session_;
  PrefixCache prefixes_;
  Backend& backend_;
  Weights weights_;
  KvCache whole_;
  Transformer transformer_;
  std::vector<std::vector<Token>> texts_ = std::vector<std::vector<Token>>(kSequences);
  std::vector<std::vector<Token>> ended_;
};

}  // namespace leq::test

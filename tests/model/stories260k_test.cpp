// stories260K: a complete trained model of 260,000 parameters from elsewhere, in llama2.c's first
// file format. Read here only, converted to a checkpoint folder, and held against its published
// text.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "convert/quantize_checkpoint.h"
#include "model/session.h"
#include "platform/make_backend.h"
#include "reference/random_checkpoint.h"
#include "shared_data.h"

namespace leq {
namespace {

// llama2.c's legacy layout: 7 int32, then f32 tensors, each for all layers.
class LegacyReader {
 public:
  explicit LegacyReader(std::string bytes) : bytes_(std::move(bytes)) {
    std::memcpy(&header_, bytes_.data(), sizeof header_);
    at_ = sizeof header_;
  }
  struct Header {
    std::int32_t dim, hidden, layers, heads, kv_heads, vocab, context;
  };
  const Header& header() const { return header_; }

  std::vector<float> take(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::memcpy(values.data(), bytes_.data() + at_, values.size() * 4);
    at_ += values.size() * 4;
    return values;
  }

 private:
  std::string bytes_;
  Header header_ = {};
  std::size_t at_ = 0;
};

// Rows of q and k turn in neighbouring pairs there, in halves of a head here.
std::vector<float> halves_from_pairs(const std::vector<float>& rows, std::int64_t head_dim,
                                     std::int64_t columns) {
  std::vector<float> out(rows.size());
  const std::int64_t count = std::ssize(rows) / columns;
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t i = r % head_dim;
    const std::int64_t target = r - i + i / 2 + (i % 2) * head_dim / 2;
    std::copy_n(rows.begin() + r * columns, columns, out.begin() + target * columns);
  }
  return out;
}

std::filesystem::path convert(const std::filesystem::path& legacy) {
  LegacyReader reader(read_file(legacy, 1 << 24));
  const auto h = reader.header();
  const std::int64_t dim = h.dim, head = dim / h.heads, key = head * h.kv_heads;
  test::RandomCheckpoint folder(std::filesystem::temp_directory_path() /
                                ("leq_stories260k_" + std::to_string(::getpid())));
  const auto each = [&](const std::string& name, std::vector<std::int64_t> shape, bool turned) {
    const std::int64_t count = shape[0] * (shape.size() == 2 ? shape[1] : 1);
    for (int l = 0; l < h.layers; ++l) {
      auto values = reader.take(count);
      if (turned) values = halves_from_pairs(values, head, dim);
      folder.add_values("model.layers." + std::to_string(l) + "." + name + ".weight", shape,
                        values);
    }
  };
  folder.add_values("model.embed_tokens.weight", {h.vocab, dim}, reader.take(h.vocab * dim));
  each("input_layernorm", {dim}, false);
  each("self_attn.q_proj", {dim, dim}, true);
  each("self_attn.k_proj", {key, dim}, true);
  each("self_attn.v_proj", {key, dim}, false);
  each("self_attn.o_proj", {dim, dim}, false);
  each("post_attention_layernorm", {dim}, false);
  each("mlp.gate_proj", {h.hidden, dim}, false);
  each("mlp.down_proj", {dim, h.hidden}, false);
  each("mlp.up_proj", {h.hidden, dim}, false);
  folder.add_values("model.norm.weight", {dim}, reader.take(dim));
  return folder.write({{"model_type", "llama"},
                       {"hidden_size", dim},
                       {"intermediate_size", h.hidden},
                       {"num_hidden_layers", h.layers},
                       {"num_attention_heads", h.heads},
                       {"num_key_value_heads", h.kv_heads},
                       {"vocab_size", h.vocab},
                       {"max_position_embeddings", h.context},
                       {"rms_norm_eps", 1e-5},
                       {"tie_word_embeddings", true}});
}

TEST(Stories260K, TellsItsPublishedStoryTokenByToken) {
  LEQ_SHARED_OR_SKIP(data, "data/weights/stories260K");
  const auto folder = convert(data / "stories260K.bin");
  const auto file = folder / "model.leq";
  quantize_checkpoint(folder, file, {"f32", ActChoice::automatic, 1}, [](auto, auto) {});
  const Json reference = parse_json(read_file(data / "reference.json", 1 << 24), "reference.json");
  // BOS and 200 tokens, whose text is the one that llama2.c's own test expects.
  const auto want =
      reference.at("third_party_greedy").at("ids_from_this_check").get<std::vector<Token>>();
  ASSERT_EQ(want.size(), 201u);
  const Model model(file, {});
  const auto backend = make_backend({"cpu", 2});
  RunLimits limits;
  limits.key_type = limits.value_type = KvType::f32;
  Session session(model, *backend, resolve_limits(limits, model.config()));
  std::vector<Token> next = {want[0]};
  for (std::size_t i = 0; i < 200; ++i) {
    const auto logits = session.feed(0, next);
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    ASSERT_EQ(best, want[i + 1]) << "token " << i;
    next = {static_cast<Token>(best)};
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace leq

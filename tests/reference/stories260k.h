// Creates a Hugging Face folder from stories260K, a complete trained model of 260,000 parameters in
// llama2.c's first file format, and from its tokenizer in that project's format.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "reference/random_checkpoint.h"
#include "tokenizer/protobuf_writer.h"

namespace leq::test {

// Reads consecutive numbers of a file.
class LegacyReader {
 public:
  explicit LegacyReader(const std::filesystem::path& file)
      : name_(file.string()), bytes_(read_file(file, 1 << 24)) {}

  bool at_end() const { return at_ == bytes_.size(); }
  std::string_view text(std::size_t size) {
    require(size <= bytes_.size() - at_, name_, ": ends at byte ", bytes_.size(), ", expected ",
            size, " more after ", at_);
    at_ += size;
    return std::string_view(bytes_).substr(at_ - size, size);
  }
  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, text(sizeof value).data(), sizeof value);
    return value;
  }
  std::vector<float> take(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::memcpy(values.data(), text(values.size() * 4).data(), values.size() * 4);
    return values;
  }

 private:
  std::string name_, bytes_;
  std::size_t at_ = 0;
};

// Its rows of q and k are rotated in adjacent pairs; Hugging Face rotates halves of a head.
inline std::vector<float> halves_from_pairs(const std::vector<float>& rows, std::int64_t head_dim,
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

// Reads the weights: seven int32, then f32 tensors, each for all layers. Writes config.json and
// model.safetensors.
inline void write_stories260k_model(const std::filesystem::path& legacy,
                                    const std::filesystem::path& output) {
  LegacyReader reader(legacy);
  const std::int64_t dim = reader.number<std::int32_t>(), hidden = reader.number<std::int32_t>(),
                     layers = reader.number<std::int32_t>(), heads = reader.number<std::int32_t>(),
                     kv_heads = reader.number<std::int32_t>(),
                     vocab = reader.number<std::int32_t>(), context = reader.number<std::int32_t>();
  const std::int64_t head = dim / heads, key = head * kv_heads;
  RandomCheckpoint folder(output);
  const auto each = [&](const std::string& name, std::vector<std::int64_t> shape, bool turned) {
    const std::int64_t count = shape[0] * (shape.size() == 2 ? shape[1] : 1);
    for (std::int64_t l = 0; l < layers; ++l) {
      auto values = reader.take(count);
      if (turned) values = halves_from_pairs(values, head, dim);
      folder.add_values("model.layers." + std::to_string(l) + "." + name + ".weight", shape,
                        values);
    }
  };
  folder.add_values("model.embed_tokens.weight", {vocab, dim}, reader.take(vocab * dim));
  each("input_layernorm", {dim}, false);
  each("self_attn.q_proj", {dim, dim}, true);
  each("self_attn.k_proj", {key, dim}, true);
  each("self_attn.v_proj", {key, dim}, false);
  each("self_attn.o_proj", {dim, dim}, false);
  each("post_attention_layernorm", {dim}, false);
  each("mlp.gate_proj", {hidden, dim}, false);
  each("mlp.down_proj", {dim, hidden}, false);
  each("mlp.up_proj", {hidden, dim}, false);
  folder.add_values("model.norm.weight", {dim}, reader.take(dim));
  folder.write({{"model_type", "llama"},
                {"hidden_size", dim},
                {"intermediate_size", hidden},
                {"num_hidden_layers", layers},
                {"num_attention_heads", heads},
                {"num_key_value_heads", kv_heads},
                {"vocab_size", vocab},
                {"max_position_embeddings", context},
                {"rms_norm_eps", 1e-5},
                {"tie_word_embeddings", true}});
  for (const char* name : {"vocab.json", "merges.txt"}) std::filesystem::remove(output / name);
}

// Reads the tokenizer: the length of the longest piece, then for each piece a score, a length and
// the text with plain spaces. Writes tokenizer.model (sentencepiece BPE with bytes).
inline void write_stories260k_tokenizer(const std::filesystem::path& legacy,
                                        const std::filesystem::path& output) {
  LegacyReader reader(legacy);
  reader.number<std::int32_t>();
  ProtobufWriter model;
  for (int id = 0; !reader.at_end(); ++id) {
    const auto score = reader.number<float>();
    std::string piece(reader.text(static_cast<std::size_t>(reader.number<std::int32_t>())));
    const bool byte = piece.size() == 6 && piece.starts_with("<0x");
    const SpType type = id == 0  ? SpType::unknown
                        : id < 3 ? SpType::control
                        : byte   ? SpType::byte
                                 : SpType::normal;
    if (id == 1 || id == 2) piece = id == 1 ? "<s>" : "</s>";  // the file adds line breaks
    for (std::size_t at = 0; (at = piece.find(' ', at)) != std::string::npos;) {
      piece.replace(at, 1, "\xe2\x96\x81");
    }
    add_sp_piece(model, piece, score, type);
  }
  ProtobufWriter trainer, normalizer;
  trainer.varint(3, 2).varint(35, 1);
  normalizer.text(1, "identity").varint(3, 1).varint(4, 0).varint(5, 1);
  model.text(2, trainer.out).text(3, normalizer.out);
  std::ofstream(output / "tokenizer.model", std::ios::binary) << model.out;
}

}  // namespace leq::test

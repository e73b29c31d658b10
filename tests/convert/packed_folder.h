// Writes small quantized safetensors checkpoints, packed independently of the reader: codes become
// one long sequence of bits, and their values are computed in double.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/json.h"
#include "base/random.h"
#include "temporary_folder.h"

namespace leq::test {

struct StoredPart {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

// Codes u [N][K] with a zero point and a scale for each row and group of columns.
struct IntegerWeight {
  int rows = 0, columns = 0, bits = 4, group = 32;
  std::vector<int> codes;           // [N][K]
  std::vector<int> zeros;           // [N][groups]
  std::vector<float> scales;        // [N][groups], each exact in f16 and bf16
  std::vector<int> groups_of = {};  // [K] if columns are not in order

  int groups() const { return (columns + group - 1) / group; }
  int group_at(int k) const {
    return groups_of.empty() ? k / group : groups_of[static_cast<std::size_t>(k)];
  }
  int code(int n, int k) const { return codes[static_cast<std::size_t>(n * columns + k)]; }
  int zero(int n, int g) const { return zeros[static_cast<std::size_t>(n * groups() + g)]; }
  float scale(int n, int g) const { return scales[static_cast<std::size_t>(n * groups() + g)]; }
  std::vector<float> values() const {
    std::vector<float> all;
    for (int n = 0; n < rows; ++n) {
      for (int k = 0; k < columns; ++k) {
        const int g = group_at(k);
        all.push_back(static_cast<float>(double(code(n, k) - zero(n, g)) * double{scale(n, g)}));
      }
    }
    return all;
  }
};

inline IntegerWeight random_integers(int rows, int columns, int bits, int group, bool centred,
                                     std::uint64_t seed) {
  Random random(seed);
  IntegerWeight w = {rows, columns, bits, group == 0 ? columns : group, {}, {}, {}};
  const auto many = 1u << bits;
  for (int i = 0; i < rows * columns; ++i) w.codes.push_back(static_cast<int>(random.below(many)));
  for (int i = 0; i < rows * w.groups(); ++i) {
    w.zeros.push_back(centred ? 1 << (bits - 1) : static_cast<int>(random.below(many)));
    w.scales.push_back(std::ldexp(static_cast<float>(128 + random.below(128)), -14));
  }
  return w;
}

// Packs numbers of `bits` bits, lowest bit first, into little-endian 32-bit words.
inline std::string in_words(const std::vector<int>& numbers, int bits) {
  std::vector<bool> string;
  for (const int number : numbers) {
    for (int b = 0; b < bits; ++b) string.push_back((number >> b & 1) != 0);
  }
  while (string.size() % 32 != 0) string.push_back(false);
  std::string bytes;
  for (std::size_t at = 0; at < string.size(); at += 8) {
    int byte = 0;
    for (std::size_t b = 0; b < 8; ++b) byte += string[at + b] ? 1 << b : 0;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

// Transposes words [lines][words] to [words][lines].
inline std::string turned(const std::string& bytes, int lines) {
  const auto words = static_cast<int>(bytes.size()) / 4 / lines;
  std::string out;
  for (int w = 0; w < words; ++w) {
    for (int l = 0; l < lines; ++l) {
      out += bytes.substr(static_cast<std::size_t>(l * words + w) * 4, 4);
    }
  }
  return out;
}

inline std::string lines_in_words(int lines, int length, int bits,
                                  const std::function<int(int line, int i)>& number) {
  std::string bytes;
  for (int l = 0; l < lines; ++l) {
    std::vector<int> numbers;
    for (int i = 0; i < length; ++i) numbers.push_back(number(l, i));
    bytes += in_words(numbers, bits);
  }
  return bytes;
}

inline std::string floats_as(const std::string& dtype, const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) {
    std::uint32_t word = 0;
    std::memcpy(&word, &value, 4);
    if (dtype == "F32") {
      bytes.append(reinterpret_cast<const char*>(&word), 4);
    } else {
      const std::uint16_t half =
          dtype == "F16" ? f32_to_f16(value) : static_cast<std::uint16_t>(word >> 16);
      bytes.append(reinterpret_cast<const char*>(&half), 2);
    }
  }
  return bytes;
}

using Parts = std::map<std::string, StoredPart>;  // by the name after the module's

inline Parts gptq_parts(const IntegerWeight& w, bool version_1) {
  const int mask = (1 << w.bits) - 1, groups = w.groups();
  const auto zero = [&](int g, int n) {
    return version_1 ? (w.zero(n, g) - 1) & mask : w.zero(n, g);
  };
  std::vector<float> scales;
  for (int g = 0; g < groups; ++g) {
    for (int n = 0; n < w.rows; ++n) scales.push_back(w.scale(n, g));
  }
  const std::string codes =
      turned(lines_in_words(w.rows, w.columns, w.bits, [&](int n, int k) { return w.code(n, k); }),
             w.rows);
  const std::string zeros = lines_in_words(groups, w.rows, w.bits, zero);
  Parts parts;
  parts["qweight"] = {"I32", {w.columns * w.bits / 32, w.rows}, codes};
  parts["qzeros"] = {"I32", {groups, static_cast<int>(zeros.size()) / 4 / groups}, zeros};
  parts["scales"] = {"F16", {groups, w.rows}, floats_as("F16", scales)};
  std::string order;
  for (int k = 0; k < w.columns; ++k) {
    const std::int32_t g = w.group_at(k);
    order.append(reinterpret_cast<const char*>(&g), 4);
  }
  parts["g_idx"] = {"I32", {w.columns}, order};
  return parts;
}

// A word has codes of eight rows: from the lowest bits, rows 0, 2, 4, 6, 1, 3, 5, 7.
inline Parts awq_parts(const IntegerWeight& w) {
  constexpr int kRows[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  const int groups = w.groups();
  std::vector<float> scales;
  for (int g = 0; g < groups; ++g) {
    for (int n = 0; n < w.rows; ++n) scales.push_back(w.scale(n, g));
  }
  const auto row = [&](int i) { return i / 8 * 8 + kRows[i % 8]; };
  Parts parts;
  parts["qweight"] = {
      "I32", {w.columns, w.rows / 8}, lines_in_words(w.columns, w.rows, 4, [&](int k, int i) {
        return w.code(row(i), k);
      })};
  parts["qzeros"] = {
      "I32", {groups, w.rows / 8}, lines_in_words(groups, w.rows, 4, [&](int g, int i) {
        return w.zero(row(i), g);
      })};
  parts["scales"] = {"F16", {groups, w.rows}, floats_as("F16", scales)};
  return parts;
}

inline Parts pack_quantized_parts(const IntegerWeight& w, bool with_zeros) {
  Parts parts;
  const std::string codes =
      lines_in_words(w.rows, w.columns, w.bits, [&](int n, int k) { return w.code(n, k); });
  parts["weight_packed"] = {"I32", {w.rows, static_cast<int>(codes.size()) / 4 / w.rows}, codes};
  parts["weight_scale"] = {"BF16", {w.rows, w.groups()}, floats_as("BF16", w.scales)};
  const std::int64_t shape[2] = {w.rows, w.columns};
  parts["weight_shape"] = {"I64", {2}, std::string(reinterpret_cast<const char*>(shape), 16)};
  if (!with_zeros) return parts;
  const std::string zeros =
      turned(lines_in_words(w.groups(), w.rows, w.bits, [&](int g, int n) { return w.zero(n, g); }),
             w.groups());
  parts["weight_zero_point"] = {
      "I32", {static_cast<int>(zeros.size()) / 4 / w.groups(), w.groups()}, zeros};
  return parts;
}

// Stores 8-bit codes minus 128 as signed bytes, with one scale per row.
inline Parts int8_parts(const IntegerWeight& w, bool with_zeros) {
  Parts parts;
  std::string codes, zeros;
  for (const int code : w.codes) codes += static_cast<char>(code - 128);
  for (const int zero : w.zeros) zeros += static_cast<char>(zero - 128);
  parts["weight"] = {"I8", {w.rows, w.columns}, codes};
  parts["weight_scale"] = {"F32", {w.rows, 1}, floats_as("F32", w.scales)};
  if (with_zeros) parts["weight_zero_point"] = {"I8", {w.rows, 1}, zeros};
  return parts;
}

// Computes the value of an 8-bit float from its sign, exponent and fraction.
inline double float8(int code, int exponent_bits) {
  const int fraction_bits = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = code >> fraction_bits & ((1 << exponent_bits) - 1);
  const double fraction = (code & ((1 << fraction_bits) - 1)) / std::pow(2, fraction_bits);
  const double size = exponent == 0 ? fraction * std::pow(2, 1 - bias)
                                    : (1 + fraction) * std::pow(2, exponent - bias);
  return code & 128 ? -size : size;
}

class PackedFolder {
 public:
  void add(const std::string& name, StoredPart part) { tensors_[name] = std::move(part); }
  void add(const std::string& module, const Parts& parts) {
    for (const auto& [ending, part] : parts) tensors_[module + "." + ending] = part;
  }
  std::map<std::string, StoredPart>& tensors() { return tensors_; }

  std::string bytes() const {
    Json header = Json::object();
    std::string data;
    for (const auto& [name, part] : tensors_) {
      header[name] = {{"dtype", part.dtype},
                      {"shape", part.shape},
                      {"data_offsets", {data.size(), data.size() + part.bytes.size()}}};
      data += part.bytes;
    }
    const std::string text = header.dump();
    const std::uint64_t length = text.size();
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    return file + text + data;
  }
  std::filesystem::path write_tensors() { return folder_.write("model.safetensors", bytes()); }
  // Writes a complete checkpoint.
  std::filesystem::path write(const Json& config) {
    write_tensors();
    folder_.write("config.json", config.dump());
    Json vocab = Json::object();
    for (int i = 0; i < 94; ++i) vocab[std::string(1, static_cast<char>('!' + i))] = i;
    folder_.write("vocab.json", vocab.dump());
    folder_.write("merges.txt", "#version: 0.2\n");
    return folder_.path();
  }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
  std::map<std::string, StoredPart> tensors_;
};

// A LLaMA with one layer.
inline constexpr int kWidth = 128, kHidden = 192, kVocab = 131;

inline Json small_llama(const Json& quantization) {
  return {{"model_type", "llama"},        {"hidden_size", kWidth},
          {"intermediate_size", kHidden}, {"num_hidden_layers", 1},
          {"num_attention_heads", 2},     {"num_key_value_heads", 1},
          {"vocab_size", kVocab},         {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},         {"hidden_act", "silu"},
          {"tie_word_embeddings", true},  {"quantization_config", quantization}};
}

// `parts` creates the tensors of a linear with N rows and K columns.
inline void add_llama(PackedFolder& folder, const std::function<Parts(int n, int k)>& parts) {
  const auto floats = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 9) / 8);
    folder.add(name, {"BF16", shape, floats_as("BF16", values)});
  };
  const std::string at = "model.layers.0.";
  floats("model.embed_tokens.weight", {kVocab, kWidth});
  floats(at + "input_layernorm.weight", {kWidth});
  floats(at + "post_attention_layernorm.weight", {kWidth});
  floats("model.norm.weight", {kWidth});
  folder.add(at + "self_attn.q_proj", parts(kWidth, kWidth));
  folder.add(at + "self_attn.k_proj", parts(kWidth / 2, kWidth));
  folder.add(at + "self_attn.v_proj", parts(kWidth / 2, kWidth));
  folder.add(at + "self_attn.o_proj", parts(kWidth, kWidth));
  folder.add(at + "mlp.gate_proj", parts(kHidden, kWidth));
  folder.add(at + "mlp.up_proj", parts(kHidden, kWidth));
  folder.add(at + "mlp.down_proj", parts(kWidth, kHidden));
}

}  // namespace leq::test

// Numbers of GGUF files converted to .leq are kept exactly, or are rounded again with a note.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/half.h"
#include "convert/gguf_models.h"
#include "convert/import.h"
#include "format/gguf_source.h"
#include "format/gguf_vectors.h"
#include "format/leq_reader.h"
#include "quantize/run/quantize.h"
#include "temporary_folder.h"
#include "tensor/pack.h"

namespace leq {
namespace {

using test::GgufWriter;

// Returns random blocks of a type with scales near 0.01, some of which are 0.
std::string random_tensor(const GgufType& type, std::int64_t rows, std::int64_t columns,
                          Random& random) {
  std::string bytes;
  const std::int64_t blocks = rows * columns / type.elements;
  for (std::int64_t b = 0; b < blocks; ++b) {
    std::string block;
    for (std::int64_t i = 0; i < type.bytes; ++i) block += static_cast<char>(random.below(256));
    const auto set_half = [&](std::size_t at, float value) {
      const std::uint16_t bits = f32_to_f16(value);
      std::memcpy(block.data() + at, &bits, 2);
    };
    const auto half = [&](std::size_t at) {
      set_half(at, b % 50 == 7 ? 0.0f : 0.01f * random.normal());
    };
    for (const test::GgufVector& vector : test::kGgufVectors) {
      if (vector.type != type.name) continue;
      for (const int at : vector.halves) half(static_cast<std::size_t>(at));
    }
    if (type.name == "IQ1_M") {  // the upper nibbles of four words
      const std::uint16_t bits = f32_to_f16(0.01f * random.normal());
      for (std::size_t i = 0; i < 4; ++i) {
        const int nibble = bits >> (4 * i) & 15;
        block[49 + 2 * i] = static_cast<char>((block[49 + 2 * i] & 15) | nibble << 4);
      }
    }
    if (type.name == "MXFP4") block[0] = static_cast<char>(118 + random.below(4));
    if (type.name == "Q4_1" || type.name == "Q5_1") {  // like weights, on both sides of 0
      const float scale = 0.001f + 0.01f * random.uniform();
      set_half(0, scale);
      set_half(2, -scale * static_cast<float>(random.below(type.name == "Q4_1" ? 16 : 32)));
    }
    bytes += block;
  }
  return bytes;
}

// Returns a llama whose linears have one type; its embedding and layer 1's v have another.
std::string typed_gguf(const std::string& linears, const std::string& table,
                       std::int64_t width = 256) {
  Random random(11);
  GgufWriter writer;
  ModelConfig config;
  config.layers = UniformLayers{.count = 2, .mlp = {.hidden = 256}}.layers();
  config.width = width;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 64;
  config.context = 64;
  test::add_config(writer, config, "llama");
  test::add_letters(writer);
  const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t columns,
                       const std::string& type) {
    const auto found = std::ranges::find(gguf_types(), type, &GgufType::name);
    writer.tensor(name, {static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows)},
                  found->id, random_tensor(*found, rows, columns, random));
  };
  const auto norm = [&](const std::string& name) {
    writer.tensor(name, {static_cast<std::uint64_t>(width)}, 0,
                  test::f32_bytes(std::vector<float>(static_cast<std::size_t>(width), 1.0f)));
  };
  add("token_embd.weight", 100, width, table);
  for (const char* block : {"blk.0.", "blk.1."}) {
    const std::string at = block;
    norm(at + "attn_norm.weight");
    add(at + "attn_q.weight", 256, width, linears);
    add(at + "attn_k.weight", 128, width, linears);
    add(at + "attn_v.weight", 128, width, at == "blk.1." ? table : linears);
    add(at + "attn_output.weight", width, 256, linears);
    norm(at + "ffn_norm.weight");
    add(at + "ffn_gate.weight", 256, width, linears);
    add(at + "ffn_up.weight", 256, width, linears);
    add(at + "ffn_down.weight", width, 256, linears);
  }
  norm("output_norm.weight");
  return writer.bytes();
}

// Converts with the file's own types; every number must equal its decoded value in the GGUF file,
// or the squared error relative to the weights is at most `most`.
void convert_and_compare(const std::string& linears, const std::string& table, double most,
                         const std::string& scheme) {
  SCOPED_TRACE(linears + " and " + table);
  const test::TemporaryFolder folder;
  const std::string path = folder.write("m.gguf", typed_gguf(linears, table));
  EXPECT_TRUE(holds_codes(path));
  const ImportedModel model = import_checkpoint(path);
  QuantizeOptions options;
  options.threads = 2;
  keep_types(model, options);
  quantize_imported(model, folder / "m.leq", options);
  const LeqReader file(folder / "m.leq", {});
  int matrices = 0;
  for (const TensorInput& tensor : model.tensors) {
    const StoredTensor* stored = file.find(tensor.name);
    ASSERT_NE(stored, nullptr) << tensor.name;
    EXPECT_EQ(stored->source, tensor.source_type);
    if (tensor.shape.size() != 2) continue;
    ++matrices;
    const test::Rows want = test::rows_of(tensor);
    std::vector<float> row(static_cast<std::size_t>(want.columns));
    double worst = 0;
    for (std::int64_t r = 0; r < want.rows; ++r) {
      unpack_row(stored->view, r, row);
      for (std::int64_t k = 0; k < want.columns; ++k) {
        const float w = want.values[static_cast<std::size_t>(r * want.columns + k)];
        worst = std::max(worst, std::abs(double{row[static_cast<std::size_t>(k)]} - double{w}));
      }
    }
    if (most == 0) {
      EXPECT_EQ(worst, 0) << tensor.name;
      EXPECT_EQ(stored->error, 0) << tensor.name;
      const bool integers = tensor.own_scheme->takes_codes();
      EXPECT_EQ(stored->method, integers ? "source" : "none") << tensor.name;
    } else if (tensor.name == "layers.0.q") {
      EXPECT_GT(stored->error, 0) << tensor.name;
      EXPECT_LT(stored->error, most) << tensor.name;
    }
    if (tensor.name == "layers.0.q") {
      EXPECT_EQ(scheme_name(stored->view.scheme), scheme);
    }
  }
  EXPECT_EQ(matrices, 15);
}

TEST(GgufNumbers, ExactTypesAreCarriedOver) {
  for (const char* type : {"Q8_0", "Q5_0", "Q3_K"}) {
    convert_and_compare(type, "Q8_0", 0, "uint8-g32");
  }
  convert_and_compare("IQ4_NL", "Q5_0", 0, "iq4_nl");
  convert_and_compare("MXFP4", "Q8_0", 0, "mxfp4");
  convert_and_compare("NVFP4", "NVFP4", 0, "nvfp4");
  convert_and_compare("Q4_0", "Q4_0", 0, "int4-g32");
  convert_and_compare("Q4_0", "Q8_0", 0, "int4-g32");  // v of layer 1: uint8-g32
}

// v of layer 1 has another type than q and k, although all three linears read the same input.
TEST(GgufNumbers, KTypesAreCarriedOver) {
  convert_and_compare("Q4_K", "Q6_K", 0, "q4_k");
  convert_and_compare("Q5_K", "Q6_K", 0, "q5_k");
  convert_and_compare("Q6_K", "Q8_0", 0, "q6_k");
  convert_and_compare("Q4_K", "Q4_0", 0, "q4_k");
}

TEST(GgufNumbers, TernaryTypesAreCarriedOver) {
  convert_and_compare("TQ1_0", "Q4_K", 0, "int2-g32");
  convert_and_compare("TQ2_0", "TQ1_0", 0, "int2-g32");
}

TEST(GgufNumbers, Nvfp4HasAFactorInATensorOfItsOwn) {
  Random random(12);
  const auto type = *std::ranges::find(gguf_types(), "NVFP4", &GgufType::name);
  constexpr std::int64_t kRows = 6, kColumns = 128;
  const std::string blocks = random_tensor(type, kRows, kColumns, random);
  const std::vector<float> factors = {0.37f, 1.3f};  // of two experts
  GgufWriter writer;
  writer.tensor("x.input_scale", {1}, 0, test::f32_bytes({5.0f}));
  writer.tensor("x.scale", {2}, 0, test::f32_bytes(factors));
  writer.tensor("x.weight", {kColumns, kRows / 2, 2}, type.id, blocks);
  const test::TemporaryFolder folder;
  const GgufSource source(folder.write("m.gguf", writer.bytes()));
  ASSERT_EQ(source.tensors().size(), 1u);
  const SourceTensor& tensor = source.tensors().front();
  std::vector<float> values(kRows * kColumns), row(kColumns);
  source.read(tensor, 0, values);
  for (std::int64_t r = 0; r < kRows; ++r) {
    ChosenCodes codes;
    ASSERT_TRUE(source.read_codes(tensor, *parse_scheme("nvfp4"), r, 1, codes));
    const auto packed = pack_codes(codes, 1, kColumns, *parse_scheme("nvfp4"), ActKind::none);
    unpack_row(packed.view(), 0, row);
    for (std::int64_t k = 0; k < kColumns; ++k) {
      const std::size_t block = static_cast<std::size_t>((r * kColumns + k) / 64) * 36;
      const int e = static_cast<int>(k % 64);
      const auto byte_at = [&](int at) {
        return static_cast<unsigned char>(blocks[block + static_cast<std::size_t>(at)]);
      };
      const int byte = byte_at(e / 16);
      const int pair = byte_at(4 + e / 16 * 8 + e % 8);
      const int code = e % 16 < 8 ? pair & 15 : pair >> 4;
      constexpr double kSizes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
      const int low = byte & 127;
      const double scale = byte == 127 ? 0
                           : low < 8   ? std::ldexp(low, -9)
                                       : std::ldexp(8 + low % 8, low / 8 - 10);
      const float stored = static_cast<float>(scale * double{factors[r < 3 ? 0 : 1]});
      const float want = static_cast<float>(kSizes[code & 7] * (code & 8 ? -1 : 1)) * stored;
      ASSERT_EQ(values[static_cast<std::size_t>(r * kColumns + k)], want) << r << ' ' << k;
      ASSERT_EQ(row[static_cast<std::size_t>(k)], want) << r << ' ' << k;
    }
  }
}

TEST(GgufNumbers, OthersAreQuantizedAgainAndSayHowFar) {
  convert_and_compare("Q2_K", "Q8_0", 1e-4, "uint8-g32");
  convert_and_compare("IQ4_XS", "Q8_0", 1e-7, "iq4_nl");  // only scales are rounded, to f16
  convert_and_compare("Q4_1", "Q8_0", 1e-4, "q4_k");
  convert_and_compare("Q5_1", "Q8_0", 1e-4, "q5_k");
  convert_and_compare("IQ1_S", "Q6_K", 1e-5, "q4_k");  // its values are on lines of q4_k
  for (const char* type : {"IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"}) {
    convert_and_compare(type, "Q6_K", 4e-3, "q4_k");
  }
}

// The inputs of each linear in the file that is made of `gguf`.
std::map<std::string, ActKind> acts_of(const std::string& gguf, ActChoice act) {
  const test::TemporaryFolder folder;
  const ImportedModel model = import_checkpoint(folder.write("m.gguf", gguf));
  QuantizeOptions options;
  options.threads = 2;
  options.act = act;
  keep_types(model, options);
  quantize_imported(model, folder / "m.leq", options);
  std::map<std::string, ActKind> acts;
  const LeqReader file(folder / "m.leq", {});
  for (const StoredTensor& tensor : file.tensors()) acts[tensor.name] = tensor.view.act;
  return acts;
}

// Narrow models: groups of 32 columns at inputs that a kept 8-bit type in such groups reads, also
// where layer 1's v alone has one; down and the head always. Wide models, other types: as
// elsewhere.
TEST(GgufNumbers, InputsOfKept8BitCodesAreInGroupsOf32InNarrowModels) {
  struct Case {
    const char *linears, *table;
    std::int64_t width;
    ActChoice choice;
    ActKind q, q1, o, up, down, table_act;
  };
  using enum ActKind;
  constexpr ActChoice kAuto = ActChoice::automatic;
  for (const Case& c :
       {Case{"Q8_0", "Q8_0", 256, kAuto, g32, g32, g32, g32, g32, g32},
        {"Q5_0", "Q8_0", 256, kAuto, g32, g32, g32, g32, g32, g32},
        {"Q8_0", "Q8_0", 2048, kAuto, g128, g128, g128, g128, g128, g128},
        {"Q4_0", "Q4_0", 256, kAuto, g128, g128, g128, g128, g32, g32},
        {"Q4_K", "Q6_K", 256, kAuto, g128, g128, g128, g128, g32, g32},
        {"Q4_K", "Q8_0", 256, kAuto, g128, g32, g128, g128, g32, g32},
        {"Q8_0", "Q8_0", 256, ActChoice::g128, g128, g128, g128, g128, g128, g32},
        {"Q8_0", "Q8_0", 2048, ActChoice::g32, g32, g32, g32, g32, g32, g128},
        {"Q4_K", "Q6_K", 256, ActChoice::g32, g32, g32, g32, g32, g32, g32},
        {"Q8_0", "Q8_0", 256, ActChoice::none, none, none, none, none, none, none}}) {
    SCOPED_TRACE(std::string(c.linears) + " and " + c.table + ", width " + std::to_string(c.width) +
                 ", " + std::string(act_choice_name(c.choice)));
    const auto acts = acts_of(typed_gguf(c.linears, c.table, c.width), c.choice);
    EXPECT_EQ(acts.at("layers.0.q"), c.q);
    EXPECT_EQ(acts.at("layers.1.q"), c.q1);
    EXPECT_EQ(acts.at("layers.1.v"), c.q1);
    EXPECT_EQ(acts.at("layers.0.o"), c.o);
    EXPECT_EQ(acts.at("layers.0.up"), c.up);
    EXPECT_EQ(acts.at("layers.0.down"), c.down);
    EXPECT_EQ(acts.at("token_embedding"), c.table_act);
  }
}

// v of layer 1 has groups of 32, over which the inputs that q and k read have their sums then.
TEST(GgufNumbers, GroupsOf16AreKeptWhereAllReadersHaveThem) {
  const test::TemporaryFolder folder;
  const ImportedModel model =
      import_checkpoint(folder.write("m.gguf", typed_gguf("NVFP4", "Q8_0")));
  QuantizeOptions options;
  keep_types(model, options);
  quantize_imported(model, folder / "m.leq", options);
  const LeqReader file(folder / "m.leq", {});
  const auto scheme_of = [&](const char* name) {
    return scheme_name(file.find(name)->view.scheme);
  };
  EXPECT_EQ(scheme_of("layers.0.q"), "nvfp4");
  EXPECT_EQ(scheme_of("layers.0.v"), "nvfp4");
  EXPECT_EQ(scheme_of("layers.1.q"), "uint8-g32");
  EXPECT_EQ(scheme_of("layers.1.v"), "uint8-g32");
  EXPECT_EQ(scheme_of("layers.1.up"), "nvfp4");
}

TEST(GgufNumbers, AMethodChoosesCodesOfItsOwn) {
  const test::TemporaryFolder folder;
  const ImportedModel model = import_checkpoint(folder.write("m.gguf", typed_gguf("Q8_0", "Q8_0")));
  QuantizeOptions options;
  options.method = "gptq";
  EXPECT_THROW(keep_types(model, options), Error);
  options.method = "absmax";
  options.measure_keys = true;
  EXPECT_THROW(keep_types(model, options), Error);
}

}  // namespace
}  // namespace leq

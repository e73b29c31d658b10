// Quantized safetensors checkpoints: the values of every layout compared with values computed by
// hand, codes that are kept bit for bit in a .leq file, and errors that name what is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "convert/hf_import.h"
#include "convert/import.h"
#include "convert/packed_folder.h"
#include "convert/quantization_config.h"
#include "errors.h"
#include "format/leq_reader.h"
#include "format/packed_matrix.h"
#include "format/packed_source.h"
#include "format/tensor_source.h"
#include "reference/family_golden.h"
#include "tensor/pack.h"

namespace leq::packed {
namespace {

using test::add_llama;
using test::IntegerWeight;
using test::kWidth;
using test::PackedFolder;
using test::Parts;
using test::random_integers;
using test::small_llama;

PackedSource open(PackedFolder& folder, const PackedOptions& options) {
  return PackedSource(open_safetensors(folder.write_tensors()), options);
}

std::vector<float> read_all(const PackedSource& source, const std::string& name) {
  const SourceTensor* tensor = source.find(name);
  std::vector<float> values(static_cast<std::size_t>(tensor->shape[0] * tensor->shape[1]));
  source.read(*tensor, 0, values);
  // Reads may begin at any element and cross the ends of rows.
  std::vector<float> again(values.size());
  for (std::size_t at = 0; at < again.size(); at += 37) {
    const std::size_t count = std::min<std::size_t>(37, again.size() - at);
    source.read(*tensor, static_cast<std::int64_t>(at), std::span(again).subspan(at, count));
  }
  EXPECT_EQ(values, again);
  return values;
}

std::string scheme_of(const PackedSource& source, const std::string& name) {
  const auto scheme = source.own_scheme(*source.find(name));
  return scheme ? scheme_name(*scheme) : "none";
}

// The codes packed by pack_codes must represent exactly the values that `read` returns.
void expect_exact(const PackedSource& source, const std::string& name) {
  const SourceTensor& tensor = *source.find(name);
  const QuantScheme scheme = source.own_scheme(tensor).value();
  ChosenCodes codes;
  ASSERT_TRUE(source.read_codes(tensor, scheme, 0, tensor.shape[0], codes)) << name;
  const PackedWeight packed =
      pack_codes(codes, tensor.shape[0], tensor.shape[1], scheme, ActKind::none);
  std::vector<float> row(static_cast<std::size_t>(tensor.shape[1]));
  const std::vector<float> want = read_all(source, name);
  for (std::int64_t r = 0; r < tensor.shape[0]; ++r) {
    unpack_row(packed.view(), r, row);
    ASSERT_TRUE(std::ranges::equal(
        row, std::span(want).subspan(static_cast<std::size_t>(r) * row.size(), row.size())))
        << name << " row " << r;
  }
}

void check_integers(const Parts& parts, const IntegerWeight& want, const PackedOptions& options,
                    const std::string& scheme) {
  PackedFolder folder;
  folder.add("m.x", parts);
  const PackedSource source = open(folder, options);
  ASSERT_EQ(source.tensors().size(), 1u);
  EXPECT_EQ(source.find("m.x.weight")->shape, (Shape{want.rows, want.columns}));
  EXPECT_EQ(read_all(source, "m.x.weight"), want.values()) << scheme;
  EXPECT_EQ(scheme_of(source, "m.x.weight"), scheme);
  if (scheme != "none") expect_exact(source, "m.x.weight");
}

PackedOptions gptq(int bits, std::int64_t group, bool version_1) {
  PackedOptions options;
  options.method = PackedMethod::gptq;
  options.bits = {bits};
  options.group = group;
  options.zeros_plus_one = version_1;
  return options;
}

TEST(PackedWeights, OfGptqAreTheirCodesLessZeroTimesScale) {
  for (const int bits : {2, 3, 4, 8}) {
    for (const bool version_1 : {true, false}) {
      const std::string name = std::to_string(bits) + "-g64";
      const IntegerWeight any = random_integers(72, 192, bits, 64, false, 3);
      check_integers(test::gptq_parts(any, version_1), any, gptq(bits, 64, version_1),
                     "uint" + name);
      const IntegerWeight centred = random_integers(40, 128, bits, 64, true, 4);
      check_integers(test::gptq_parts(centred, version_1), centred, gptq(bits, 64, version_1),
                     (bits == 8 ? "uint" : "int") + name);
    }
  }
  const IntegerWeight rows = random_integers(16, 160, 4, 0, true, 5);
  check_integers(test::gptq_parts(rows, true), rows, gptq(4, -1, true), "int4-g128");
  const IntegerWeight wide = random_integers(16, 256, 8, 0, true, 6);
  check_integers(test::gptq_parts(wide, true), wide, gptq(8, -1, true), "uint8");
  const IntegerWeight odd = random_integers(16, 96, 4, 48, false, 7);  // groups that no scheme has
  check_integers(test::gptq_parts(odd, true), odd, gptq(4, 48, true), "none");
}

TEST(PackedWeights, OfSortedColumnsAreReadAndQuantizedAgain) {
  IntegerWeight w = random_integers(24, 128, 4, 32, false, 8);
  for (int k = 0; k < w.columns; ++k) w.groups_of.push_back(k * 7 % 4);
  check_integers(test::gptq_parts(w, true), w, gptq(4, 32, true), "none");
  // Without activation order, columns are in order and g_idx is zero or missing.
  w.groups_of.clear();
  check_integers(test::gptq_parts(w, true), w, gptq(4, 32, true), "uint4-g32");
  Parts zeros = test::gptq_parts(w, true);
  zeros["g_idx"].bytes.assign(zeros["g_idx"].bytes.size(), '\0');
  check_integers(zeros, w, gptq(4, 32, true), "uint4-g32");
  zeros.erase("g_idx");
  check_integers(zeros, w, gptq(4, 32, true), "uint4-g32");
}

TEST(PackedWeights, OfAwqHaveTheirOwnOrder) {
  PackedOptions options;
  options.method = PackedMethod::awq;
  options.bits = {4};
  for (const int group : {32, 128}) {
    options.group = group;
    const IntegerWeight w = random_integers(72, 256, 4, group, false, 9);
    check_integers(test::awq_parts(w), w, options, "uint4-g" + std::to_string(group));
  }
}

TEST(PackedWeights, OfCompressedTensorsInWordsAndBytes) {
  PackedOptions options;
  options.method = PackedMethod::compressed_tensors;
  for (const int bits : {2, 3, 4, 5, 7, 8}) {
    options.bits = {bits};
    options.group = 32;
    const std::string stored = std::to_string(bits > 4 ? 8 : bits) + "-g32";
    const IntegerWeight any = random_integers(40, 96, bits, 32, false, 10);
    check_integers(test::pack_quantized_parts(any, true), any, options, "uint" + stored);
    const IntegerWeight centred = random_integers(40, 96, bits, 32, true, 11);
    check_integers(test::pack_quantized_parts(centred, false), centred, options,
                   (bits == 8 ? "uint" : "int") + stored);
  }
  IntegerWeight rows = random_integers(40, 200, 8, 0, true, 12);
  check_integers(test::int8_parts(rows, false), rows, options, "uint8");  // some code is -128
  std::ranges::replace(rows.codes, 0, 1);
  check_integers(test::int8_parts(rows, false), rows, options, "int8");
  const IntegerWeight moved = random_integers(40, 200, 8, 0, false, 13);
  check_integers(test::int8_parts(moved, true), moved, options, "uint8");
}

TEST(PackedWeights, ScalesThatNoHalfHoldsAreNotRounded) {
  IntegerWeight w = random_integers(16, 64, 4, 32, true, 14);
  for (float& scale : w.scales) scale *= 1.0001f;
  Parts parts = test::pack_quantized_parts(w, false);
  parts["weight_scale"] = {"F32", {16, 2}, test::floats_as("F32", w.scales)};
  PackedOptions options;
  options.method = PackedMethod::compressed_tensors;
  options.bits = {4};
  options.group = 32;
  check_integers(parts, w, options, "none");
}

// ---- floats

TEST(Float8Codes, AreWhatSignExponentAndFractionSay) {
  for (int code = 0; code < 256; ++code) {
    const auto index = static_cast<std::size_t>(code);
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(float8_e4m3_values()[index]));
    } else {
      EXPECT_EQ(float8_e4m3_values()[index], test::float8(code, 4)) << code;
    }
    if ((code & 124) == 124) continue;
    EXPECT_EQ(float8_e5m2_values()[index], test::float8(code, 5)) << code;
  }
  EXPECT_EQ(float8_e8m0_value(127), 1.0f);
  EXPECT_EQ(float8_e8m0_value(0), std::ldexp(1.0f, -127));
  EXPECT_TRUE(std::isnan(float8_e8m0_value(255)));
}

struct Float8Case {
  const char* scale_name;
  std::string scale_type;
  std::vector<std::int64_t> scale_shape;
  int block_rows, block_columns;
};

TEST(PackedWeights, OfFloat8TimesAnyShapeOfScales) {
  constexpr int kRows = 200, kColumns = 192;
  Random random(15);
  std::string codes;
  for (int i = 0; i < kRows * kColumns; ++i) {
    const auto code = static_cast<char>(random.below(256));
    codes += (code & 127) == 127 ? '\x35' : code;
  }
  for (const Float8Case& one : {Float8Case{"weight_scale_inv", "F32", {2, 2}, 128, 128},
                                {"weight_scale_inv", "F8_E8M0", {2, 2}, 128, 128},
                                {"weight_scale_inv", "F32", {}, kRows, kColumns},
                                {"weight_scale", "BF16", {kRows, 1}, 1, kColumns},
                                {"weight_scale", "F32", {kRows}, 1, kColumns},
                                {"qscale_weight", "F32", {1}, kRows, kColumns},
                                {"weight_scale", "U8", {kRows, 6}, 1, 32}}) {
    std::size_t count = 1;
    for (const std::int64_t size : one.scale_shape) count *= static_cast<std::size_t>(size);
    std::vector<double> scales;
    std::string bytes;
    for (std::size_t i = 0; i < count; ++i) {
      const int exponent = static_cast<int>(random.below(20)) - 10;
      const float scale = std::ldexp(1.0f, exponent) * (one.scale_type == "F32" ? 1.3f : 1.0f);
      scales.push_back(double{scale});
      const bool is_byte = one.scale_type == "U8" || one.scale_type == "F8_E8M0";
      bytes += is_byte ? std::string(1, static_cast<char>(exponent + 127))
                       : test::floats_as(one.scale_type, {scale});
    }
    PackedFolder folder;
    folder.add("x.weight", {"F8_E4M3", {kRows, kColumns}, codes});
    folder.add(std::string("x.") + one.scale_name, {one.scale_type, one.scale_shape, bytes});
    folder.add("x.activation_scale", {"F32", {}, std::string(4, '\0')});
    folder.add("x.k_scale", {"F32", {}, std::string(4, '\0')});
    PackedOptions options;
    options.group = 32;
    const PackedSource source = open(folder, options);
    ASSERT_EQ(source.tensors().size(), 1u);
    const std::vector<float> found = read_all(source, "x.weight");
    const int across = (kColumns + one.block_columns - 1) / one.block_columns;
    for (int n = 0; n < kRows; ++n) {
      for (int k = 0; k < kColumns; ++k) {
        const auto at = static_cast<std::size_t>(n * kColumns + k);
        const auto block =
            static_cast<std::size_t>(n / one.block_rows * across + k / one.block_columns);
        const double want = test::float8(static_cast<unsigned char>(codes[at]), 4) * scales[block];
        ASSERT_EQ(found[at], static_cast<float>(want)) << one.scale_name << ' ' << n << ' ' << k;
      }
    }
    EXPECT_EQ(scheme_of(source, "x.weight"), "none");
  }
}

TEST(PackedWeights, OfFloat4InGroups) {
  constexpr double kSizes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  constexpr int kRows = 24, kColumns = 128;
  Random random(16);
  std::vector<int> codes;
  for (int i = 0; i < kRows * kColumns; ++i) codes.push_back(static_cast<int>(random.below(16)));
  const std::string bytes = test::in_words(codes, 4);
  for (const bool is_mx : {true, false}) {
    const int group = is_mx ? 32 : 16, groups = kColumns / group;
    std::string scale_bytes;
    std::vector<float> scales;
    const float common = 1.7f;
    for (int i = 0; i < kRows * groups; ++i) {
      const auto code = static_cast<int>(is_mx ? 110 + random.below(20) : 8 + random.below(100));
      scale_bytes += static_cast<char>(code);
      scales.push_back(is_mx ? std::ldexp(1.0f, code - 127)
                             : static_cast<float>(test::float8(code, 4)) / common);
    }
    PackedFolder folder;
    folder.add("x.weight_packed", {"U8", {kRows, kColumns / 2}, bytes});
    folder.add("x.weight_scale", {is_mx ? "U8" : "F8_E4M3", {kRows, groups}, scale_bytes});
    if (!is_mx) folder.add("x.weight_global_scale", {"F32", {1}, test::floats_as("F32", {common})});
    PackedOptions options;
    options.method = PackedMethod::compressed_tensors;
    options.group = group;
    const PackedSource source = open(folder, options);
    const std::vector<float> found = read_all(source, "x.weight");
    for (int n = 0; n < kRows; ++n) {
      for (int k = 0; k < kColumns; ++k) {
        const auto at = static_cast<std::size_t>(n * kColumns + k);
        const double size = kSizes[codes[at] & 7] * (codes[at] & 8 ? -1 : 1);
        const float scale = scales[static_cast<std::size_t>(n * groups + k / group)];
        ASSERT_EQ(found[at], static_cast<float>(size) * scale) << n << ' ' << k;
      }
    }
    EXPECT_EQ(scheme_of(source, "x.weight"), is_mx ? "mxfp4" : "nvfp4");
    if (is_mx) expect_exact(source, "x.weight");
  }
}

// The experts of gpt-oss: blocks of MXFP4 are the numbers that a folder in floats has, transposed.
TEST(PackedWeights, OfExpertsInBlocksOfFloat4) {
  constexpr double kSizes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  PackedFolder packed, plain;
  const auto folder = test::family_folder("gpt-oss");
  const auto stored = open_safetensors(folder);
  Random random(17);
  for (const SourceTensor& tensor : stored->tensors()) {
    if (tensor.name.ends_with("_proj") && tensor.shape.size() == 3) {
      const std::int64_t experts = tensor.shape[0], columns = tensor.shape[1],
                         rows = tensor.shape[2];
      std::string blocks, scales;
      std::vector<float> values(static_cast<std::size_t>(experts * columns * rows));
      for (std::int64_t e = 0; e < experts; ++e) {
        for (std::int64_t n = 0; n < rows; ++n) {
          int scale = 0, pair = 0;
          for (std::int64_t k = 0; k < columns; ++k) {
            if (k % 32 == 0)
              scales += static_cast<char>(scale = 120 + static_cast<int>(random.below(8)));
            const auto code = static_cast<int>(random.below(16));
            const double size = kSizes[code & 7] * (code & 8 ? -1 : 1);
            values[static_cast<std::size_t>((e * columns + k) * rows + n)] =
                static_cast<float>(std::ldexp(size, scale - 127));
            pair |= code << (k % 2 * 4);
            if (k % 2 == 0) continue;
            blocks += static_cast<char>(pair);
            pair = 0;
          }
        }
      }
      packed.add(tensor.name + "_blocks", {"U8", {experts, rows, columns / 32, 16}, blocks});
      packed.add(tensor.name + "_scales", {"U8", {experts, rows, columns / 32}, scales});
      plain.add(tensor.name, {"F32", tensor.shape, test::floats_as("F32", values)});
    } else {
      const std::string bytes(reinterpret_cast<const char*>(tensor.bytes.data()),
                              tensor.bytes.size());
      for (PackedFolder* to : {&packed, &plain})
        to->add(tensor.name, {"BF16", tensor.shape, bytes});
    }
  }
  Json config = parse_json(read_file(folder / "config.json", 1 << 20), "config.json");
  std::vector<ImportedModel> models;
  for (PackedFolder* from : {&plain, &packed}) {
    models.push_back(import_hf(from->write(config)));
    config["quantization_config"] = {{"quant_method", "mxfp4"}};
  }
  ASSERT_EQ(models[0].tensors.size(), models[1].tensors.size());
  std::int64_t kept = 0;
  for (std::size_t i = 0; i < models[0].tensors.size(); ++i) {
    const TensorInput &want = models[0].tensors[i], &found = models[1].tensors[i];
    const std::int64_t columns = want.shape.size() == 2 ? want.shape[1] : 1;
    std::vector<float> a(static_cast<std::size_t>(want.shape[0] * columns)), b(a.size());
    want.read(0, want.shape[0], a);
    found.read(0, want.shape[0], b);
    EXPECT_EQ(a, b) << want.name;
    if (!found.own_scheme || found.own_scheme->is_float()) continue;
    EXPECT_EQ(scheme_name(*found.own_scheme), "int8-g128");  // a block is a row of 32 columns
    ChosenCodes codes;
    EXPECT_TRUE(found.read_codes(*found.own_scheme, 0, want.shape[0], codes));
    ++kept;
  }
  EXPECT_EQ(kept, 4 * 5 * 3) << "layers, experts, linears";
}

// ---- errors

std::string error_of(PackedFolder& folder, const PackedOptions& options) {
  return test::error_of([&] { open(folder, options); });
}

TEST(PackedWeights, WithPartsThatDoNotFitAreRefusedByTensorAndPlace) {
  struct Case {
    const char* what;
    std::function<void(std::map<std::string, test::StoredPart>&)> change;
    const char* text;
  };
  using Tensors = std::map<std::string, test::StoredPart>;
  const auto reshape = [](const char* name, std::vector<std::int64_t> shape, std::size_t bytes) {
    return [=](Tensors& t) { t[name].shape = shape, t[name].bytes.resize(bytes); };
  };
  const std::vector<Case> cases = {
      {"no scales", [](Tensors& t) { t.erase("x.scales"); }, "x.qweight holds I32 codes"},
      {"scales of another shape", reshape("x.scales", {2, 8}, 32),
       "tensor x.scales: expected shape [2, 16]"},
      {"too many scales", reshape("x.scales", {63, 16}, 63 * 32),
       "x.scales has 63 scales for a row of 64"},
      {"scales that are codes", [](Tensors& t) { t["x.scales"].dtype = "I16"; },
       "x.scales has type I16"},
      {"zeros of another shape", reshape("x.qzeros", {3, 2}, 24),
       "tensor x.qzeros: expected shape [2, 2]"},
      {"zeros of another width", reshape("x.qzeros", {2, 5}, 40), "hold no zero points of 16 rows"},
      {"zeros that are floats", [](Tensors& t) { t["x.qzeros"].dtype = "F32"; },
       "x.qzeros has type F32"},
      {"codes that are a vector", reshape("x.qweight", {128}, 512),
       "tensor x.qweight: expected a matrix"},
      {"a group that is not there", [](Tensors& t) { t["x.g_idx"].bytes[4] = 2; },
       "x.g_idx: column 1 is of group 2 of 2"},
      {"an order of other columns", reshape("x.g_idx", {63}, 252),
       "tensor x.g_idx: expected shape [64]"},
      {"scales twice", [](Tensors& t) { t["x.weight_scale"] = t["x.scales"]; },
       "says what tensor x.scales says"},
      {"floats beside codes",
       [](Tensors& t) {
         t["x.weight"] = {"F16", {1, 1}, "ab"};
       },
       "there is also x.weight"},
      {"scales beside floats",
       [](Tensors& t) {
         t["y.weight"] = {"F16", {1, 1}, "ab"}, t["y.scales"] = {"F16", {1, 1}, "ab"};
       },
       "y.scales: scales beside a weight of type F16"},
      {"scales of nothing",
       [](Tensors& t) {
         t["z.scales"] = {"F16", {1, 1}, "ab"};
       },
       "z.scales: there is no weight"}};
  const IntegerWeight w = random_integers(16, 64, 4, 32, false, 17);
  for (const Case& one : cases) {
    PackedFolder folder;
    folder.add("x", test::gptq_parts(w, true));
    ASSERT_EQ(error_of(folder, gptq(4, 32, true)), "");
    one.change(folder.tensors());
    const std::string error = error_of(folder, gptq(4, 32, true));
    EXPECT_NE(error.find(one.text), std::string::npos) << one.what << ": " << error;
    EXPECT_NE(error.find("model.safetensors at offset "), std::string::npos) << error;
  }
  PackedOptions compressed;
  compressed.method = PackedMethod::compressed_tensors;
  compressed.bits = {4};
  compressed.group = 32;
  PackedFolder folder;
  folder.add("x", test::pack_quantized_parts(w, true));
  ASSERT_EQ(error_of(folder, compressed), "");
  folder.tensors()["x.weight_shape"].bytes[8] = 100;  // 8 words hold only 64 columns
  EXPECT_NE(error_of(folder, compressed).find("x.weight_packed: 8 words for 100 columns"),
            std::string::npos)
      << error_of(folder, compressed);
  folder.tensors()["x.weight_shape"].bytes[0] = 15;
  EXPECT_NE(error_of(folder, compressed).find("x.weight_shape says [15, 100]"), std::string::npos);
}

TEST(PackedWeights, OfAFileThatWasCutOffAreRefused) {
  PackedFolder folder;
  folder.add("x", test::gptq_parts(random_integers(8, 32, 4, 32, false, 18), true));
  const std::string bytes = folder.bytes();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto path = folder.folder().write("cut.safetensors", bytes.substr(0, length));
    EXPECT_THROW(PackedSource(open_safetensors(path), gptq(4, 32, true)), Error) << length;
  }
}

// ---- config.json

Json quantized(const Json& quantization) { return {{"quantization_config", quantization}}; }

TEST(QuantizationConfigs, OfMethodsThatAreNotReadAreRefusedByName) {
  struct Case {
    Json config;
    const char* text;
  };
  for (const Case& one : std::vector<Case>{
           {{{"quant_method", "bitsandbytes"}}, "bitsandbytes"},
           {{{"bits", 4}}, "quant_method \"\""},
           {{{"quant_method", "gptq"}, {"bits", 5}}, "bits = 5"},
           {{{"quant_method", "gptq"}, {"bits", 4}, {"checkpoint_format", "marlin"}}, "marlin"},
           {{{"quant_method", "gptq"}, {"bits", 4}, {"pack_dtype", "int64"}}, "int64"},
           {{{"quant_method", "awq"}, {"bits", 4}, {"version", "gemv"}}, "gemv"},
           {{{"quant_method", "awq"}, {"bits", 8}}, "bits = 8"},
           {{{"quant_method", "fp8"}, {"weight_block_size", {128}}}, "weight_block_size"},
           {{{"quant_method", "fp8"}, {"weight_block_size", {0, 128}}}, "0 x 128"},
           // The number of blocks would overflow to 0, and scales be read from a tensor without
           // any.
           {{{"quant_method", "fp8"}, {"weight_block_size", {INT64_MAX, 128}}}, "x 128"},
           {{{"quant_method", "modelopt"}, {"quant_algo", "W4A8_AWQ"}}, "W4A8_AWQ"},
           {{{"quant_method", "auto-round"}, {"packing_format", "auto_round:llm"}},
            "auto_round:llm"},
           {{{"quant_method", "auto-round"}}, "packing_format is missing"},
           {{{"quant_method", "compressed-tensors"}}, "config_groups"},
           {{{"quant_method", "compressed-tensors"}, {"format", "marlin-24"}}, "marlin-24"},
           {{{"quant_method", "compressed-tensors"},
             {"config_groups", Json::object()},
             {"transform_config", {{"config_groups", {{"R1", 1}}}}}},
            "transform_config"},
           {{{"quant_method", "compressed-tensors"},
             {"config_groups", Json::object()},
             {"sparsity_config", {{"format", "sparse-24-bitmask"}}}},
            "sparse-24-bitmask"}}) {
    test::expect_error([&] { read_quantization_config(quantized(one.config), "config.json"); },
                       {one.text});
  }
  EXPECT_FALSE(read_quantization_config(Json::object(), "c"));
  EXPECT_FALSE(read_quantization_config(quantized(Json()), "c"));
}

TEST(QuantizationConfigs, SayHowTensorsAreRead) {
  const auto read = [](const Json& config) {
    return *read_quantization_config(quantized(config), "config.json");
  };
  const PackedOptions one = read({{"quant_method", "gptq"}, {"bits", 3}, {"group_size", 64}});
  EXPECT_TRUE(one.zeros_plus_one);
  EXPECT_EQ(one.bits, std::vector<int>{3});
  EXPECT_EQ(one.group, 64);
  EXPECT_FALSE(read({{"quant_method", "gptq"}, {"bits", 4}, {"checkpoint_format", "gptq_v2"}})
                   .zeros_plus_one);
  struct Packing {
    const char *key, *name;
    PackedMethod method;
    bool zeros_plus_one;
  };
  for (const Packing& packing :
       std::vector<Packing>{{"packing_format", "auto_round:auto_gptq", PackedMethod::gptq, true},
                            {"packing_format", "auto_round", PackedMethod::gptq, false},
                            {"packing_format", "auto_round:gptqmodel", PackedMethod::gptq, false},
                            {"packing_format", "auto_round:exllamav2", PackedMethod::gptq, false},
                            {"packing_format", "auto_round:auto_awq", PackedMethod::awq, false},
                            {"backend", "auto_round:gptq:exllamav2", PackedMethod::gptq, true},
                            {"backend", "autoround:exllamav2", PackedMethod::gptq, false}}) {
    const PackedOptions round =
        read({{"quant_method", "intel/auto-round"}, {"bits", 4}, {packing.key, packing.name}});
    EXPECT_EQ(round.method, packing.method) << packing.name;
    EXPECT_EQ(round.zeros_plus_one, packing.zeros_plus_one) << packing.name;
  }
  EXPECT_EQ(read({{"quant_method", "modelopt"}, {"quant_algo", "MXFP4"}}).group, 32);
  const PackedOptions block = read({{"quant_method", "fp8"}, {"weight_block_size", {64, 32}}});
  EXPECT_EQ(block.block_rows, 64);
  EXPECT_EQ(block.block_columns, 32);
  const PackedOptions both =
      read({{"quant_method", "compressed-tensors"},
            {"format", "mixed-precision"},
            {"config_groups",
             {{"a", {{"weights", {{"num_bits", 4}, {"type", "int"}, {"group_size", 128}}}}},
              {"b", {{"weights", {{"num_bits", 8}, {"type", "float"}}}}},
              {"c", {{"weights", {{"num_bits", 8}, {"type", "int"}}}}}}}});
  EXPECT_EQ(both.bits, (std::vector<int>{4, 8}));
  EXPECT_EQ(both.group, 128);
}

// ---- whole checkpoints

// Converts with the checkpoint's own codes; all values in the file must equal the imported ones.
void expect_carried(PackedFolder& folder, const Json& quantization, const std::string& type,
                    const std::string& source_type) {
  const auto path = folder.write(small_llama(quantization));
  EXPECT_TRUE(holds_codes(path));
  const ImportedModel model = import_checkpoint(path);
  QuantizeOptions options;
  options.threads = 1;
  keep_types(model, options);
  const QuantizeResult result = quantize_imported(model, path / "m.leq", options);
  EXPECT_EQ(result.worst_error, 0);
  const LeqReader file(path / "m.leq", {});
  for (const TensorInput& tensor : model.tensors) {
    if (tensor.shape.size() != 2) continue;
    const StoredTensor* stored = file.find(tensor.name);
    const bool is_linear = tensor.name.starts_with("layers.");
    EXPECT_EQ(scheme_name(stored->view.scheme), is_linear ? type : "bf16") << tensor.name;
    EXPECT_EQ(stored->source, is_linear ? source_type : "BF16") << tensor.name;
    std::vector<float> want(static_cast<std::size_t>(tensor.shape[1])), row(want.size());
    for (std::int64_t r = 0; r < tensor.shape[0]; ++r) {
      tensor.read(r, 1, want);
      unpack_row(stored->view, r, row);
      ASSERT_EQ(row, want) << tensor.name << " row " << r;
    }
  }
}

TEST(PackedCheckpoints, KeepTheirOwnNumbers) {
  {
    PackedFolder folder;
    add_llama(folder, [](int n, int k) {
      Parts parts = test::gptq_parts(random_integers(n, k, 4, 64, false, 20), true);
      parts["bias"] = {"F16", {n}, std::string(static_cast<std::size_t>(n) * 2, '\0')};
      return parts;  // a bias of zeros, as some tools write it
    });
    expect_carried(folder, {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 64}}, "uint4-g64",
                   "GPTQ int4 g64");
  }
  {
    PackedFolder folder;
    int made = 0;
    add_llama(folder, [&made](int n, int k) {
      IntegerWeight w = random_integers(n, k, 8, 0, true, 21);
      if (made++ == 1) std::ranges::replace(w.codes, 0, 1);  // k has no -128, q and v have
      return test::int8_parts(w, false);
    });
    const Json weights = {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}};
    expect_carried(folder,
                   {{"quant_method", "compressed-tensors"},
                    {"format", "int-quantized"},
                    {"config_groups", {{"group_0", {{"weights", weights}}}}}},
                   "uint8", "int8 row");
  }
}

// Older tools wrote the settings to a file of its own.
TEST(PackedCheckpoints, AreReadWithTheirSideFiles) {
  const IntegerWeight any = random_integers(kWidth, kWidth, 4, 32, false, 22);
  struct Case {
    const char* file;
    Json settings;
    Parts (*parts)(const IntegerWeight&);
  };
  const auto gptq_of = [](const IntegerWeight& w) { return test::gptq_parts(w, true); };
  const auto awq_of = [](const IntegerWeight& w) { return test::awq_parts(w); };
  for (const Case& one : std::vector<Case>{
           {"quantize_config.json",
            {{"bits", 4}, {"group_size", 32}, {"desc_act", false}},
            gptq_of},
           {"quant_config.json",
            {{"w_bit", 4}, {"q_group_size", 32}, {"zero_point", true}, {"version", "GEMM"}},
            awq_of}}) {
    SCOPED_TRACE(one.file);
    PackedFolder folder;
    add_llama(folder, [&](int n, int k) {
      return one.parts(n == kWidth && k == kWidth ? any : random_integers(n, k, 4, 32, false, 23));
    });
    const auto path = folder.write(small_llama(nullptr));
    folder.folder().write(one.file, one.settings.dump());
    EXPECT_TRUE(holds_codes(path));
    const ImportedModel model = import_checkpoint(path);
    const auto q = std::ranges::find(model.tensors, "layers.0.q", &TensorInput::name);
    ASSERT_NE(q, model.tensors.end());
    std::vector<float> values(std::size_t{kWidth} * kWidth);
    q->read(0, kWidth, values);
    EXPECT_EQ(values, any.values());
    folder.folder().write(one.file, R"({"bits": 5, "w_bit": 5})");
    test::expect_error([&] { import_checkpoint(path); }, {one.file, "bits = 5"});
  }
}

TEST(PackedCheckpoints, OfModelOptAreReadWithTheirSideFile) {
  PackedFolder folder;
  const auto add = [&](bool quantized) {
    add_llama(folder, [&](int n, int k) {
      Parts parts;
      const auto count = static_cast<std::size_t>(n * k);
      if (quantized) {
        parts["weight"] = {"F8_E4M3", {n, k}, std::string(count, '\x31')};
        parts["weight_scale"] = {"F32", {}, test::floats_as("F32", {0.25f})};
        parts["input_scale"] = {"F32", {}, test::floats_as("F32", {1.0f})};
      } else {
        parts["weight"] = {"F32", {n, k}, test::floats_as("F32", std::vector<float>(count, 0.5f))};
      }
      return parts;
    });
    return folder.write(small_llama(nullptr));
  };
  const auto settings = [](const Json& algorithm) {
    return Json({{"producer", {{"name", "modelopt"}}},
                 {"quantization", {{"quant_algo", algorithm}, {"kv_cache_quant_algo", "FP8"}}}});
  };
  const auto path = add(true);
  folder.folder().write("hf_quant_config.json", settings("FP8").dump());
  EXPECT_EQ(import_checkpoint(path).notes.at(0),
            "quantized by ModelOpt: 7 weights, F8_E4M3 tensor");
  folder.folder().write("hf_quant_config.json", settings("W4A8_AWQ").dump());
  test::expect_error([&] { import_checkpoint(path); }, {"hf_quant_config.json", "W4A8_AWQ"});
  folder.tensors().clear();
  add(false);
  folder.folder().write("hf_quant_config.json", settings(nullptr).dump());
  EXPECT_TRUE(import_checkpoint(path).notes.empty());
}

// The layout of ModelOpt: codes and scales are bytes named as those of other weights.
TEST(PackedCheckpoints, OfModelOptsMxfp4KeepTheirNumbers) {
  PackedFolder folder;
  add_llama(folder, [](int n, int k) {
    Random random(24);
    Parts parts;
    std::string codes, scales;
    for (int i = 0; i < n * k / 2; ++i) codes += static_cast<char>(random.below(256));
    for (int i = 0; i < n * k / 32; ++i) scales += static_cast<char>(115 + random.below(8));
    parts["weight"] = {"U8", {n, k / 2}, codes};
    parts["weight_scale"] = {"U8", {n, k / 32}, scales};
    return parts;
  });
  expect_carried(folder, {{"quant_method", "modelopt"}, {"quant_algo", "MXFP4"}}, "mxfp4",
                 "MXFP4 g32");
}

TEST(PackedCheckpoints, OfModelOptsNvfp4KeepTheirNumbers) {
  PackedFolder folder;
  add_llama(folder, [](int n, int k) {
    Random random(25);
    Parts parts;
    std::string codes, scales;
    for (int i = 0; i < n * k / 2; ++i) codes += static_cast<char>(random.below(256));
    for (int i = 0; i < n * k / 16; ++i) scales += static_cast<char>(random.below(127));
    parts["weight"] = {"U8", {n, k / 2}, codes};
    parts["weight_scale"] = {"F8_E4M3", {n, k / 16}, scales};
    parts["weight_scale_2"] = {"F32", {}, test::floats_as("F32", {1.7e-3f})};
    return parts;
  });
  expect_carried(folder, {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}, "nvfp4",
                 "NVFP4 g16");
}

TEST(PackedCheckpoints, OfJoinedExpertsAreRefusedByName) {
  PackedFolder folder;
  folder.add("m.experts.gate_up_proj_packed", {"I32", {2, 4, 1}, std::string(32, '\1')});
  PackedOptions options;
  options.method = PackedMethod::compressed_tensors;
  EXPECT_NE(error_of(folder, options).find("gate_up_proj_packed holds the codes of all experts"),
            std::string::npos)
      << error_of(folder, options);
}

// What is no checkpoint at all is named by what it is.
TEST(Checkpoints, AdaptersAndPointersAreNamed) {
  const test::TemporaryFolder folder;
  folder.write("adapter_config.json", "{}");
  folder.write("adapter_model.safetensors", "");
  test::expect_error([&] { import_checkpoint(folder.path()); }, {"is an adapter"});
  const auto pointer =
      folder.write("m.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
  test::expect_error([&] { import_checkpoint(pointer); }, {"is a Git LFS pointer"});
  test::expect_error([&] { const LeqReader reader(pointer, {}); }, {"is a Git LFS pointer"});
}

TEST(PackedCheckpoints, OfFloat8AreQuantizedLikeOthers) {
  PackedFolder folder;
  add_llama(folder, [](int n, int k) {
    Parts parts;
    parts["weight"] = {"F8_E4M3", {n, k}, std::string(static_cast<std::size_t>(n * k), '\x31')};
    parts["weight_scale_inv"] = {"F32", {}, test::floats_as("F32", {0.25f})};
    return parts;
  });
  const auto path = folder.write(small_llama({{"quant_method", "fp8"}}));
  EXPECT_FALSE(holds_codes(path));
  const ImportedModel model = import_checkpoint(path);
  EXPECT_EQ(model.dtype, DType::f32);
  ASSERT_EQ(model.notes.size(), 2u);
  EXPECT_EQ(model.notes[0], "quantized by FP8: 7 weights, F8_E4M3 tensor");
  EXPECT_NE(model.notes[1].find("7 weights have no scheme"), std::string::npos);
  std::vector<float> row(kWidth);
  model.tensors[2].read(0, 1, row);
  EXPECT_EQ(row[5], static_cast<float>(test::float8(0x31, 4) * 0.25));
  folder.tensors().erase("model.layers.0.mlp.up_proj.weight_scale_inv");
  test::expect_error(
      [&] {
        import_checkpoint(folder.write(small_llama({{"quant_method", "fp8"}})));
      },
      {"mlp.up_proj.weight holds F8_E4M3 codes"});
}

}  // namespace
}  // namespace leq::packed

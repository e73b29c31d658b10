#include "tools/bench/parts/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "all_schemes.h"
#include "base/error.h"
#include "convert/tokenizer_import.h"
#include "model/linear_sites.h"
#include "model/open_model.h"
#include "temporary_folder.h"
#include "tensor/code_formats.h"
#include "tensor/pack.h"
#include "tokenizer/tokenizer.h"
#include "tools/bench/parts/synthetic_fill.h"

namespace leq {
namespace {

std::map<std::string, const StoredTensor*> by_name(const SyntheticModel& model) {
  std::map<std::string, const StoredTensor*> tensors;
  for (const StoredTensor& tensor : model.tensors()) tensors[tensor.name] = &tensor;
  return tensors;
}

SyntheticModel small_model(const char* type, int threads) {
  ThreadPool pool(threads);
  return SyntheticModel({"llama-110m", require_scheme(type, "test"), 1}, 0, pool);
}

// Checks parameter counts against those stated by the publishers.
TEST(Synthetic, CountsParametersAsPublished) {
  const std::map<std::string, std::int64_t> published = {
      {"gpt2-124m", 124439808},
      {"llama-110m", 109529856},
      {"tinyllama-1.1b", 1100048384},
      {"llama-7b", 6738415616},
      {"llama-13b", 13015864320},
      {"mistral-7b", 7241732096},
      {"qwen2.5-1.5b", 1543714304},
      {"qwen3-14b", 14768307200},
      {"mixtral-8x7b", 46702792704},
      {"qwen3-30b-a3b", 30532122624},
      {"qwen3.5-0.8b", 752393024},
      {"qwen3.5-9b", 8953803264},
      {"qwen3.6-35b-a3b", 34660610688},
      {"ministral-8b", 8489553920},
      {"gemma-3-4b", 3880263168},
      {"gpt-oss-20b", 20914757184},
      // As transformers counts them, with a copy of keys that are used as values and with norms of
      // values.
      {"gemma-4-12b", 11907350320 + 8 * (512 * 3840 + 512) + 40 * 256},
      {"gemma-4-26b-a4b", 25233141790 + 5 * (1024 * 2816 + 512) + 25 * 256}};
  ASSERT_EQ(published.size(), synthetic_shapes().size());
  for (const auto& [shape, count] : published) {
    ModelConfig config = synthetic_config(shape, 0);
    EXPECT_NO_THROW(check_config(config, shape));
    config.mtp.reset();  // publishers do not count it
    EXPECT_EQ(parameter_count(config), count) << shape;
  }
}

TEST(Synthetic, MakesAsManyNumbersAsTheConfigurationCounts) {
  ThreadPool pool(1);
  for (const char* shape : {"gpt2-124m", "llama-110m"}) {
    const SyntheticModel model({shape, require_scheme("int8", "test"), 2}, 0, pool);
    std::int64_t numbers = 0;
    for (const StoredTensor& tensor : model.tensors()) {
      numbers += tensor.view.rows * tensor.view.columns;
    }
    EXPECT_EQ(numbers, parameter_count(model.config())) << shape;
  }
}

TEST(Synthetic, ReadsItsNames) {
  const SyntheticSpec spec = parse_synthetic("synthetic:qwen3-14b:int4-g64:layers=8");
  EXPECT_EQ(spec.shape, "qwen3-14b");
  EXPECT_EQ(scheme_name(spec.type), "int4-g64");
  EXPECT_EQ(spec.layers, 8);
  EXPECT_EQ(parse_synthetic("synthetic:llama-7b:f16").layers, 0);
  EXPECT_TRUE(is_synthetic("synthetic:"));
  EXPECT_FALSE(is_synthetic("models/synthetic.leq"));
  for (const char* bad :
       {"synthetic:llama-7b", "synthetic:llama-8b:int8", "synthetic:llama-7b:q4_0",
        "synthetic:llama-7b:int8:layers=0", "synthetic:llama-7b:int8:layers=33",
        "synthetic:llama-7b:int8:layers", "synthetic:llama-7b:int8:layers=2:x"}) {
    EXPECT_THROW(parse_synthetic(bad), Error) << bad;
  }
}

// Checks sums of codes as the file format defines them, with codes that are read one by one.
void expect_sums_of_codes(const WeightView& view, const std::string& name) {
  const std::int64_t group = sum_group(view.scheme, view.act, view.columns);
  const std::int64_t groups = view.padded_columns() / group;
  const bool by_row = view.scheme.scaling == Scaling::row && view.act == ActKind::row;
  for (std::int64_t row = 0; row < view.padded_rows(); row += 61) {
    for (std::int64_t g = 0; g < groups; ++g) {
      std::int64_t sum = 0;
      for (std::int64_t k = g * group; row < view.rows && k < (g + 1) * group; ++k) {
        sum += code_at(view, row, k);
      }
      const std::int64_t index = (row / 64 * groups + g) * 64 + row % 64;
      const std::int64_t stored = by_row ? static_cast<const std::int32_t*>(view.sums)[index]
                                         : static_cast<const std::int16_t*>(view.sums)[index];
      ASSERT_EQ(stored, sum) << name << " row " << row << " group " << g;
    }
  }
}

TEST(Synthetic, StoresTheSumsOfItsCodes) {
  for (const char* type : {"int8", "int8-g128", "int8-g32"}) {
    const SyntheticModel model = small_model(type, 1);
    for (const StoredTensor& tensor : model.tensors()) {
      if (tensor.view.sums == nullptr || tensor.name == "token_embedding") continue;
      expect_sums_of_codes(tensor.view, std::string(type) + " " + tensor.name);
    }
  }
}

TEST(Synthetic, PadsOfEveryCodeMeanZero) {
  ThreadPool pool(2);
  for (const QuantScheme& scheme : test::all_schemes()) {
    // The head is int8 for every type, so a block's linear is used: q, with 100 rows and padding.
    if (scheme.is_float() || scheme.scaling == Scaling::tensor) continue;
    StoredTensor tensor;
    tensor.name = "layers.0.q";
    tensor.shape = {100, 256};
    tensor.view.scheme = scheme;
    tensor.view.rows = 100;
    tensor.view.columns = 256;
    const PlaneBytes bytes = plane_bytes(scheme, ActKind::none, 100, 256);
    std::vector<std::byte> memory(bytes.codes + bytes.scales + bytes.zeros);
    tensor.planes = {{"codes", 0, bytes.codes, 0}, {"scales", bytes.codes, bytes.scales, 0}};
    if (bytes.zeros > 0) {
      tensor.planes.push_back({"zeros", bytes.codes + bytes.scales, bytes.zeros, 0});
    }
    std::vector<StoredTensor> tensors = {tensor};
    fill_random(tensors, memory.data(), pool);
    WeightView view = tensors[0].view;
    view.rows = 128;  // includes the padding
    view.codes = memory.data();
    view.scales = memory.data() + bytes.codes;
    view.zeros = reinterpret_cast<const std::uint8_t*>(memory.data()) + bytes.codes + bytes.scales;
    std::vector<float> row(256);
    for (std::int64_t r = 0; r < 128; ++r) {
      unpack_row(view, r, row);
      double squares = 0;
      for (const float value : row) squares += static_cast<double>(value) * value;
      EXPECT_EQ(squares > 0, r < 100) << scheme_name(scheme) << " row " << r;
    }
  }
}

// A row of 352 columns ends with a block of 96: planes are those that PlaneWriter makes of the
// codes.
TEST(Synthetic, ShortBlocksAreStoredAsFilesStoreThem) {
  ThreadPool pool(2);
  constexpr std::int64_t kRows = 100, kColumns = 352;
  for (const QuantScheme& scheme : test::all_schemes()) {
    const bool table = scheme.kind == CodeKind::mxfp4 || scheme.kind == CodeKind::iq4_nl;
    if (scheme.is_float() || scheme.scaling == Scaling::tensor) continue;
    if (code_format(scheme.kind) != nullptr && !table) continue;
    if (scheme.kind == CodeKind::uint_ && scheme.group != 32) continue;  // no short groups
    SCOPED_TRACE(scheme_name(scheme));
    PackedWeight made = empty_weight(scheme, table ? ActKind::none : ActKind::row, kRows, kColumns);
    StoredTensor tensor;
    tensor.name = "layers.0.q";
    tensor.shape = {kRows, kColumns};
    tensor.view = made.view();
    std::vector<std::byte> memory;
    for (const auto& [name, plane] : {std::pair("codes", &made.codes),
                                      {"scales", &made.scales},
                                      {"zeros", &made.zeros},
                                      {"sums", &made.sums}}) {
      if (!plane->empty()) tensor.planes.push_back({name, memory.size(), plane->size(), 0});
      memory.resize(memory.size() + plane->size());
    }
    std::vector<StoredTensor> tensors = {tensor};
    fill_random(tensors, memory.data(), pool);
    WeightView& view = tensors[0].view;
    std::size_t at = 0;
    for (auto* plane : {&made.codes, &made.scales, &made.zeros, &made.sums}) {
      std::copy_n(memory.begin() + static_cast<std::ptrdiff_t>(at), plane->size(), plane->begin());
      at += plane->size();
    }
    made.scale_mul = view.scale_mul;
    view = made.view();
    const std::int64_t group = scheme.scaling == Scaling::group ? scheme.group : kColumns;
    ChosenCodes chosen;
    chosen.scale_mul = made.scale_mul;
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t k = 0; k < kColumns; ++k) {
        chosen.codes.push_back(static_cast<std::int16_t>(code_at(view, row, k)));
        if (k % group != 0) continue;
        chosen.scales.push_back(scale_at(view, row, k));
        if (scheme.kind == CodeKind::uint_)
          chosen.zeros.push_back(static_cast<std::uint8_t>(zero_at(view, row, k)));
      }
    }
    const PackedWeight want = pack_codes(chosen, kRows, kColumns, scheme, made.act);
    EXPECT_EQ(made.codes, want.codes);
    EXPECT_EQ(made.scales, want.scales);
    EXPECT_EQ(made.zeros, want.zeros);
    EXPECT_EQ(made.sums, want.sums);
  }
}

TEST(Synthetic, PadsHoldValueZeroAndScaleOne) {
  ThreadPool pool(2);
  const SyntheticModel model({"gpt2-124m", require_scheme("int8", "test"), 1}, 0, pool);
  const WeightView& table = by_name(model).at("token_embedding")->view;
  ASSERT_EQ(table.rows, 50257);
  for (std::int64_t row = table.rows; row < table.padded_rows(); ++row) {
    EXPECT_EQ(static_cast<const float*>(table.scales)[row], 1.0f);
    for (std::int64_t k = 0; k < table.columns; k += 5) ASSERT_EQ(code_at(table, row, k), 0);
  }
}

// The sum of squares of each row is near 1, which preserves the variance of the input.
TEST(Synthetic, LinearsKeepTheVarianceOfTheirInput) {
  for (const char* type :
       {"f32", "bf16", "f16", "int8", "int8-g128", "int4-g128", "int4-g32", "int3-g64", "int2-g128",
        "uint8", "uint4-g32", "uint3-g128", "uint2-g64", "nf4", "b1"}) {
    const SyntheticModel model = small_model(type, 1);
    for (const char* name : {"layers.0.q", "layers.0.down"}) {
      const WeightView& view = by_name(model).at(name)->view;
      std::vector<float> row(static_cast<std::size_t>(view.columns));
      double squares = 0;
      constexpr int kRows = 64;
      for (int i = 0; i < kRows; ++i) {
        unpack_row(view, i, row);
        for (const float value : row) {
          ASSERT_TRUE(std::isfinite(value));
          squares += static_cast<double>(value) * value;
        }
      }
      EXPECT_NEAR(squares / kRows, 1.0, 0.3) << type << " " << name;
    }
  }
}

TEST(Synthetic, RowsDiffer) {
  for (const char* type : {"f16", "int8", "int4-g128", "int3-g32", "uint2-g128", "nf4", "b1"}) {
    const SyntheticModel model = small_model(type, 1);
    const WeightView& view = by_name(model).at("layers.0.up")->view;
    std::vector<float> first(static_cast<std::size_t>(view.columns)), second(first);
    for (const std::int64_t other : {1, 63, 64, 128, 2047}) {
      unpack_row(view, 0, first);
      unpack_row(view, other, second);
      EXPECT_NE(first, second) << type << " row " << other;
    }
  }
}

TEST(Synthetic, IsTheSameInAFile) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "synthetic.leq";
  for (const char* type : {"int8", "int4-g128", "uint2-g64", "f16"}) {
    const SyntheticModel made = small_model(type, 1);
    const std::uint64_t written = made.write(path);
    EXPECT_EQ(written, std::filesystem::file_size(path));
    const Model file(path, LoadOptions{});
    EXPECT_EQ(file.type(), type);
    EXPECT_EQ(parameter_count(file.config()), parameter_count(made.config()));
    const auto stored = by_name(made);
    ASSERT_EQ(file.file().tensors().size(), stored.size());
    for (const StoredTensor& tensor : file.file().tensors()) {
      const WeightView& want = stored.at(tensor.name)->view;
      EXPECT_EQ(tensor.view.scheme, want.scheme) << tensor.name;
      EXPECT_EQ(tensor.view.scale_mul, want.scale_mul) << tensor.name;
      for (const StoredPlane& plane : tensor.planes) {
        const auto bytes = static_cast<std::size_t>(plane.bytes);
        if (plane.name == "codes") {
          EXPECT_EQ(std::memcmp(tensor.view.codes, want.codes, bytes), 0) << tensor.name;
        } else if (plane.name == "scales") {
          EXPECT_EQ(std::memcmp(tensor.view.scales, want.scales, bytes), 0) << tensor.name;
        }
      }
    }
  }
}

TEST(Synthetic, GetsATokenizerToBeServedWith) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "synthetic.leq";
  const SyntheticModel made = small_model("int8", 1);
  const TokenizerSpec spec =
      import_tokenizer(std::string(LEQ_SOURCE_DIR) + "/examples/storyteller").spec;
  made.write(path, spec);
  const Model file(path, LoadOptions{});
  const Tokenizer expected(spec);
  EXPECT_EQ(file.tokenizer().size(), spec.pieces.size());
  EXPECT_EQ(file.tokenizer().encode("Once upon a time", {}),
            expected.encode("Once upon a time", {}));
  TokenizerSpec larger = spec;
  larger.pieces.resize(static_cast<std::size_t>(made.config().vocab) + 1);
  EXPECT_THROW(made.write(path, larger), Error);
}

TEST(Synthetic, IsTheSameForAnyNumberOfThreads) {
  const SyntheticModel one = small_model("int8-g128", 1);
  const SyntheticModel three = small_model("int8-g128", 3);
  ASSERT_EQ(one.weight_bytes(), three.weight_bytes());
  for (std::size_t i = 0; i < one.tensors().size(); ++i) {
    const StoredTensor& a = one.tensors()[i];
    const StoredTensor& b = three.tensors()[i];
    const PlaneBytes bytes = plane_bytes(a.view.scheme, a.view.act, a.view.rows, a.view.columns);
    EXPECT_EQ(std::memcmp(a.view.codes, b.view.codes, bytes.codes), 0) << a.name;
    if (bytes.scales > 0) {
      EXPECT_EQ(std::memcmp(a.view.scales, b.view.scales, bytes.scales), 0) << a.name;
    }
  }
}

TEST(Synthetic, HoldsLongerContextsThanTheShape) {
  ThreadPool pool(1);
  const SyntheticModel model({"gpt2-124m", require_scheme("int8", "test"), 1}, 5000, pool);
  EXPECT_EQ(model.config().context, 5000);
  EXPECT_EQ(by_name(model).at("position_embedding")->shape, (Shape{5000, 768}));
}

}  // namespace
}  // namespace leq

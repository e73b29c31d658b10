// The GGUF parser: valid files, every truncated prefix, and files that are refused.
#include "format/gguf.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "errors.h"
#include "format/gguf_source.h"
#include "format/gguf_writer.h"
#include "temporary_folder.h"

namespace leq {
namespace {

using test::gguf_text;
using test::GgufWriter;
using test::raw;

// Creates a file with one value of each kind and three tensors.
GgufWriter good_gguf() {
  GgufWriter writer;
  writer.text("general.architecture", "llama");
  writer.add("u8", test::kU8, raw<std::uint8_t>(200));
  writer.add("i8", test::kI8, raw<std::int8_t>(-3));
  writer.add("u16", test::kU16, raw<std::uint16_t>(60000));
  writer.add("i16", test::kI16, raw<std::int16_t>(-300));
  writer.u32("u32", 4000000000u);
  writer.add("i32", test::kI32, raw<std::int32_t>(-70000));
  writer.add("u64", test::kU64, raw<std::uint64_t>(1ull << 40));
  writer.add("big", test::kU64, raw<std::uint64_t>(~0ull));
  writer.add("i64", test::kI64, raw<std::int64_t>(-(1ll << 40)));
  writer.f32("f32", 0.5f);
  writer.add("f64", test::kF64, raw(0.1));
  writer.flag("yes", true);
  writer.texts("words", {"a", "", "ccc"});
  writer.list<std::int32_t>("numbers", test::kI32, {1, -2, 3});
  writer.list<float>("scores", test::kF32, {0.5f, -1.0f});
  writer.list<std::uint32_t>("none", test::kU32, {});
  writer.list<std::uint32_t>("alike", test::kU32, {7, 7, 7});
  const std::string inner = raw<std::uint32_t>(test::kU8) + raw<std::uint64_t>(2) + "ab";
  writer.add("nested", test::kArray,
             raw<std::uint32_t>(test::kArray) + raw<std::uint64_t>(2) + inner + inner);
  writer.tensor("a", {3, 2}, 0, std::string(24, 'x'));
  writer.tensor("b", {64}, 8, std::string(68, 'y'));
  writer.tensor("c", {32, 1, 2, 1}, 2, std::string(36, 'z'));
  return writer;
}

std::string gguf_error(const std::string& bytes) {
  return test::error_of([&] { parse_gguf(as_bytes(bytes), "x.gguf"); });
}

TEST(Gguf, ReadsValuesAndTensors) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufWriter writer = good_gguf();
    writer.version = version;
    const std::string bytes = writer.bytes();
    const GgufFile file = parse_gguf(as_bytes(bytes), "x.gguf");
    EXPECT_EQ(file.version, version);
    const GgufMetadata& m = file.metadata;
    EXPECT_EQ(m.text("general.architecture"), "llama");
    EXPECT_EQ(m.integer("u8"), 200);
    EXPECT_EQ(m.integer("i8"), -3);
    EXPECT_EQ(m.integer("u16"), 60000);
    EXPECT_EQ(m.integer("i16"), -300);
    EXPECT_EQ(m.integer("u32"), 4000000000);
    EXPECT_EQ(m.integer("i32"), -70000);
    EXPECT_EQ(m.integer("u64"), 1ll << 40);
    EXPECT_EQ(m.integer("i64"), -(1ll << 40));
    EXPECT_EQ(m.number("f32"), 0.5);
    EXPECT_EQ(m.number("f64"), 0.1);
    EXPECT_EQ(m.number("u8"), 200.0);
    EXPECT_EQ(m.flag("yes"), true);
    EXPECT_EQ(m.texts("words"), (std::vector<std::string_view>{"a", "", "ccc"}));
    EXPECT_EQ(m.integers("numbers"), (std::vector<std::int64_t>{1, -2, 3}));
    EXPECT_EQ(m.floats("scores"), (std::vector<float>{0.5f, -1.0f}));
    EXPECT_TRUE(m.integers("none").empty());
    EXPECT_EQ(m.equal_integer("alike"), 7);
    EXPECT_EQ(m.integer("absent"), std::nullopt);
    ASSERT_EQ(file.tensors.size(), 3u);
    EXPECT_EQ(file.tensors[0].shape, (Shape{2, 3}));  // reversed
    EXPECT_EQ(as_text(file.tensors[0].bytes), std::string(24, 'x'));
    EXPECT_EQ(file.tensors[1].type->name, "Q8_0");
    EXPECT_EQ(as_text(file.tensors[1].bytes), std::string(68, 'y'));
    EXPECT_EQ(file.tensors[2].shape, (Shape{1, 2, 1, 32}));
    EXPECT_EQ(as_text(file.tensors[2].bytes), std::string(36, 'z'));
  }
}

TEST(Gguf, DataIsAlignedAsTheFileSays) {
  for (const std::uint32_t alignment : {1u, 2u, 64u, 1u << 20}) {
    GgufWriter writer;
    writer.alignment = alignment;
    writer.u32("general.alignment", alignment);
    writer.tensor("a", {3}, 24, "xyz");  // I8
    writer.tensor("b", {5}, 24, "12345");
    const std::string bytes = writer.bytes();
    const GgufFile file = parse_gguf(as_bytes(bytes), "x.gguf");
    ASSERT_EQ(file.tensors.size(), 2u);
    EXPECT_EQ(as_text(file.tensors[0].bytes), "xyz") << alignment;
    EXPECT_EQ(as_text(file.tensors[1].bytes), "12345") << alignment;
  }
}

TEST(Gguf, OtherKindsAreRefusedByKey) {
  const std::string bytes = good_gguf().bytes();
  const GgufFile file = parse_gguf(as_bytes(bytes), "x.gguf");
  const GgufMetadata& m = file.metadata;
  EXPECT_THROW(m.integer("f32"), Error);
  EXPECT_THROW(m.integer("big"), Error);
  EXPECT_THROW(m.integer("yes"), Error);
  EXPECT_THROW(m.number("words"), Error);
  EXPECT_THROW(m.flag("u8"), Error);
  EXPECT_THROW(m.text("u8"), Error);
  EXPECT_THROW(m.texts("u8"), Error);
  EXPECT_THROW(m.texts("numbers"), Error);
  EXPECT_THROW(m.integers("words"), Error);
  EXPECT_THROW(m.integers("nested"), Error);
  EXPECT_THROW(m.floats("numbers"), Error);
  EXPECT_THROW(m.equal_integer("numbers"), Error);
  EXPECT_THROW(m.equal_integer("none"), Error);
  EXPECT_EQ(test::error_of([&] { m.integer("words"); }),
            "x.gguf: key words should hold an integer of at most 63 bits, found array of 3 text");
}

TEST(Gguf, EveryTruncatedPrefixIsAnError) {
  const std::string bytes = good_gguf().bytes();
  ASSERT_EQ(gguf_error(bytes), "");
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_NE(gguf_error(bytes.substr(0, length)), "") << length;
  }
}

// Replaces every byte of the header by others: the parser must not crash, whatever it returns.
TEST(Gguf, EveryChangedByteIsAnErrorOrAFile) {
  const std::string good = good_gguf().bytes();
  int refused = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(value);
      refused += gguf_error(bytes).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(Gguf, OtherVersionsAreRefused) {
  GgufWriter writer = good_gguf();
  const auto of = [&](std::uint32_t version) {
    writer.version = version;
    return gguf_error(writer.bytes());
  };
  EXPECT_NE(of(1).find("version 1 is not read"), std::string::npos);
  EXPECT_NE(of(4).find("version 4 is not known"), std::string::npos);
  EXPECT_NE(of(3u << 24).find("big-endian"), std::string::npos);
  EXPECT_NE(gguf_error("ggml" + std::string(60, '\0')).find("does not begin with GGUF"),
            std::string::npos);
}

struct BadGguf {
  const char* name;
  void (*damage)(GgufWriter&);
  const char* want;
};

const std::vector<BadGguf>& bad_ggufs() {
  static const std::vector<BadGguf> all = {
      {"more tensors than bytes", [](GgufWriter& w) { w.tensor_count = ~0ull; }, "tensor"},
      {"more keys than bytes", [](GgufWriter& w) { w.pair_count = ~0ull >> 1; }, "offset"},
      {"a key twice", [](GgufWriter& w) { w.u32("u8", 1); }, "key u8 is given twice"},
      {"an empty key", [](GgufWriter& w) { w.u32("", 1); }, "an empty key"},
      {"a long key", [](GgufWriter& w) { w.u32(std::string(70000, 'k'), 1); }, "at most 65535"},
      {"a value type", [](GgufWriter& w) { w.add("k", 13, raw(1)); }, "key k has value type 13"},
      {"an item type", [](GgufWriter& w) { w.add("k", test::kArray, raw(99) + raw(1ull)); },
       "key k has value type 99"},
      {"a bool of 2", [](GgufWriter& w) { w.add("k", test::kBool, "\2"); }, "true or false"},
      {"a long text", [](GgufWriter& w) { w.add("k", test::kText, raw(~0ull)); }, "at most"},
      {"a long array",
       [](GgufWriter& w) {
         w.add("k", test::kArray, raw<std::uint32_t>(test::kU32) + raw(1ull << 62));
       },
       "overflows 64 bits"},
      {"an array beyond the end",
       [](GgufWriter& w) {
         w.add("k", test::kArray, raw<std::uint32_t>(test::kU8) + raw(1ull << 50));
       },
       "an array at offset"},
      {"texts beyond the end",
       [](GgufWriter& w) {
         w.add("k", test::kArray, raw<std::uint32_t>(test::kText) + raw(1ull << 60));
       },
       "offset"},
      {"arrays in arrays",
       [](GgufWriter& w) {
         std::string bytes;
         for (int i = 0; i < 100; ++i) bytes += raw<std::uint32_t>(test::kArray) + raw(1ull);
         w.add("k", test::kArray, bytes);
       },
       "nests arrays"},
      {"alignment 0", [](GgufWriter& w) { w.u32("general.alignment", 0); },
       "general.alignment is 0"},
      {"alignment 24", [](GgufWriter& w) { w.u32("general.alignment", 24); }, "a power of two"},
      {"alignment 2^31", [](GgufWriter& w) { w.u32("general.alignment", 1u << 31); },
       "power of two"},
      {"alignment a text", [](GgufWriter& w) { w.text("general.alignment", "32"); }, "an integer"},
      {"no dimension", [](GgufWriter& w) { w.tensor_at("t", {}, 0, 0); }, "0 dimensions"},
      {"five dimensions",
       [](GgufWriter& w) {
         w.tensor_at("t", {1, 1, 1, 1, 1}, 0, 0);
       },
       "5 dimensions"},
      {"a dimension of 0",
       [](GgufWriter& w) {
         w.tensor_at("t", {32, 0}, 0, 0);
       },
       "dimension of 0"},
      {"a dimension of 2^63", [](GgufWriter& w) { w.tensor_at("t", {1ull << 63}, 0, 0); },
       "dimension of"},
      {"dimensions that overflow",
       [](GgufWriter& w) {
         w.tensor_at("t", {1ull << 40, 1ull << 40}, 0, 0);
       },
       "overflows"},
      {"bytes that overflow", [](GgufWriter& w) { w.tensor_at("t", {1ull << 62}, 0, 0); },
       "overflows"},
      {"half a block",
       [](GgufWriter& w) {
         w.tensor_at("t", {48, 2}, 8, 0);
       },
       "no whole blocks of 32"},
      {"half a superblock", [](GgufWriter& w) { w.tensor_at("t", {128}, 12, 0); },
       "no whole blocks of 256"},
      {"a name twice", [](GgufWriter& w) { w.tensor("a", {1}, 0, "abcd"); },
       "tensor a is given twice"},
      {"a long name", [](GgufWriter& w) { w.tensor(std::string(2000, 'n'), {1}, 0, "abcd"); },
       "at most 1024"},
      {"an offset between", [](GgufWriter& w) { w.tensor_at("t", {1}, 0, 8); },
       "no multiple of 32"},
      {"an offset beyond", [](GgufWriter& w) { w.tensor_at("t", {1}, 0, 1ull << 62); },
       "was cut off"},
      {"a size beyond", [](GgufWriter& w) { w.tensor_at("t", {1000000}, 0, 0); }, "was cut off"},
      {"one over another", [](GgufWriter& w) { w.tensor_at("t", {1}, 0, 32); }, "overlaps"},
      {"the same bytes", [](GgufWriter& w) { w.tensor_at("t", {6}, 0, 0); }, "overlaps"},
      {"a removed type", [](GgufWriter& w) { w.tensor_at("t", {32}, 31, 0); }, "removed"},
      {"an ik type", [](GgufWriter& w) { w.tensor_at("t", {256}, 137, 0); }, "ik_llama.cpp"},
      {"a type of activations", [](GgufWriter& w) { w.tensor_at("t", {256}, 15, 0); },
       "holds activations"},
      {"an unknown type", [](GgufWriter& w) { w.tensor_at("t", {256}, 77, 0); }, "is not known"},
  };
  return all;
}

TEST(Gguf, BadFilesAreRefusedByWhatIsWrong) {
  for (const BadGguf& bad : bad_ggufs()) {
    GgufWriter writer = good_gguf();
    bad.damage(writer);
    const std::string error = gguf_error(writer.bytes());
    EXPECT_NE(error.find(bad.want), std::string::npos) << bad.name << ": " << error;
    EXPECT_TRUE(error.starts_with("x.gguf")) << bad.name << ": " << error;
  }
}

TEST(Gguf, JoinedPartsAreRefused) {
  const std::string bytes = good_gguf().bytes();
  EXPECT_EQ(gguf_error(bytes + std::string(28, '\0')), "");    // the padding that writers add
  EXPECT_EQ(gguf_error(bytes + std::string(5000, '\0')), "");  // of a preallocated file
  const std::string error = gguf_error(bytes + bytes);
  EXPECT_NE(error.find("joined with cat"), std::string::npos) << error;
}

// --- sources

std::string parts_error(const std::filesystem::path& path) {
  return test::error_of([&] { const GgufSource source(path); });
}

GgufWriter part_of(std::uint16_t number, std::uint16_t count, std::int32_t tensors) {
  GgufWriter writer;
  writer.add("split.no", test::kU16, raw(number));
  writer.add("split.count", test::kU16, raw(count));
  writer.add("split.tensors.count", test::kI32, raw(tensors));
  if (number == 0) writer.text("general.architecture", "llama");
  const std::string name(1, static_cast<char>('a' + number));
  writer.tensor(name, {2}, 0, raw(static_cast<float>(number)) + raw(0.5f));
  return writer;
}

TEST(GgufSource, JoinsParts) {
  const test::TemporaryFolder folder;
  for (int i = 0; i < 3; ++i) {
    folder.write("m-0000" + std::to_string(i + 1) + "-of-00003.gguf",
                 part_of(static_cast<std::uint16_t>(i), 3, 3).bytes());
  }
  const GgufSource source(folder / "m-00001-of-00003.gguf");
  EXPECT_EQ(source.paths().size(), 3u);
  EXPECT_EQ(source.metadata().text("general.architecture"), "llama");
  ASSERT_EQ(source.tensors().size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const SourceTensor* tensor = source.find(std::string(1, static_cast<char>('a' + i)));
    ASSERT_NE(tensor, nullptr);
    std::vector<float> values(2);
    source.read(*tensor, 0, values);
    EXPECT_EQ(values, (std::vector<float>{static_cast<float>(i), 0.5f}));
    source.drop(*tensor);
  }
}

// Factors of NVFP4 count as tensors of the file, and may be in another part than their weight.
TEST(GgufSource, FactorsMayBeInAnyPart) {
  const test::TemporaryFolder folder;
  const auto type = *std::ranges::find(gguf_types(), "NVFP4", &GgufType::name);
  const auto start = [](std::uint16_t number) {
    GgufWriter writer;
    writer.add("split.no", test::kU16, raw(number));
    writer.add("split.count", test::kU16, raw<std::uint16_t>(2));
    writer.add("split.tensors.count", test::kI32, raw(4));
    return writer;
  };
  std::string block(36, '\x22');                          // 1 in each place
  for (std::size_t i = 0; i < 4; ++i) block[i] = '\x38';  // scales of 1
  GgufWriter first = start(0), second = start(1);
  first.tensor("x.scale", {1}, 0, raw(0.5f));
  first.tensor("y.weight", {64, 1}, type.id, block);
  second.tensor("x.weight", {64, 1}, type.id, block);
  second.tensor("y.scale", {1}, 0, raw(2.0f));
  const std::string path = folder.write("m-00001-of-00002.gguf", first.bytes());
  folder.write("m-00002-of-00002.gguf", second.bytes());
  const GgufSource source(path);
  EXPECT_EQ(source.tensors().size(), 2u);
  for (const auto& [name, factor] : {std::pair("x.weight", 0.5f), std::pair("y.weight", 2.0f)}) {
    std::vector<float> values(64);
    source.read(*source.find(name), 0, values);
    EXPECT_EQ(values, std::vector<float>(64, factor)) << name;
  }
}

TEST(GgufSource, PartsThatDoNotFitAreRefused) {
  const test::TemporaryFolder folder;
  const std::string first = folder.write("m-00001-of-00002.gguf", part_of(0, 2, 2).bytes());
  EXPECT_NE(parts_error(first).find("m-00002-of-00002.gguf: this part is missing"),
            std::string::npos);
  const std::string second = folder.write("m-00002-of-00002.gguf", part_of(1, 2, 2).bytes());
  EXPECT_EQ(parts_error(first), "");
  EXPECT_NE(parts_error(second).find("is part 2 of 2; give the first, m-00001-of-00002.gguf"),
            std::string::npos);
  folder.write("m-00002-of-00002.gguf", part_of(1, 3, 2).bytes());
  EXPECT_NE(parts_error(first).find("says that it is part 2 of 3"), std::string::npos);
  folder.write("m-00002-of-00002.gguf", part_of(0, 2, 2).bytes());
  EXPECT_NE(parts_error(first).find("says that it is part 1 of 2"), std::string::npos);
  folder.write("m-00001-of-00002.gguf", part_of(0, 2, 5).bytes());
  folder.write("m-00002-of-00002.gguf", part_of(1, 2, 5).bytes());
  EXPECT_NE(parts_error(first).find("split.tensors.count says 5"), std::string::npos);
  const std::string other = folder.write("other.gguf", part_of(0, 2, 2).bytes());
  EXPECT_NE(parts_error(other).find("this one has another name"), std::string::npos);
  const std::string wrong = folder.write("wrong.gguf", part_of(7, 2, 2).bytes());
  EXPECT_NE(parts_error(wrong).find("part 7 (split.no) of 2"), std::string::npos);
}

TEST(GgufSource, ReadsAnyStretchOfBlocks) {
  std::string blocks;
  for (int b = 0; b < 4; ++b) {
    blocks += raw<std::uint16_t>(0x3c00);  // 1
    for (int i = 0; i < 32; ++i) blocks += static_cast<char>(b * 32 + i - 64);
  }
  GgufWriter writer;
  writer.tensor("t", {64, 2}, 8, blocks);
  const test::TemporaryFolder folder;
  const GgufSource source(folder.write("x.gguf", writer.bytes()));
  const SourceTensor& tensor = *source.find("t");
  using Stretch = std::pair<int, int>;
  for (const auto& [first, count] : {Stretch(0, 128), Stretch(5, 3), Stretch(31, 2),
                                     Stretch(1, 100), Stretch(127, 1), Stretch(128, 0)}) {
    std::vector<float> values(static_cast<std::size_t>(count));
    source.read(tensor, first, values);
    for (int i = 0; i < count; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], first + i - 64);
  }
  std::vector<float> beyond(2);
  EXPECT_THROW(source.read(tensor, 127, beyond), Error);
  EXPECT_THROW(source.read(tensor, -1, beyond), Error);
}

// The file stores the rows of a head of four in the order 0 2 1 3.
TEST(GgufSource, UnpairsRowsAndVectors) {
  std::vector<float> weight, bias;
  std::string weight_bytes, bias_bytes;
  for (int head = 0; head < 2; ++head) {
    for (const int row : {0, 2, 1, 3}) {
      for (int k = 0; k < 3; ++k) weight_bytes += raw(static_cast<float>((head * 4 + row) * 3 + k));
      bias_bytes += raw(static_cast<float>(head * 4 + row));
    }
  }
  GgufWriter writer;
  writer.tensor("q.weight", {3, 8}, 0, weight_bytes);
  writer.tensor("q.bias", {8}, 0, bias_bytes);
  const test::TemporaryFolder folder;
  GgufSource source(folder.write("x.gguf", writer.bytes()));
  source.unpair_rows("q.weight", 2);
  source.unpair_rows("q.bias", 2);
  source.unpair_rows("absent", 2);
  std::vector<float> values(24), part(7);
  source.read(*source.find("q.weight"), 0, values);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], i);
  source.read(*source.find("q.weight"), 4, part);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(part[static_cast<std::size_t>(i)], i + 4);
  std::ranges::fill(part, -1.0f);
  source.read(*source.find("q.weight"), 4, std::span(part).first(3));  // ends within a row
  EXPECT_EQ(part, (std::vector<float>{4, 5, 6, -1, -1, -1, -1}));
  values.resize(8);
  source.read(*source.find("q.bias"), 0, values);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], i);
  EXPECT_THROW(source.unpair_rows("q.weight", 3), Error);
  EXPECT_THROW(source.unpair_rows("q.weight", 8), Error);
}

TEST(GgufSource, TypesWithoutWeightsAreListedAndNotRead) {
  GgufWriter writer;
  writer.tensor("i", {2}, 26, raw(1) + raw(2));
  const test::TemporaryFolder folder;
  const GgufSource source(folder.write("x.gguf", writer.bytes()));
  std::vector<float> values(2);
  EXPECT_THROW(source.read(*source.find("i"), 0, values), Error);
}

}  // namespace
}  // namespace leq

// Compares with verdicts of the reference implementation; tests shards, and errors that give names.
#include "format/tensor_source.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "errors.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq {
namespace {

using test::error_of;

using nlohmann::json;
namespace fs = std::filesystem;

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string file_text(const std::string& header, const std::string& data) {
  std::string text;
  for (int shift = 0; shift < 64; shift += 8) {
    text += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> shift & 255);
  }
  return text + header + data;
}

json entry(const char* dtype, const json& shape, int begin, int end) {
  return {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, end}}};
}

// The error of opening one file with this header (text or JSON) and so many bytes of data.
std::string open_error(const std::string& header, std::size_t data_bytes) {
  const test::TemporaryFolder folder;
  write_text(folder.path() / "m.safetensors", file_text(header, std::string(data_bytes, 'x')));
  return error_of([&] { open_safetensors(folder.path() / "m.safetensors"); });
}
std::string open_error(const json& header, std::size_t data_bytes) {
  return open_error(header.dump(), data_bytes);
}

TEST(Safetensors, AgreesWithTheVerdictsOfTheReferenceImplementation) {
  LEQ_SHARED_OR_SKIP(folder, "data/formats/safetensors/unit");
  std::ifstream index_file(folder / "index.json");
  int seen = 0;
  for (const json& item : json::parse(index_file)) {
    const fs::path path = folder / item["file"].get<std::string>();
    const std::string message = error_of([&] { open_safetensors(path); });
    EXPECT_EQ(message.empty(), item["expect"] == "ok") << path << ": " << message;
    if (!message.empty()) {
      EXPECT_TRUE(message.starts_with(path.string())) << message;
    }
    ++seen;
  }
  EXPECT_EQ(seen, 10);
}

TEST(Safetensors, ListsEveryTypeAndReadsFloats) {
  LEQ_SHARED_OR_SKIP(folder, "data/formats/safetensors/valid");
  const auto source = open_safetensors(folder / "overall.safetensors");
  EXPECT_GE(source->tensors().size(), 8u);
  for (const SourceTensor& tensor : source->tensors()) {
    EXPECT_EQ(tensor.shape, Shape{6}) << tensor.name;
    std::vector<float> values(6);
    const std::string message = error_of([&] { read_floats(tensor, 0, values); });
    const bool is_float = tensor.file_dtype == "F32" || tensor.file_dtype == "F16";
    EXPECT_EQ(message.empty(), is_float) << tensor.name;
    if (!is_float) {
      EXPECT_NE(message.find(tensor.file_dtype), std::string::npos) << message;
    }
  }
}

TEST(Safetensors, ServesTensorsInTheOrderOfTheirBytes) {
  const test::TemporaryFolder folder;
  const float values[3] = {1.5f, -2.0f, 0.25f};
  std::string data(reinterpret_cast<const char*>(values), sizeof values);
  data += '\x01';
  const json header = {{"__metadata__", {{"format", "pt"}}},
                       {"z", entry("F32", {3, 1}, 0, 12)},
                       {"a", entry("BOOL", {1}, 12, 13)},
                       {"scalar", entry("F32", json::array(), 13, 17)},
                       {"nothing", entry("F32", {0, 5}, 17, 17)}};
  write_text(folder.path() / "m.safetensors", file_text(header.dump() + "  ", data + "1234"));
  const auto source = open_safetensors(folder.path() / "m.safetensors");
  ASSERT_EQ(source->tensors().size(), 4u);
  EXPECT_EQ(source->tensors()[0].name, "z");
  EXPECT_EQ(source->tensors()[1].name, "a");
  EXPECT_EQ(source->find("__metadata__"), nullptr);
  EXPECT_EQ(source->find("absent"), nullptr);
  const SourceTensor& z = *source->find("z");
  EXPECT_EQ(z.dtype, DType::f32);
  EXPECT_EQ(shape_text(z.shape), "[3, 1]");
  std::vector<float> read(2);
  read_floats(z, 1, read);
  EXPECT_EQ(read, (std::vector<float>{-2.0f, 0.25f}));
  EXPECT_NE(error_of([&] { read_floats(z, 2, read); }), "");
  EXPECT_NE(error_of([&] { read_floats(z, -1, read); }), "");
  const std::string message = error_of([&] { read_floats(*source->find("a"), 0, read); });
  EXPECT_NE(message.find("BOOL"), std::string::npos) << message;
  EXPECT_NE(message.find("tensor a"), std::string::npos) << message;
  source->drop(z);  // a hint; the bytes stay the same
  read_floats(z, 0, read);
  EXPECT_EQ(read[0], 1.5f);
}

TEST(Safetensors, WidensEveryHalf) {
  std::vector<std::byte> bytes(65536 * 2 + 1);
  for (std::size_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    std::memcpy(bytes.data() + 1 + i * 2, &half, 2);  // unaligned, as in real files
  }
  const std::span<const std::byte> data = std::span(bytes).subspan(1);
  std::vector<float> values(65536);
  read_floats({"f", DType::f16, {65536}, data, "here", "F16"}, 0, values);
  for (std::size_t i = 0; i < 65536; ++i) {
    const float expected = f16_to_f32(static_cast<std::uint16_t>(i));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(values[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected))
          << i;
    }
  }
  read_floats({"b", DType::bf16, {65536}, data, "here", "BF16"}, 0, values);
  for (std::size_t i = 0; i < 65536; ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), static_cast<std::uint32_t>(i) << 16);
  }
}

TEST(Safetensors, RefusesHeadersThatDoNotFitTheBytes) {
  struct Case {
    json header;
    std::size_t data;
    const char* expected;
  };
  const std::vector<Case> cases = {
      {{{"a", entry("F32", {2}, 0, 8)}}, 9, "9 bytes"},             // surplus bytes at the end
      {{{"a", entry("F32", {2}, 1, 9)}}, 9, "begins at offset 1"},  // a gap at the start
      {{{"a", entry("F32", {1}, 0, 4)}, {"b", entry("F32", {1}, 5, 9)}}, 9, "tensor b begins"},
      {{{"a", entry("F32", {1}, 0, 4)}, {"b", entry("F32", {1}, 2, 6)}}, 6, "begins at offset 2"},
      {{{"a", entry("F32", {2}, 0, 8)}}, 7, "only 7 bytes"},
      {{{"a", entry("F32", {3}, 0, 8)}}, 8, "takes 12 bytes"},
      {{{"a", entry("F32", {2}, 8, 0)}}, 8, "data_offsets"},
      {{{"a", {{"dtype", "F32"}, {"shape", {2}}, {"data_offsets", {0}}}}}, 8, "data_offsets"},
      {{{"a", {{"dtype", "F32"}, {"shape", {2}}}}}, 8, "data_offsets"},
      {{{"a", {{"dtype", "F32"}, {"data_offsets", {0, 8}}}}}, 8, "shape"},
      {{{"a", {{"shape", {2}}, {"data_offsets", {0, 8}}}}}, 8, "dtype"},
      {{{"a", entry("F32", {-2}, 0, 8)}}, 8, "negative"},
      {{{"a", entry("F32", {2.0}, 0, 8)}}, 8, "shape"},
      {{{"a", entry("F32", {1ull << 62, 1ull << 62}, 0, 8)}}, 8, "overflows"},
      {{{"a", entry("F32", {1ull << 62}, 0, 8)}}, 8, "overflows"},
      {{{"a", entry("F32", {0, UINT64_MAX}, 0, 0)}}, 0, "too large"},
      {{{"a", entry("F32", {1ull << 62, 2, 0}, 0, 0)}}, 0, "too large"},
      {{{"a", entry("F4_NEW", {1ull << 60}, 0, 8)}}, 8, "in 8 bytes"},
      {{{"a", 5}}, 8, "tensor a"},
      {json::array(), 0, "object"},
      {json(), 0, "object"}};
  for (const Case& c : cases) {
    const std::string message = open_error(c.header, c.data);
    EXPECT_NE(message.find(c.expected), std::string::npos) << c.header << ": " << message;
    EXPECT_NE(message.find("m.safetensors"), std::string::npos) << message;
  }
  EXPECT_NE(open_error(std::string(R"({"a":)") + entry("F32", {1}, 0, 4).dump() + R"(,"a":)" +
                           entry("F32", {1}, 0, 4).dump() + "}",
                       4)
                .find("duplicate key"),
            std::string::npos);
}

TEST(Safetensors, AnUnknownTypeHindersNobodyUntilItIsRead) {
  const test::TemporaryFolder folder;
  const json header = {{"q", entry("F4_NEW", {3}, 0, 2)}, {"w", entry("BF16", {1}, 2, 4)}};
  write_text(folder.path() / "m.safetensors", file_text(header.dump(), "abcd"));
  const auto source = open_safetensors(folder.path() / "m.safetensors");
  std::vector<float> value(1);
  read_floats(*source->find("w"), 0, value);
  const auto message = error_of([&] { read_floats(*source->find("q"), 0, value); });
  EXPECT_NE(message.find("F4_NEW"), std::string::npos) << message;
}

TEST(Safetensors, RefusesHeadersThatAreTooLongOrCutOff) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "m.safetensors";
  const std::string whole = file_text(json{{"a", entry("F32", {2}, 0, 8)}}.dump(), "12345678");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_text(path, whole.substr(0, size));
    EXPECT_NE(error_of([&] { open_safetensors(path); }), "") << size;
  }
  std::string huge = whole;
  huge.replace(0, 8, std::string("\x00\xe1\xf5\x05\x01\x00\x00\x00", 8));
  write_text(path, huge);
  test::expect_error([&] { open_safetensors(path); }, {"at most 100000000"});
}

// A checkpoint of two shards and an index.
class Sharded : public testing::Test {
 protected:
  void SetUp() override {
    write_text(folder_.path() / "one.safetensors",
               file_text(json{{"a", entry("F32", {1}, 0, 4)}}.dump(), "1234"));
    write_text(
        folder_.path() / "two.safetensors",
        file_text(json{{"b", entry("F32", {1}, 0, 4)}, {"c", entry("F32", {1}, 4, 8)}}.dump(),
                  "12345678"));
    index_["weight_map"] = {
        {"a", "one.safetensors"}, {"b", "two.safetensors"}, {"c", "two.safetensors"}};
  }
  std::string error() {
    write_text(folder_.path() / "model.safetensors.index.json", index_.dump());
    return error_of([&] { source_ = open_safetensors(folder_.path(), &notes_); });
  }

  test::TemporaryFolder folder_;
  json index_;
  std::unique_ptr<TensorSource> source_;
  std::vector<std::string> notes_;
};

TEST_F(Sharded, OpensAllShardsOfAFolder) {
  write_text(folder_.path() / "model.safetensors", "no safetensors");  // the index takes precedence
  ASSERT_EQ(error(), "");
  EXPECT_EQ(source_->tensors().size(), 3u);
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_NE(source_->find(name), nullptr);
    source_->drop(*source_->find(name));
  }
  EXPECT_NE(source_->find("c")->place.find("two.safetensors at offset"), std::string::npos);
  const auto by_name = open_safetensors(folder_.path() / "model.safetensors.index.json");
  EXPECT_EQ(by_name->tensors().size(), 3u);
}

TEST_F(Sharded, NamesAMissingShardAndATensorThatItNeeds) {
  fs::remove(folder_.path() / "two.safetensors");
  const std::string message = error();
  EXPECT_NE(message.find("two.safetensors"), std::string::npos) << message;
  EXPECT_NE(message.find("tensor b"), std::string::npos) << message;
}

TEST_F(Sharded, RefusesATensorThatNoShardOrAnotherOneHas) {
  index_["weight_map"]["d"] = "one.safetensors";
  EXPECT_NE(error().find("no file has it"), std::string::npos);
  index_["weight_map"].erase("d");
  index_["weight_map"]["b"] = "one.safetensors";
  EXPECT_NE(error().find("no file has it"), std::string::npos);
}

// There is a stale copy of a tensor in another shard, and a tensor that the index does not list.
TEST_F(Sharded, TheIndexDecidesWhichTensorsThereAre) {
  write_text(folder_.path() / "one.safetensors", file_text(json{{"a", entry("F32", {1}, 0, 4)},
                                                                {"b", entry("F32", {1}, 4, 8)},
                                                                {"z", entry("F32", {1}, 8, 12)}}
                                                               .dump(),
                                                           "123456789012"));
  EXPECT_EQ(error(), "");
  EXPECT_EQ(source_->tensors().size(), 3u);
  EXPECT_NE(source_->find("b")->place.find("two.safetensors"), std::string::npos);
  EXPECT_EQ(source_->find("z"), nullptr);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_EQ(notes_[0],
            "one.safetensors: b is left out: the index does not have it there, nor 1 others");
}

TEST_F(Sharded, APointerOfGitLfsAndAnAdapterAreNamed) {
  write_text(folder_.path() / "one.safetensors",
             "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n");
  EXPECT_NE(error().find("one.safetensors: is a Git LFS pointer"), std::string::npos) << error();
  EXPECT_NE(error().find("git lfs pull"), std::string::npos);
  const test::TemporaryFolder adapter;
  write_text(adapter.path() / "adapter_config.json", "{}");
  test::expect_error([&] { open_safetensors(adapter.path()); }, {"is an adapter"});
}

TEST_F(Sharded, RefusesNamesOfFilesElsewhere) {
  for (const char* name : {"../one.safetensors", "/etc/passwd", "", "..", "x/one.safetensors"}) {
    index_["weight_map"]["a"] = name;
    EXPECT_NE(error().find("expected a file beside the index"), std::string::npos) << name;
  }
  index_["weight_map"]["a"] = 5;
  EXPECT_NE(error().find("tensor a"), std::string::npos);
  index_["weight_map"] = json::array();
  EXPECT_NE(error().find("weight_map"), std::string::npos);
}

// Files of which all bytes have arrived, and no more.
class ArrivedFiles final : public ArrivingFiles {
 public:
  explicit ArrivedFiles(std::map<std::string, std::string> files) : files_(std::move(files)) {}
  std::optional<std::uint64_t> bytes(const std::string& name) const override {
    const auto found = files_.find(name);
    return found == files_.end() ? std::nullopt
                                 : std::optional<std::uint64_t>(found->second.size());
  }
  void read(const std::string& name, std::uint64_t first, std::span<std::byte> out) override {
    const std::string& text = files_.at(name);
    require(first <= text.size() && out.size() <= text.size() - first, name, ": beyond its end");
    std::memcpy(out.data(), text.data() + first, out.size());
  }
  void finish() override { finished = true; }
  bool finished = false;

 private:
  std::map<std::string, std::string> files_;
};

TEST(Safetensors, ArrivingFilesHaveTheSameTensors) {
  const test::TemporaryFolder folder, whole;
  const json index = {{"weight_map", {{"a", "1.safetensors"}, {"b", "2.safetensors"}}}};
  const std::string one = file_text(json({{"a", entry("F32", {2, 2}, 0, 16)}}).dump(),
                                    std::string("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\0\0", 16));
  const std::string two = file_text(json({{"b", entry("BF16", {3}, 0, 6)}}).dump(),
                                    std::string("\x80\x3f\0\x40\x40\x40", 6));
  for (const fs::path& path : {folder.path(), whole.path()}) {
    write_text(path / "model.safetensors.index.json", index.dump());
  }
  write_text(whole.path() / "1.safetensors", one);
  write_text(whole.path() / "2.safetensors", two);
  write_text(folder.path() / "1.safetensors", one);  // was there before
  ArrivedFiles arriving({{"2.safetensors", two}});
  const auto want = open_safetensors(whole.path());
  const auto found = open_safetensors(folder.path(), nullptr, &arriving);
  for (const char* name : {"a", "b"}) {
    ASSERT_NE(found->find(name), nullptr) << name;
    const SourceTensor &x = *want->find(name), &y = *found->find(name);
    EXPECT_EQ(x.shape, y.shape);
    EXPECT_EQ(x.dtype, y.dtype);
    const std::size_t count = name[0] == 'a' ? 4 : 3;
    std::vector<float> expected(count), values(count), end(1);
    want->read(x, 0, expected);
    found->read(y, 0, values);
    EXPECT_EQ(values, expected);
    found->read(y, static_cast<std::int64_t>(count) - 1, end);
    EXPECT_EQ(end[0], expected.back());
    EXPECT_THROW(found->read(y, static_cast<std::int64_t>(count), end), Error);
  }
  EXPECT_FALSE(arriving.finished);
  found->finish();
  EXPECT_TRUE(arriving.finished);
  EXPECT_NE(error_of([&] { open_safetensors(folder.path()); }).find("2.safetensors"),
            std::string::npos);
}

TEST(Safetensors, EveryPrefixOfAnArrivingFileIsRefused) {
  const test::TemporaryFolder folder;
  const std::string whole = file_text(json({{"a", entry("F32", {2}, 0, 8)}}).dump(), "12345678");
  const auto error = [&](std::string text) {
    ArrivedFiles arriving({{"model.safetensors", std::move(text)}});
    return error_of([&] { open_safetensors(folder.path(), nullptr, &arriving); });
  };
  EXPECT_EQ(error(whole), "");
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_NE(error(whole.substr(0, bytes)).find("model.safetensors: "), std::string::npos)
        << bytes;
  }
  EXPECT_NE(error(std::string(8, '\xff') + "{}").find("are accepted"), std::string::npos);
}

TEST(Safetensors, FoldersWithoutACheckpointSayWhatIsExpected) {
  const test::TemporaryFolder folder;
  const auto message = [&] { return error_of([&] { open_safetensors(folder.path()); }); };
  EXPECT_NE(message().find("no model.safetensors"), std::string::npos);
  write_text(folder.path() / "pytorch_model.bin", "x");
  EXPECT_NE(message().find("pytorch_model.bin is not read"), std::string::npos);
  EXPECT_NE(error_of([&] { open_safetensors(folder.path() / "absent"); }), "");
}

}  // namespace
}  // namespace leq

// Tests the .leq reader on truncated, damaged and hostile files.
#include "format/leq_reader.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "errors.h"
#include "format/leq_bytes.h"
#include "format/leq_writer.h"
#include "temporary_folder.h"

namespace leq {
namespace {

using nlohmann::json;
using test::Bytes;

std::string error_of(const Bytes& bytes) {
  return test::error_of([&] { const LeqReader reader(bytes, "m.leq"); });
}

// Writes a small file: a vector of floats, codes in groups, and a blob.
Bytes written_file() {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m.leq";
  LeqWriter writer(path);
  const std::vector<float> vector = {1.0f, 2.0f, 3.0f};
  writer.add_tensor("norm", {3}, pack_weight(vector, 1, 3, {}, ActKind::none, "norm"), {});
  std::vector<float> values(40);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 20.0f;
  writer.add_tensor("w", {2, 20},
                    pack_weight(values, 2, 20, *parse_scheme("int8-g32"), ActKind::row, "w"),
                    {.method = "absmax", .error = 1e-5});
  writer.add_blob("tokenizer", std::as_bytes(std::span(vector)));
  writer.finish({{"config", {{"layers", 2}}}});
  return test::read_bytes(path);
}

// Creates a file with one small tensor that has all planes of this scheme.
Bytes file_of_scheme(const char* scheme, ActKind act) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m.leq";
  LeqWriter writer(path);
  std::vector<float> values(40);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 20.0f;
  writer.add_tensor("w", {2, 20}, pack_weight(values, 2, 20, *parse_scheme(scheme), act, "w"),
                    {.method = "zeropoint", .error = 1e-5});
  writer.finish({{"config", {{"layers", 2}}}});
  return test::read_bytes(path);
}

void expect_no_prefix_opens(const Bytes& whole) {
  ASSERT_EQ(error_of(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes prefix(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_NE(error_of(prefix), "") << size;
  }
}

TEST(LeqReader, RejectsEveryTruncatedPrefixOfFilesWithZeroPoints) {
  expect_no_prefix_opens(file_of_scheme("uint3-g32", ActKind::row));
  expect_no_prefix_opens(file_of_scheme("nf4", ActKind::none));
}

// Returns the error after one change to the JSON of a complete file with the same planes.
std::string error_after(const Bytes& whole, const std::function<void(json&)>& change) {
  const std::size_t offset = test::get_u64(whole, 16);
  json file = json::parse(reinterpret_cast<const char*>(whole.data()) + offset,
                          reinterpret_cast<const char*>(whole.data()) + whole.size());
  change(file);
  return error_of(test::leq_file(
      file.dump(), Bytes(whole.begin() + 64, whole.begin() + static_cast<std::ptrdiff_t>(offset))));
}

TEST(LeqReader, RefusesPlanesOfZeroPointsThatDoNotFit) {
  const Bytes whole = file_of_scheme("uint4-g32", ActKind::row);
  EXPECT_EQ(error_after(whole, [](json&) {}), "");
  for (const int bytes : {0, 32, 63}) {
    const std::string message =
        error_after(whole, [&](json& f) { f["tensors"]["w"]["planes"]["zeros"]["bytes"] = bytes; });
    EXPECT_NE(message.find("zeros"), std::string::npos) << message;
    EXPECT_NE(message.find("takes 64"), std::string::npos) << message;
  }
  EXPECT_NE(error_after(whole, [](json& f) { f["tensors"]["w"]["planes"].erase("zeros"); })
                .find("plane zeros is missing"),
            std::string::npos);
  // The scheme does not have the additional plane.
  EXPECT_NE(error_after(whole, [](json& f) { f["tensors"]["w"]["scheme"] = "int4-g32"; })
                .find("3 planes"),
            std::string::npos);
  const Bytes g64 = file_of_scheme("int4-g64", ActKind::g128);
  EXPECT_NE(error_after(g64, [](json& f) { f["tensors"]["w"]["act"] = "g32"; })
                .find("groups of 64 weights span several scales of inputs with act g32"),
            std::string::npos);
  const Bytes nf4 = file_of_scheme("nf4", ActKind::none);
  EXPECT_NE(error_after(nf4, [](json& f) { f["tensors"]["w"]["act"] = "row"; }).find("f32 inputs"),
            std::string::npos);
}

TEST(LeqReader, RejectsEveryTruncatedPrefix) {
  const Bytes whole = written_file();
  expect_no_prefix_opens(whole);
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_NE(error_of(longer), "");
}

// The weights of codes are defined only if scale_mul is present and is a power of two.
TEST(LeqReader, GroupsNeedTheirScaleMul) {
  const Bytes whole = file_of_scheme("int4-g64", ActKind::row);
  const auto with = [&](const json& value) {
    return error_after(whole, [&](json& f) { f["tensors"]["w"]["scale_mul"] = value; });
  };
  EXPECT_NE(error_after(whole, [](json& f) { f["tensors"]["w"].erase("scale_mul"); })
                .find("\"scale_mul\" is missing"),
            std::string::npos);
  for (const json& bad : {json(nullptr), json(0), json(3), json(0.3), json(-2), json(1e300),
                          json(1e-300), json("2")}) {
    EXPECT_NE(with(bad).find("scale_mul"), std::string::npos) << bad;
  }
  for (const json& good : {json(1), json(0.5), json(1048576), json(7.62939453125e-06)}) {
    EXPECT_EQ(with(good), "") << good;
  }
}

// Returns everything that a caller can read from a file, without the bytes of planes.
std::string summary(const LeqReader& reader) {
  std::string text = reader.metadata().dump();
  for (const StoredTensor& tensor : reader.tensors()) {
    text += tensor.name + shape_text(tensor.shape) + scheme_name(tensor.view.scheme) +
            std::string(act_name(tensor.view.act)) + std::to_string(tensor.bytes());
    for (const StoredPlane& plane : tensor.planes) {
      text += plane.name + std::to_string(plane.offset) + "," + std::to_string(plane.xxh3);
    }
  }
  text += std::to_string(reader.blob("tokenizer").value().size());
  return text;
}

TEST(LeqReader, EveryFlippedBitOfPreambleAndJsonIsRefusedOrHarmless) {
  const Bytes whole = written_file();
  const std::string expected = summary(LeqReader(whole, "m.leq"));
  const std::size_t json_offset = test::get_u64(whole, 16);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    if (at == 64) at = json_offset;
    for (unsigned bit = 0; bit < 8; ++bit) {
      Bytes damaged = whole;
      damaged[at] ^= static_cast<std::byte>(1u << bit);
      try {
        const LeqReader reader(damaged, "m.leq");
        ASSERT_EQ(summary(reader), expected) << at;
        // Only changes of the minor version and of the reserved bytes may be undetected.
        ASSERT_TRUE((at >= 12 && at < 16) || (at >= 48 && at < 64)) << at;
      } catch (const Error&) {
      }
    }
  }
}

TEST(LeqReader, VerifyFindsEveryFlippedByteOfAPlaneAndNamesIt) {
  const Bytes whole = written_file();
  std::uint64_t seen = 0;
  LeqReader(whole, "m.leq").verify([&](std::uint64_t done, std::uint64_t total) {
    EXPECT_LE(done, total);
    seen = done;
  });
  EXPECT_GT(seen, 0u);
  const auto flip_and_verify = [&](std::size_t at) -> std::string {
    Bytes damaged = whole;
    damaged[at] ^= std::byte{0x10};
    return test::error_of(
        [&] { LeqReader(damaged, "m.leq").verify([](std::uint64_t, std::uint64_t) {}); });
  };
  const LeqReader reader(whole, "m.leq");
  for (const StoredTensor& tensor : reader.tensors()) {
    for (const StoredPlane& plane : tensor.planes) {
      for (std::size_t i = 0; i<plane.bytes; i += plane.bytes> 1000 ? 97 : 1) {
        const std::string message = flip_and_verify(plane.offset + i);
        ASSERT_NE(message.find(tensor.name + ", plane " + plane.name), std::string::npos);
      }
    }
  }
  const auto blob = reader.blob("tokenizer").value();
  for (std::size_t i = 0; i < blob.size(); ++i) {
    const auto at = static_cast<std::size_t>(blob.data() + i - whole.data());
    ASSERT_NE(flip_and_verify(at).find("blob tokenizer"), std::string::npos);
  }
}

// Differences of codes and zero points have eight bits in some kernels.
TEST(LeqReader, VerifyRefusesZeroPointsFarBeyondTheCodes) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m.leq";
  for (const int zero : {15, 16, 17, 200}) {
    const std::vector<float> values(40, 1.0f);
    PackedWeight weight = pack_weight(values, 2, 20, *parse_scheme("uint4-g32"), ActKind::row, "w");
    weight.zeros[0] = static_cast<std::byte>(zero);
    LeqWriter writer(path);
    writer.add_tensor("w", {2, 20}, weight, {.method = "zeropoint", .error = 1e-5});
    writer.finish({{"config", {{"layers", 2}}}});
    const std::string message = test::error_of([&] {
      LeqReader(test::read_bytes(path), "m.leq").verify([](std::uint64_t, std::uint64_t) {});
    });
    if (zero <= 16) {
      EXPECT_EQ(message, "");
    } else {
      EXPECT_NE(
          message.find("m.leq: tensor w, plane zeros: a zero point of " + std::to_string(zero)),
          std::string::npos)
          << message;
    }
  }
}

// A row's products are summed in 32 bits.
TEST(LeqReader, RefusesRowsThatAreTooLongForExactSums) {
  const auto opened = [](const char* scheme, std::int64_t columns) {
    const Bytes whole = file_of_scheme(scheme, ActKind::row);
    return error_after(whole, [&](json& f) { f["tensors"]["w"]["shape"] = {2, columns}; });
  };
  for (const char* scheme : {"int8", "uint4-g32", "q6_k"}) {
    EXPECT_NE(opened(scheme, 131073).find("has at most 131072"), std::string::npos) << scheme;
    EXPECT_EQ(opened(scheme, 131072).find("has at most"), std::string::npos) << scheme;
  }
  EXPECT_NE(opened("uint8", 65537).find("has at most 65536"), std::string::npos);
  EXPECT_EQ(opened("uint8", 65536).find("has at most"), std::string::npos);
}

// One f32 vector of 4 numbers, one int8 row weight [2][3] (padded to 64 x 128), and one blob.
json good_json() {
  const std::string any(16, '0');
  const auto range = [&](int offset, int bytes) {
    return json{{"offset", offset}, {"bytes", bytes}, {"xxh3", any}};
  };
  const Bytes zeros(5);
  json blob = range(8832, 5);
  blob["xxh3"] = test::hash_text(zeros.data(), zeros.size());
  return {{"leq", {{"requires", json::array()}}},
          {"tensors",
           {{"norm",
             {{"shape", {4}},
              {"scheme", "f32"},
              {"act", "none"},
              {"planes", {{"codes", range(64, 16)}}}}},
            {"w",
             {{"shape", {2, 3}},
              {"scheme", "int8"},
              {"act", "row"},
              {"planes",
               {{"codes", range(128, 8192)},
                {"scales", range(8320, 256)},
                {"sums", range(8576, 256)}}}}}}},
          {"blobs", {{"tokenizer", blob}}}};
}
Bytes with_json(const std::string& text) { return test::leq_file(text, Bytes(8832)); }

TEST(LeqReader, OpensAFileBuiltByHandAndIgnoresUnknownKeys) {
  json file = good_json();
  EXPECT_EQ(error_of(with_json(file.dump())), "");
  file["later"] = {1, 2, 3};
  file["tensors"]["norm"]["later"] = "x";
  file["tensors"]["norm"]["planes"]["codes"]["later"] = 1;
  file["leq"]["later"] = true;
  const Bytes bytes = with_json(file.dump());
  ASSERT_EQ(error_of(bytes), "");
  const LeqReader reader(bytes, "m.leq");
  EXPECT_EQ(reader.tensors().size(), 2u);
  EXPECT_EQ(reader.metadata()["later"].size(), 3u);
  EXPECT_FALSE(reader.metadata().contains("tensors"));
  EXPECT_FALSE(reader.metadata().contains("blobs"));
  EXPECT_EQ(reader.blob("tokenizer").value().size(), 5u);
  EXPECT_EQ(reader.blob("absent"), std::nullopt);
  EXPECT_EQ(reader.find("absent"), nullptr);
  const WeightView& view = reader.find("w")->view;
  EXPECT_EQ(view.codes, bytes.data() + 128);
  EXPECT_EQ(view.scales, bytes.data() + 8320);
  EXPECT_EQ(view.sums, bytes.data() + 8576);
  EXPECT_EQ(view.zeros, nullptr);
}

TEST(LeqReader, ABlobIsComparedWithItsChecksumWhenItIsRead) {
  Bytes bytes = with_json(good_json().dump());
  bytes[8834] = std::byte{1};
  const LeqReader reader(bytes, "m.leq");
  test::expect_error([&] { (void)reader.blob("tokenizer"); },
                     {"m.leq: blob tokenizer at offset 8832: checksum"});
}

struct Hostile {
  const char* what;
  std::function<void(json&)> change;
  const char* expected;  // part of the message
};

TEST(LeqReader, RefusesHostileTablesByName) {
  const std::vector<Hostile> cases = {
      {"no tensors", [](json& f) { f.erase("tensors"); }, "tensors"},
      {"tensors a list", [](json& f) { f["tensors"] = json::array(); }, "tensors"},
      {"no blobs", [](json& f) { f.erase("blobs"); }, "blobs"},
      {"no leq", [](json& f) { f.erase("leq"); }, "leq"},
      {"requires", [](json& f) { f["leq"]["requires"] = {"outliers"}; }, "\"outliers\""},
      {"requires no text", [](json& f) { f["leq"]["requires"] = {1}; }, "feature"},
      {"requires absent", [](json& f) { f["leq"].erase("requires"); }, "requires"},
      {"scheme", [](json& f) { f["tensors"]["w"]["scheme"] = "int9"; }, "\"int9\""},
      {"scheme of later", [](json& f) { f["tensors"]["w"]["scheme"] = "nf5"; }, "nf5"},
      {"scheme tensor", [](json& f) { f["tensors"]["w"]["scheme"] = "int8-tensor"; },
       "int8-tensor"},
      {"scheme no text", [](json& f) { f["tensors"]["w"]["scheme"] = 8; }, "scheme"},
      {"act", [](json& f) { f["tensors"]["w"]["act"] = "g77"; }, "\"g77\""},
      {"act absent", [](json& f) { f["tensors"]["w"].erase("act"); }, "act"},
      {"shape absent", [](json& f) { f["tensors"]["w"].erase("shape"); }, "shape"},
      {"rank 0", [](json& f) { f["tensors"]["w"]["shape"] = json::array(); }, "shape"},
      {"rank 3",
       [](json& f) {
         f["tensors"]["w"]["shape"] = {1, 2, 3};
       },
       "shape"},
      {"size 0",
       [](json& f) {
         f["tensors"]["w"]["shape"] = {0, 3};
       },
       "shape"},
      {"size negative",
       [](json& f) {
         f["tensors"]["w"]["shape"] = {-2, 3};
       },
       "shape"},
      {"size fraction",
       [](json& f) {
         f["tensors"]["w"]["shape"] = {2.0, 3};
       },
       "shape"},
      {"size huge",
       [](json& f) {
         f["tensors"]["w"]["shape"] = {2, UINT64_MAX};
       },
       "shape"},
      {"product huge",
       [](json& f) {
         f["tensors"]["w"]["shape"] = {2147483648u, 2147483648u};
       },
       "shape"},
      {"another shape",
       [](json& f) {
         f["tensors"]["w"]["shape"] = {65, 3};
       },
       "plane codes"},
      {"scale_mul without groups", [](json& f) { f["tensors"]["w"]["scale_mul"] = 1; },
       "scale_mul"},
      {"tensor no object", [](json& f) { f["tensors"]["w"] = 1; }, "tensor w"},
      {"no planes", [](json& f) { f["tensors"]["w"].erase("planes"); }, "planes"},
      {"plane absent", [](json& f) { f["tensors"]["w"]["planes"].erase("sums"); }, "sums"},
      {"plane unknown",
       [](json& f) { f["tensors"]["w"]["planes"]["more"] = f["tensors"]["w"]["planes"]["sums"]; },
       "planes"},
      {"plane too small", [](json& f) { f["tensors"]["w"]["planes"]["codes"]["bytes"] = 8128; },
       "8192"},
      {"offset unaligned", [](json& f) { f["tensors"]["w"]["planes"]["codes"]["offset"] = 129; },
       "129"},
      {"offset in the preamble",
       [](json& f) { f["tensors"]["norm"]["planes"]["codes"]["offset"] = 0; }, "outside"},
      {"offset past the data",
       [](json& f) { f["tensors"]["norm"]["planes"]["codes"]["offset"] = 1 << 20; }, "outside"},
      {"end past the data", [](json& f) { f["tensors"]["w"]["planes"]["codes"]["offset"] = 8832; },
       "outside"},
      {"offset wraps",
       [](json& f) { f["tensors"]["norm"]["planes"]["codes"]["offset"] = UINT64_MAX - 63; },
       "outside"},
      {"bytes wrap", [](json& f) { f["blobs"]["tokenizer"]["bytes"] = UINT64_MAX - 100; },
       "outside"},
      {"bytes negative", [](json& f) { f["blobs"]["tokenizer"]["bytes"] = -1; }, "bytes"},
      {"blob no object", [](json& f) { f["blobs"]["tokenizer"] = "x"; }, "blob tokenizer"},
      {"checksum short", [](json& f) { f["blobs"]["tokenizer"]["xxh3"] = "00"; }, "16 hex digits"},
      {"checksum no hex", [](json& f) { f["blobs"]["tokenizer"]["xxh3"] = "000000000000000g"; },
       "16 hex digits"},
      {"planes overlap", [](json& f) { f["tensors"]["norm"]["planes"]["codes"]["offset"] = 192; },
       "overlap"},
      {"blob over a plane", [](json& f) { f["blobs"]["tokenizer"]["offset"] = 8576; }, "overlap"},
      {"method no text", [](json& f) { f["tensors"]["w"]["method"] = 5; }, "method"},
      {"error no number", [](json& f) { f["tensors"]["w"]["error"] = "x"; }, "error"},
      {"not an object", [](json& f) { f = json::array(); }, "object"},
  };
  for (const Hostile& hostile : cases) {
    json file = good_json();
    hostile.change(file);
    const std::string message = error_of(with_json(file.dump()));
    EXPECT_TRUE(message.starts_with("m.leq: ")) << hostile.what << ": " << message;
    EXPECT_NE(message.find(hostile.expected), std::string::npos) << hostile.what << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << hostile.what;
  }
}

TEST(LeqReader, RefusesNamesThatStandTwice) {
  std::string text = good_json().dump();
  const std::string norm = "\"norm\":";
  text.insert(text.find(norm), "\"norm\":" + good_json()["tensors"]["norm"].dump() + ",");
  EXPECT_NE(error_of(with_json(text)).find("duplicate key \"norm\""), std::string::npos);
}

TEST(LeqReader, RefusesTooManyTensors) {
  std::string text = R"({"leq":{"requires":[]},"tensors":{},"blobs":{)";
  for (int i = 0; i <= 2'000'000; ++i) {
    if (i > 0) text += ',';
    text += '"' + std::to_string(i) + "\":0";
  }
  EXPECT_NE(error_of(test::leq_file(text + "}}", {})).find("more than 2000000 values"),
            std::string::npos);
}

TEST(LeqReader, RefusesDamagedPreambles) {
  const Bytes good = with_json(good_json().dump());
  const auto changed = [&](std::size_t at, std::uint64_t value) {
    Bytes bytes = good;
    test::put_u64(bytes, at, value);
    return error_of(bytes);
  };
  EXPECT_NE(changed(0, 0x46554747).find("expected a .leq file"), std::string::npos);
  EXPECT_NE(changed(8, 2).find("format version 2"), std::string::npos);
  EXPECT_NE(changed(8, 2).find("newer leq"), std::string::npos);
  EXPECT_NE(changed(8, 0).find("convert the model again"), std::string::npos);
  EXPECT_EQ(changed(8, 1ull << 32 | 1), "");  // minor version 1 can be read
  for (const std::uint64_t offset : {0ull, 63ull, 8900ull, 8897ull, 1ull << 40, ~0ull}) {
    EXPECT_NE(changed(16, offset), "") << offset;
  }
  for (const std::uint64_t bytes : {0ull, 1ull, 1ull << 40, ~0ull}) {
    EXPECT_NE(changed(24, bytes), "") << bytes;
  }
  EXPECT_NE(changed(32, 1).find("checksum"), std::string::npos);
  EXPECT_NE(changed(40, 1).find("the preamble says 1 bytes"), std::string::npos);
}

TEST(LeqReader, RefusesJsonThatIsNoJson) {
  EXPECT_NE(error_of(with_json("{\"leq\":")).find("invalid JSON"), std::string::npos);
  EXPECT_NE(error_of(with_json("")), "");
  EXPECT_NE(error_of(with_json(std::string(100'000, '['))).find("deeper"), std::string::npos);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"\":";
  EXPECT_NE(error_of(with_json(objects)).find("deeper"), std::string::npos);
}

TEST(LeqReader, RefusesFilesThatAreNotThereOrOfAnotherKind) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(LeqReader(folder.path() / "absent.leq", {}), Error);
  EXPECT_THROW(LeqReader(folder.path(), {}), Error);
  std::ofstream(folder.path() / "empty.leq");
  EXPECT_THROW(LeqReader(folder.path() / "empty.leq", {}), Error);
}

TEST(LeqReader, EveryLoadModeShowsTheSameBytes) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m.leq";
  LeqWriter writer(path);
  std::vector<float> values(5000 * 1000);  // 20 MB: several huge pages, read in parts
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1013);
  writer.add_tensor("w", {5000, 1000}, pack_weight(values, 5000, 1000, {}, ActKind::none, "w"), {});
  writer.add_blob("none", {});
  writer.finish(Json::object());
  for (const LoadMode mode : {LoadMode::automatic, LoadMode::map, LoadMode::read}) {
    std::vector<std::uint64_t> told;
    LoadOptions options = {mode, 0, false};
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
      EXPECT_EQ(total, std::filesystem::file_size(path));
      told.push_back(done);
    };
    const LeqReader reader(path, options);
    if (mode != LoadMode::automatic) {
      EXPECT_EQ(reader.mapped(), mode == LoadMode::map);
      EXPECT_EQ(told.empty(), mode == LoadMode::map);  // mapped and read later
    }
    EXPECT_TRUE(mode == LoadMode::automatic || std::ranges::is_sorted(told));
    EXPECT_TRUE(told.empty() || told.back() == std::filesystem::file_size(path));
    reader.verify([](std::uint64_t, std::uint64_t) {});
    std::vector<float> row(1000);
    unpack_row(reader.find("w")->view, 4999, row);
    EXPECT_TRUE(std::equal(row.begin(), row.end(), values.end() - 1000));
    EXPECT_EQ(reader.blob("none").value().size(), 0u);
    EXPECT_EQ(reader.file_bytes(), std::filesystem::file_size(path));
  }
  const LeqReader crowded(path, {LoadMode::automatic, UINT64_MAX, false});
  EXPECT_TRUE(crowded.mapped());  // not enough memory to read it, so it is mapped
}

}  // namespace
}  // namespace leq

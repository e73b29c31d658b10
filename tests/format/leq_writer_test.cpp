// Written data can be read back, and a failed write leaves no file behind.
#include "format/leq_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>

#include "all_schemes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "errors.h"
#include "format/leq_bytes.h"
#include "format/leq_reader.h"
#include "temporary_folder.h"

namespace leq {
namespace {

std::vector<float> random_values(std::size_t count) {
  std::vector<float> values(count);
  Random random(5);
  for (float& value : values) value = random.normal();
  return values;
}

TEST(LeqWriter, EverySchemeComesBackAsItWasPacked) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m.leq";
  const auto values = random_values(70 * 150);
  std::vector<std::string> schemes;
  for (const QuantScheme& scheme : test::all_schemes()) {
    if (scheme.kind != CodeKind::b1) schemes.push_back(scheme_name(scheme));
  }
  LeqWriter writer(path);
  std::vector<PackedWeight> packed;
  for (const std::string& scheme : schemes) {
    const ActKind act = scheme == "nf4" ? ActKind::none : ActKind::g128;
    packed.push_back(pack_weight(values, 70, 150, *parse_scheme(scheme), act, scheme));
    writer.add_tensor(scheme, {70, 150}, packed.back(), {.method = "absmax", .error = 0.25});
  }
  const std::uint64_t size = writer.finish({{"config", {{"layers", 3}}}, {"note", "\u00e9"}});
  EXPECT_EQ(size, std::filesystem::file_size(path));
  const LeqReader reader(path, {LoadMode::map, 0, false});
  reader.verify([](std::uint64_t, std::uint64_t) {});
  EXPECT_EQ(reader.metadata()["config"]["layers"], 3);
  ASSERT_EQ(reader.tensors().size(), schemes.size());
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    const StoredTensor& tensor = reader.tensors()[i];  // in the order of writing
    EXPECT_EQ(tensor.name, schemes[i]);
    EXPECT_EQ(tensor.shape, (Shape{70, 150}));
    EXPECT_EQ(tensor.view.scheme, packed[i].scheme);
    EXPECT_EQ(tensor.view.act, packed[i].act);
    EXPECT_EQ(tensor.view.scale_mul, packed[i].scale_mul);
    EXPECT_EQ(tensor.method, "absmax");
    EXPECT_EQ(tensor.error, 0.25);
    for (const StoredPlane& plane : tensor.planes) EXPECT_EQ(plane.offset % 64, 0u);
    std::vector<float> expected(150), found(150);
    for (std::int64_t row = 0; row < 70; ++row) {
      unpack_row(packed[i].view(), row, expected);
      unpack_row(tensor.view, row, found);
      ASSERT_EQ(found, expected) << schemes[i] << " row " << row;
    }
  }
}

bool same_bytes(const void* found, const std::vector<std::byte>& expected) {
  return expected.empty() ? found == nullptr
                          : std::memcmp(found, expected.data(), expected.size()) == 0;
}

TEST(LeqWriter, NarrowWeightsAreStoredWithoutPaddingAndReadWithIt) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m.leq";
  constexpr std::int64_t kRows = 70;
  LeqWriter writer(path);
  std::vector<PackedWeight> packed;
  for (const std::int64_t columns : {576, 33, 150, 2880}) {
    const auto values = random_values(static_cast<std::size_t>(kRows * columns));
    for (const QuantScheme& scheme : test::all_schemes()) {
      if (scheme.kind == CodeKind::b1) continue;
      for (const ActKind act : {ActKind::none, ActKind::row, ActKind::g128, ActKind::g32}) {
        if (!fits_act(scheme, act) || (is_coded(act) && !scheme.takes_codes())) continue;
        packed.push_back(pack_weight(values, kRows, columns, scheme, act, "w"));
        writer.add_tensor(std::to_string(packed.size()), {kRows, columns}, packed.back(), {});
      }
    }
  }
  writer.finish(Json::object());
  const LeqReader reader(path, {});
  ASSERT_EQ(reader.tensors().size(), packed.size());
  std::uint64_t stored = 0, unpadded = 0;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    const StoredTensor& tensor = reader.tensors()[i];
    const PackedWeight& weight = packed[i];
    const std::string what =
        scheme_name(weight.scheme) + ", columns " + std::to_string(weight.columns);
    EXPECT_TRUE(same_bytes(tensor.view.codes, weight.codes)) << what;
    EXPECT_TRUE(same_bytes(tensor.view.scales, weight.scales)) << what;
    EXPECT_TRUE(same_bytes(tensor.view.zeros, weight.zeros)) << what;
    EXPECT_TRUE(same_bytes(tensor.view.sums, weight.sums)) << what;
    stored += tensor.bytes();
    unpadded += tensor.unpadded ? 1 : 0;
    const auto bits = static_cast<std::uint64_t>(weight.scheme.bits);
    const bool integers = weight.scheme.takes_codes() && weight.scheme.kind != CodeKind::uint_;
    if (integers && weight.columns == 576) {
      EXPECT_EQ(tensor.planes.front().bytes, 128 * 576 * bits / 8) << what;
    }
    if (weight.columns == 2880) {
      EXPECT_FALSE(tensor.unpadded) << what;  // used where it is mapped
    }
  }
  EXPECT_GT(unpadded, packed.size() / 3);
  EXPECT_LT(stored, reader.file_bytes());
  EXPECT_GT(reader.memory_bytes(), reader.file_bytes());
  EXPECT_EQ(reader.minor_version(), 3u);
  const LeqReader names(path, {.mode = LoadMode::map, .weights = false});
  EXPECT_EQ(names.memory_bytes(), names.file_bytes());
  EXPECT_EQ(names.tensors().front().bytes(), reader.tensors().front().bytes());
}

TEST(LeqWriter, AnOutlineHasTheSizesOfTheFile) {
  const test::TemporaryFolder folder;
  LeqWriter file(folder.path() / "file.leq"), outline(folder.path() / "outline.leq", true);
  const auto values = random_values(70 * 256);
  for (const char* scheme : {"int8", "int4-g32", "q4_k", "f16"}) {
    for (const std::int64_t columns : {150, 256}) {  // with and without padding left out
      const std::string name = scheme + std::to_string(columns);
      const auto numbers = std::span(values).first(static_cast<std::size_t>(70 * columns));
      const PackedWeight packed =
          pack_weight(numbers, 70, columns, *parse_scheme(scheme), ActKind::g128, name);
      file.add_tensor(name, {70, columns}, packed, {});
      PackedWeight sizes;
      sizes.scheme = packed.scheme, sizes.act = packed.act;
      sizes.rows = packed.rows, sizes.columns = packed.columns;
      outline.add_tensor(name, {70, columns}, sizes, {});
    }
  }
  file.finish(Json::object());
  outline.finish(Json::object());
  const LoadOptions headers = {.mode = LoadMode::map, .weights = false};
  const LeqReader real(folder.path() / "file.leq", headers);
  const LeqReader estimate(folder.path() / "outline.leq", headers);
  for (std::size_t i = 0; i < real.tensors().size(); ++i) {
    EXPECT_EQ(real.tensors()[i].memory_bytes(), estimate.tensors()[i].memory_bytes());
    EXPECT_EQ(real.tensors()[i].unpadded, estimate.tensors()[i].unpadded);
  }
}

TEST(LeqWriter, ARequirementIsReadBackOrRefusedByName) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m.leq";
  const auto write = [&](const std::vector<std::string>& features) {
    LeqWriter writer(path);
    for (const std::string& feature : features) writer.add_requirement(feature);
    writer.finish(Json::object());
  };
  write({"layers"});
  EXPECT_NO_THROW(LeqReader(path, {LoadMode::map, 0, false}));
  write({"layers", "telepathy"});
  test::expect_error(
      [&] {
        const LeqReader reader(path, {LoadMode::map, 0, false});
      },
      {"\"telepathy\""});
}

TEST(LeqWriter, AFileOfRotatedWeightsIsRefused) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "rotated.leq";
  LeqWriter writer(path);
  writer.add_requirement("rotation");
  writer.finish(Json::object());
  test::expect_error(
      [&] {
        const LeqReader reader(path, {LoadMode::map, 0, false});
      },
      {"rotated.leq: ", "rotated (Hadamard) weights are not supported since 0.2",
       "quantize the checkpoint again"});
}

TEST(LeqWriter, B1ComesBackAsItWasPacked) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m.leq";
  Random random(8);
  ChosenCodes chosen;
  for (int i = 0; i < 70 * 150; ++i) {
    chosen.codes.push_back(static_cast<std::int16_t>(random.below(4)));
  }
  for (int i = 0; i < 70 * 2 * 8; ++i) {
    chosen.scales.push_back(static_cast<float>(random.below(100)) / 64.0f);
  }
  for (int k = 0; k < 150; ++k) chosen.zeros.push_back(k % 9 == 0 ? 1 : 0);
  const PackedWeight packed = pack_codes(chosen, 70, 150, *parse_scheme("b1"), ActKind::none);
  LeqWriter writer(path);
  writer.add_tensor("w", {70, 150}, packed, {.method = "billm", .error = 0.5});
  writer.finish({{"config", {{"layers", 3}}}});
  const LeqReader reader(path, {LoadMode::map, 0, false});
  reader.verify([](std::uint64_t, std::uint64_t) {});
  std::vector<float> expected(150), found(150);
  for (std::int64_t row = 0; row < 70; ++row) {
    unpack_row(packed.view(), row, expected);
    unpack_row(reader.tensors()[0].view, row, found);
    ASSERT_EQ(found, expected) << row;
  }
}

TEST(LeqWriter, RefusesWhatDoesNotFitTogether) {
  const test::TemporaryFolder folder;
  LeqWriter writer(folder.path() / "m.leq");
  const std::vector<float> values(6, 1.0f);
  const PackedWeight matrix = pack_weight(values, 2, 3, {}, ActKind::none, "w");
  const PackedWeight vector = pack_weight(values, 1, 6, {}, ActKind::none, "v");
  EXPECT_THROW(writer.add_tensor("w", {3, 2}, matrix, {}), Error);
  EXPECT_THROW(writer.add_tensor("w", {6}, matrix, {}), Error);
  EXPECT_THROW(writer.add_tensor("w", {1, 2, 3}, matrix, {}), Error);
  EXPECT_THROW(writer.add_tensor("w", {}, matrix, {}), Error);
  EXPECT_THROW(writer.add_tensor("w\xff", {2, 3}, matrix, {}), Error);
  PackedWeight short_codes = matrix;
  short_codes.codes.pop_back();
  EXPECT_THROW(writer.add_tensor("w", {2, 3}, short_codes, {}), Error);
  EXPECT_THROW(writer.add_tensor("w", {2, 3}, matrix, {.method = "none", .error = HUGE_VAL}),
               Error);
  writer.add_tensor("w", {2, 3}, matrix, {});
  EXPECT_THROW(writer.add_tensor("w", {2, 3}, matrix, {}), Error);
  writer.add_tensor("v", {6}, vector, {});
  writer.add_blob("b", std::as_bytes(std::span(values)));
  EXPECT_THROW(writer.add_blob("b", {}), Error);
  EXPECT_THROW(writer.finish(Json::array()), Error);
  EXPECT_THROW(writer.finish({{"tensors", 1}}), Error);
  EXPECT_THROW(writer.finish({{"text", "\xff"}}), Error);
  writer.finish(Json::object());
  const LeqReader reader(folder.path() / "m.leq", {LoadMode::map, 0, false});
  EXPECT_EQ(reader.tensors().size(), 2u);
}

TEST(LeqWriter, LeavesNothingWhereItIsNotFinished) {
  const test::TemporaryFolder folder;
  const std::vector<float> values(1000, 1.0f);
  {
    LeqWriter writer(folder.path() / "m.leq");
    writer.add_tensor("w", {1000}, pack_weight(values, 1, 1000, {}, ActKind::none, "w"), {});
  }
  EXPECT_TRUE(folder.names().empty());
}

// On a file system without nameless files, a killed writer leaves its temporary file behind.
bool has_nameless_files(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR, 0600);
  if (descriptor >= 0) ::close(descriptor);
  return descriptor >= 0;
}

TEST(LeqWriter, LeavesNothingWhereItIsKilled) {
  const test::TemporaryFolder folder;
  if (!has_nameless_files(folder.path())) {
    GTEST_SKIP() << "needs a temporary folder on a file system with O_TMPFILE";
  }
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    LeqWriter writer(folder.path() / "m.leq");
    const std::vector<float> values(100'000, 1.0f);
    const PackedWeight weight = pack_weight(values, 1, 100'000, {}, ActKind::none, "w");
    for (int i = 0;; ++i) {
      writer.add_tensor(
          std::to_string(i % 100) + std::string(static_cast<std::size_t>(i / 100), 'x'), {100'000},
          weight, {});
      if (i == 3 && ::write(pipe_ends[1], "x", 1) != 1) ::_exit(1);
      if (i > 3) ::usleep(1000);
    }
  }
  char byte = 0;
  ASSERT_EQ(::read(pipe_ends[0], &byte, 1), 1);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(folder.names().empty());
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

TEST(LeqWriter, LeavesNothingOnAFullDiskAndSaysSo) {
  const test::TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // A limit on the file size simulates a full disk, because write() fails in the same way.
    const rlimit limit = {50'000, 50'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);
    try {
      LeqWriter writer(folder.path() / "m.leq");
      const std::vector<float> values(20'000, 1.0f);
      writer.add_tensor("w", {20'000}, pack_weight(values, 1, 20'000, {}, ActKind::none, "w"), {});
      writer.finish(Json::object());
      ::_exit(1);
    } catch (const Error& error) {
      const std::string message = error.what();
      const bool good = message.find("m.leq: cannot write at offset") != std::string::npos &&
                        message.find("free some space") != std::string::npos;
      ::_exit(good ? 0 : 2);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace leq

// Written data can be read back, and a failed write leaves no file behind.
#include "format/leq_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "all_schemes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "base/text.h"
#include "errors.h"
#include "format/leq_bytes.h"
#include "format/leq_reader.h"
#include "format/loaded_file.h"
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
  std::uint64_t in_memory = reader.file_bytes() - stored;
  for (const PackedWeight& weight : packed) {
    for (const auto* plane : {&weight.codes, &weight.scales, &weight.zeros, &weight.sums}) {
      in_memory += (plane->size() + 63) / 64 * 64;
    }
  }
  EXPECT_NEAR(static_cast<double>(reader.memory_bytes()), static_cast<double>(in_memory),
              static_cast<double>(packed.size() * 4 * 64));
  EXPECT_EQ(reader.minor_version(), 3u);
  const LeqReader names(path, {.mode = LoadMode::map, .weights = false});
  EXPECT_EQ(names.memory_bytes(), reader.memory_bytes());
  EXPECT_EQ(names.tensors().front().bytes(), reader.tensors().front().bytes());
}

// The bytes of pages that are in this process's memory, as /proc/self/pagemap tells.
std::size_t resident_bytes(std::span<const std::byte> bytes) {
  const int file = ::open("/proc/self/pagemap", O_RDONLY);
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data()) / page;
  const auto last = (reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size() - 1) / page;
  std::vector<std::uint64_t> pages(last - first + 1);
  const auto want = static_cast<ssize_t>(pages.size() * sizeof(pages[0]));
  EXPECT_EQ(::pread(file, pages.data(), static_cast<std::size_t>(want),
                    static_cast<off_t>(first * sizeof(pages[0]))),
            want);
  ::close(file);
  const auto present = [](std::uint64_t entry) { return (entry >> 63 & 1) != 0; };
  return static_cast<std::size_t>(std::ranges::count_if(pages, present)) * page;
}

// A narrow tensor that is stored without padding between two that are used in place.
class NarrowFile : public testing::Test {
 protected:
  static constexpr std::int64_t kRows = 6400;

  NarrowFile() {
    LeqWriter writer(path_);
    for (const std::int64_t columns : {128, 576, 256}) {
      const auto values = random_values(static_cast<std::size_t>(kRows * columns));
      packed_.push_back(
          pack_weight(values, kRows, columns, *parse_scheme("int8-g32"), ActKind::g32, "w"));
      writer.add_tensor("w" + std::to_string(columns), {kRows, columns}, packed_.back(), {});
    }
    writer.finish(Json::object());
  }
  static std::span<const std::byte> codes(const LeqReader& reader, std::size_t tensor) {
    return reader.bytes(reader.tensors()[tensor].planes.front());
  }

  test::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "m.leq";
  std::vector<PackedWeight> packed_;
};

TEST_F(NarrowFile, MemoryHoldsThePaddedTensorsOnce) {
  for (const LoadMode mode : {LoadMode::automatic, LoadMode::map, LoadMode::read}) {
    const LeqReader reader(path_, {.mode = mode});
    ASSERT_EQ(reader.tensors().size(), 3u);
    const auto few = static_cast<std::size_t>(2 * ::sysconf(_SC_PAGESIZE));  // shared with others
    EXPECT_LE(resident_bytes(codes(reader, 1)), few) << static_cast<int>(mode);
    const WeightView& padded = reader.tensors()[1].view;
    EXPECT_GE(resident_bytes({padded.codes, packed_[1].codes.size()}), packed_[1].codes.size());
    for (std::size_t i = 0; i < packed_.size(); ++i) {
      const WeightView& view = reader.tensors()[i].view;
      EXPECT_TRUE(same_bytes(view.codes, packed_[i].codes)) << i;
      EXPECT_TRUE(same_bytes(view.scales, packed_[i].scales)) << i;
      EXPECT_TRUE(same_bytes(view.sums, packed_[i].sums)) << i;
    }
    reader.verify([](std::uint64_t, std::uint64_t) {});
    EXPECT_EQ(reader.find("w576")->memory_bytes(),
              packed_[1].codes.size() + packed_[1].scales.size() + packed_[1].sums.size());
  }
}

TEST_F(NarrowFile, DamageIsFoundInEveryLoadMode) {
  std::uint64_t offset = 0;
  {
    const LeqReader reader(path_, {.mode = LoadMode::map, .weights = false});
    offset = reader.tensors()[1].planes.front().offset + 1000;
  }
  const int file = ::open(path_.c_str(), O_RDWR);
  std::uint8_t byte = 0;
  ASSERT_EQ(::pread(file, &byte, 1, static_cast<off_t>(offset)), 1);
  byte ^= 4;
  ASSERT_EQ(::pwrite(file, &byte, 1, static_cast<off_t>(offset)), 1);
  ::close(file);
  for (const LoadMode mode : {LoadMode::automatic, LoadMode::map, LoadMode::read}) {
    const LeqReader reader(path_, {.mode = mode});
    const std::string error =
        test::error_of([&] { reader.verify([](std::uint64_t, std::uint64_t) {}); });
    EXPECT_NE(error.find("tensor w576, plane codes at offset "), std::string::npos) << error;
  }
}

// The error's reason must be that of the call that failed, not of an earlier call.
TEST(LoadedFile, LockingBeyondTheLimitSaysSo) {
  if (*LEQ_SANITIZE != '\0') GTEST_SKIP() << "sanitizers lock nothing and say that they did";
  const std::vector<std::byte> bytes(1 << 20);
  const auto child = [&] {
    const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    if (::setrlimit(RLIMIT_MEMLOCK, &none) != 0) std::_Exit(2);
    if (::getuid() == 0 && ::setuid(65534) != 0) std::_Exit(2);
    std::fprintf(stderr, "%s\n", test::error_of([&] { lock_memory(bytes, "m"); }).c_str());
    std::_Exit(1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(1),
              "m: cannot lock 1048576 bytes in memory: "
              "(Cannot allocate memory|Operation not permitted)");
}

// Kilobytes that Linux holds in memory for this process.
std::int64_t locked() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmLck:")) return parse_int(trim(line.substr(6, line.size() - 8))).value();
  }
  return -1;
}

TEST(LoadedFile, IsLockedIfThatIsAsked) {
  if (*LEQ_SANITIZE != '\0') GTEST_SKIP() << "sanitizers lock nothing and say that they did";
  const test::TemporaryFolder folder;
  const std::string path = folder.write("file", std::string(32768, 'x'));
  const std::int64_t before = locked();
  for (const LoadMode mode : {LoadMode::map, LoadMode::read}) {
    for (const bool lock : {false, true}) {
      LoadedFile file(path);
      file.load({.mode = mode, .lock = lock}, std::vector<FileRange>{{0, 32768}});
      EXPECT_EQ(locked() > before, lock);
    }
    EXPECT_EQ(locked(), before);
  }
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
  writer.finish({{"file", "m\xff"}});  // a name that is no UTF-8 loses no finished work
  const LeqReader reader(folder.path() / "m.leq", {LoadMode::map, 0, false});
  EXPECT_EQ(reader.tensors().size(), 2u);
  EXPECT_EQ(reader.metadata().at("file"), "m\ufffd");
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

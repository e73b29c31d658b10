// Files of every storage type must always open and contain the numbers that they had when they were
// written: the files are never written again, and each records the XXH3 of its numbers.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "all_schemes.h"
#include "base/random.h"
#include "format/leq_reader.h"
#include "format/leq_writer.h"
#include "tensor/pack.h"

namespace leq {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kGoldenRows = 3, kGoldenColumns = 200;

fs::path types_folder() { return fs::path(LEQ_SOURCE_DIR) / "tests" / "golden" / "leq"; }

std::string hash_of_numbers(const WeightView& view) {
  std::vector<float> numbers(static_cast<std::size_t>(view.rows * view.columns));
  for (std::int64_t row = 0; row < view.rows; ++row) {
    unpack_row(view, row,
               std::span(numbers).subspan(static_cast<std::size_t>(row * view.columns),
                                          static_cast<std::size_t>(view.columns)));
  }
  return std::to_string(XXH3_64bits(numbers.data(), numbers.size() * sizeof(float)));
}

// Checks the files named types-* and returns the schemes that they contain.
std::set<std::string> check_files() {
  std::set<std::string> schemes;
  for (const auto& entry : fs::directory_iterator(types_folder())) {
    if (!entry.path().filename().string().starts_with("types-")) continue;
    SCOPED_TRACE(entry.path());
    const LeqReader reader(entry.path(), {LoadMode::map, 0, false});
    reader.verify([](std::uint64_t, std::uint64_t) {});
    for (const StoredTensor& tensor : reader.tensors()) {
      EXPECT_EQ(tensor.shape, (Shape{kGoldenRows, kGoldenColumns}));
      EXPECT_EQ(reader.metadata()["numbers"][tensor.name], hash_of_numbers(tensor.view))
          << tensor.name;
      schemes.insert(tensor.name);
    }
  }
  return schemes;
}

PackedWeight any_weight(const QuantScheme& scheme, Random& random) {
  if (scheme.kind != CodeKind::b1) {
    std::vector<float> values(kGoldenRows * kGoldenColumns);
    for (float& value : values) value = random.normal();
    return pack_weight(values, kGoldenRows, kGoldenColumns, scheme, ActKind::none, "w");
  }
  ChosenCodes chosen;  // only a method chooses these codes
  for (std::int64_t i = 0; i < kGoldenRows * kGoldenColumns; ++i) {
    chosen.codes.push_back(static_cast<std::int16_t>(random.below(4)));
  }
  const ChosenCounts counts = chosen_counts(scheme, kGoldenRows, kGoldenColumns);
  for (std::int64_t i = 0; i < counts.scales; ++i) {
    chosen.scales.push_back(static_cast<float>(random.below(64)) / 64);
  }
  for (std::int64_t i = 0; i < counts.zeros; ++i) {
    chosen.zeros.push_back(static_cast<std::uint8_t>(random.below(2)));
  }
  return pack_codes(chosen, kGoldenRows, kGoldenColumns, scheme, ActKind::none);
}

TEST(GoldenTypes, EveryTypeIsInAFileThatKeepsItsNumbers) {
  const std::set<std::string> schemes = check_files();
  for (const QuantScheme& scheme : test::all_schemes()) {
    EXPECT_TRUE(schemes.contains(scheme_name(scheme)))
        << scheme_name(scheme) << ": --gtest_filter=*WriteMissing --gtest_also_run_disabled_tests";
  }
}

// For a new type: writes the types that no file has into one more file.
TEST(GoldenTypes, DISABLED_WriteMissing) {
  const std::set<std::string> schemes = check_files();
  LeqWriter writer(types_folder() / ("types-" + std::to_string(schemes.size() + 1) + ".leq"));
  Random random(11);
  Json numbers = Json::object();
  for (const QuantScheme& scheme : test::all_schemes()) {
    const std::string name = scheme_name(scheme);
    if (schemes.contains(name)) continue;
    const PackedWeight packed = any_weight(scheme, random);
    writer.add_tensor(name, {kGoldenRows, kGoldenColumns}, packed, {});
    numbers[name] = hash_of_numbers(packed.view());
  }
  writer.finish({{"numbers", numbers}});
}

}  // namespace
}  // namespace leq

// The golden files of format version 1 must always open and contain their original values.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "format/golden_values.h"
#include "format/leq_reader.h"
#include "tensor/pack.h"

namespace leq {
namespace {

std::filesystem::path golden_folder() {
  return std::filesystem::path(LEQ_SOURCE_DIR) / "tests" / "golden" / "leq";
}

TEST(GoldenLeq, EveryFileOfVersion1OpensWithItsValues) {
  for (const test::GoldenFile& file : test::golden_files()) {
    SCOPED_TRACE(file.name);
    const LeqReader reader(golden_folder() / file.name, {LoadMode::map, 0, false});
    reader.verify([](std::uint64_t, std::uint64_t) {});
    ASSERT_EQ(reader.tensors().size(), file.tensors.size());
    for (std::size_t i = 0; i < file.tensors.size(); ++i) {
      const test::GoldenTensor& expected = file.tensors[i];
      const StoredTensor& tensor = reader.tensors()[i];
      SCOPED_TRACE(expected.name);
      EXPECT_EQ(tensor.name, expected.name);
      EXPECT_EQ(tensor.shape, expected.shape);
      EXPECT_EQ(scheme_name(tensor.view.scheme), expected.scheme);
      EXPECT_EQ(act_name(tensor.view.act), expected.act);
      std::vector<float> row(static_cast<std::size_t>(tensor.view.columns));
      for (std::int64_t r = 0; r < tensor.view.rows; ++r) {
        unpack_row(tensor.view, r, row);
        for (std::int64_t k = 0; k < tensor.view.columns; ++k) {
          ASSERT_EQ(row[static_cast<std::size_t>(k)], test::golden_value(expected, r, k))
              << r << ", " << k;
          if (!expected.scheme.starts_with("int")) continue;
          ASSERT_EQ(code_at(tensor.view, r, k), test::golden_code(expected, r, k));
          ASSERT_EQ(scale_at(tensor.view, r, k), test::golden_scale(expected, r, k));
        }
      }
    }
  }
}

TEST(GoldenLeq, MetadataAndBlobsAreThere) {
  for (const test::GoldenFile& file : test::golden_files()) {
    const LeqReader reader(golden_folder() / file.name, {LoadMode::map, 0, false});
    EXPECT_EQ(reader.metadata()["config"]["hidden_size"], 64);
    EXPECT_EQ(reader.metadata()["note"], "gr\u00fc\u00df dich");
    EXPECT_EQ(reader.blob("empty").value().size(), 0u);
    const auto blob = reader.blob("tokenizer/bytes").value();
    ASSERT_EQ(blob.size(), 200u);
    for (std::size_t i = 0; i < blob.size(); ++i) {
      ASSERT_EQ(std::to_integer<unsigned>(blob[i]), (i * 7 + 3) % 256);
    }
  }
}

// The reader's accessors do not return sums, so the test locates them itself.
TEST(GoldenLeq, SumsOfCodesAreThose) {
  const LeqReader reader(golden_folder() / "v1-int8.leq", {LoadMode::map, 0, false});
  const auto& tensors = test::golden_files()[1].tensors;
  const auto sum = [&](std::size_t tensor, std::int64_t row) {
    int total = 0;
    for (std::int64_t k = 0; k < tensors[tensor].shape[1]; ++k) {
      total += test::golden_code(tensors[tensor], row, k);
    }
    return total;
  };
  const auto* by_row = static_cast<const std::int32_t*>(reader.tensors()[0].view.sums);
  const auto* by_group = static_cast<const std::int16_t*>(reader.tensors()[1].view.sums);
  for (std::int64_t row = 0; row < 64; ++row) {
    EXPECT_EQ(by_row[row], row < 3 ? sum(0, row) : 0);
    EXPECT_EQ(by_group[row], row < 2 ? sum(1, row) : 0);
  }
  EXPECT_EQ(reader.tensors()[2].view.sums, nullptr);
}

}  // namespace
}  // namespace leq

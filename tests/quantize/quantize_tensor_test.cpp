// Tensors whose rows are packed in blocks by several threads must equal those packed at once.
#include "quantize/run/quantize_tensor.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace leq {
namespace {

TEST(QuantizeTensor, BlocksOfRowsAreTheWhole) {
  constexpr std::int64_t kRows = 700, kColumns = 200;
  Random random(3);
  std::vector<float> values(static_cast<std::size_t>(kRows * kColumns));
  for (float& value : values) value = random.normal();
  ThreadPool pool(2);
  for (const char* type : {"f16", "int8", "int4", "int3", "int2", "uint8", "int3-g64"}) {
    TensorPlan plan;
    plan.scheme = *parse_scheme(type);
    plan.act = plan.scheme.is_float() ? ActKind::none : ActKind::row;
    const PackedWeight want = pack_weight(values, kRows, kColumns, plan.scheme, plan.act, "w");
    const PackedWeight found =
        quantize_values(values, kRows, kColumns, plan, nullptr, "w", pool).weight;
    EXPECT_EQ(found.rows, kRows);
    EXPECT_EQ(found.codes == want.codes, true) << type;
    EXPECT_EQ(found.scales == want.scales, true) << type;
    EXPECT_EQ(found.zeros == want.zeros, true) << type;
    EXPECT_EQ(found.sums == want.sums, true) << type;
  }
}

}  // namespace
}  // namespace leq

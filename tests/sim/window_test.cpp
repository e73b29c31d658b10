// Layers with a sliding window on GPUs: pages of their windows are in frames, and with exact
// arithmetic all bits are those of the CPU with a cache that keeps all pages.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "case_names.h"
#include "gpu_devices.h"
#include "runtime/make_backend.h"
#include "window_run.h"

namespace leq {
namespace {

using test::WindowRun;

struct Case {
  const char* family;
  KvType type;
};
const Case kCases[] = {
    {"gpt-oss", KvType::f16}, {"gpt-oss", KvType::simq4}, {"gemma-4-shared", KvType::int8}};

class WindowsOnGpu : public testing::TestWithParam<std::tuple<std::string, Case>> {};

TEST_P(WindowsOnGpu, PagesBehindThemAreGivenUpAndNoBitChanges) {
  const auto& [device, one] = GetParam();
  const test::TemporaryFolder scratch;
  const Model model(
      test::quantized(test::with_long_context(one.family, false, scratch), "int8-g128"), {});
  const auto cpu = make_backend({.device = "cpu", .threads = 1});
  const auto gpu = make_backend({device, 1, {.memory_cap = 0, .arithmetic = Arithmetic::exact}});
  Session session(model, *gpu, WindowRun::limits_of(model, one.type));
  WindowRun run(model, session, *cpu);
  run.run(700, 40, 3);
  EXPECT_GT(run.reused, 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, WindowsOnGpu,
                         testing::Combine(testing::ValuesIn(test::gpu_devices()),
                                          testing::ValuesIn(kCases)),
                         [](const auto& item) {
                           const Case& one = std::get<1>(item.param);
                           return test::test_name(std::get<0>(item.param) + "-" + one.family + "-" +
                                                  std::string(kv_type_name(one.type)));
                         });

}  // namespace
}  // namespace leq

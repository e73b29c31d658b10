// Runs trained models on an emulated GPU of another architecture.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "cuda/emulated/emulated_device.h"
#include "cuda/sim/emulator.h"
#include "models_fixture.h"
#include "shared_data.h"
#include "sim/engine.h"

namespace leq {
namespace {

// wgmma adds the same numbers in the same order, so it must not change any bit.
TEST(EmulatedHopper, GivesTheLogitsOfOlderChips) {
  for (const char* model : {"gpt2-tiny", "qwen3-tiny"}) {
    LEQ_SHARED_OR_SKIP(folder, std::string("models/") + model);
    const Json golden = parse_json(read_file(folder / "golden.json", 1 << 24), "golden.json");
    auto ids = golden.at("prompts")[0].at("ids").get<std::vector<Token>>();
    for (std::size_t i = 0; ids.size() < 70; ++i) ids.push_back(ids[i]);
    const sim::rt::DeviceInfo usual = sim::rt::emulated_device();
    for (const char* type : {"int8", "int4-g128"}) {
      test::Engine engine("sim", test::quantized(folder, type), {KvType::f16, KvType::f16});
      const auto expected = engine.logits(ids, ids.size());
      const std::size_t kernels = simt::launch_counts().size();
      sim::rt::emulated_device().major = 9;
      sim::rt::emulated_device().shared_limit_bytes = std::size_t{227} << 10;
      const auto found = engine.logits(ids, ids.size());
      sim::rt::emulated_device() = usual;
      EXPECT_TRUE(found == expected) << model << " " << type;
      // The first model of each type launches kernels that no earlier model launched.
      if (model == std::string("gpt2-tiny")) {
        EXPECT_GT(simt::launch_counts().size(), kernels);
      }
    }
  }
}

}  // namespace
}  // namespace leq

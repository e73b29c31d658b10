// Tests selecting the GPU that a user names, and the message if no GPU can be used.
#include "cuda/host/device_list.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "errors.h"

namespace leq::LEQ_GPU {
namespace {

rt::DeviceInfo device(std::string name, std::string uuid) {
  return {std::move(name), 9, 0, 132, 232448, std::size_t{150'000'000'000}, 1.98e9,
          std::move(uuid)};
}
const std::vector<rt::DeviceInfo> kDevices = {
    device("NVIDIA H200", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"),
    device("NVIDIA H200", "GPU-8932a111-0000-4106-c12f-20bd9faed9f6"),
    device("NVIDIA L4", "GPU-c0ffee00-0000-4106-c12f-20bd9faed9f6")};

std::string error_of(std::string_view which) {
  return test::error_of([&] { choose_device(which, kDevices); });
}

TEST(DeviceList, ChoosesByNumberAndByTheStartOfAUuid) {
  EXPECT_EQ(choose_device("0", kDevices), 0);
  EXPECT_EQ(choose_device("2", kDevices), 2);
  EXPECT_EQ(choose_device("GPU-8932a", kDevices), 1);
  EXPECT_EQ(choose_device("gpu-C0FFEE00-0000-4106-c12f-20bd9faed9f6", kDevices), 2);
}

TEST(DeviceList, RefusesWhatNamesNoDeviceOrSeveral) {
  EXPECT_NE(error_of("3").find("cuda:0 to cuda:2"), std::string::npos) << error_of("3");
  EXPECT_NE(error_of("GPU-8932").find("cuda:0 and cuda:1"), std::string::npos);
  EXPECT_NE(error_of("GPU-dead").find("CUDA_VISIBLE_DEVICES"), std::string::npos);
}

TEST(DeviceList, ALineHasWhatOneChoosesBy) {
  EXPECT_EQ(
      device_line(1, kDevices[1], 149'000'000'000),
      "cuda:1  GPU-8932a111-0000-4106-c12f-20bd9faed9f6  NVIDIA H200, compute capability 9.0, "
      "150 GB, 149 GB free");
}

TEST(DeviceList, SaysWhyThereIsNoDevice) {
  const std::string none = explain_no_device({.driver_version = 0, .runtime_version = 13000});
  EXPECT_NE(none.find("no NVIDIA driver"), std::string::npos) << none;
  const std::string old = explain_no_device({.driver_version = 12020, .runtime_version = 13000});
  EXPECT_NE(old.find("CUDA up to 12.2"), std::string::npos) << old;
  EXPECT_NE(old.find("CUDA 13.0"), std::string::npos) << old;
  const std::string hidden = explain_no_device(
      {.driver_version = 13000, .runtime_version = 12080, .reason = "no device", .visible = "7"});
  EXPECT_NE(hidden.find("CUDA_VISIBLE_DEVICES is set to '7'"), std::string::npos) << hidden;
  // A driver of the same major version can run a newer runtime.
  const std::string other = explain_no_device(
      {.driver_version = 12020, .runtime_version = 12080, .reason = "out of memory"});
  EXPECT_EQ(other.find("too old"), std::string::npos) << other;
  EXPECT_NE(other.find("out of memory"), std::string::npos) << other;
}

TEST(DeviceList, CodeRunsOnItsOwnGenerationAndPtxOnLaterOnes) {
  constexpr std::string_view kImages = "80-real 89-real 90a-real 80-virtual";
  for (const auto& [major, minor] : {std::pair{8, 0}, {8, 6}, {8, 9}, {9, 0}}) {
    EXPECT_EQ(code_for(kImages, major, minor), CodeFor::machine) << major << "." << minor;
  }
  for (const auto& [major, minor] : {std::pair{10, 0}, {11, 0}, {12, 0}}) {
    EXPECT_EQ(code_for(kImages, major, minor), CodeFor::translation) << major << "." << minor;
  }
  EXPECT_EQ(code_for(kImages, 7, 5), CodeFor::nothing);
  EXPECT_EQ(code_for("86-real", 8, 9), CodeFor::machine);
  EXPECT_EQ(code_for("86-real", 8, 0), CodeFor::nothing);
  EXPECT_EQ(code_for("86-real", 9, 0), CodeFor::nothing);
  EXPECT_EQ(code_for("100-real 80-virtual", 10, 3), CodeFor::machine) << "10.3 runs code for 10.0";
  EXPECT_EQ(code_for("90a-real", 10, 0), CodeFor::nothing) << "a is of one generation alone";
  for (const char* images : {"90", "90-real 80-virtual", "native"}) {
    EXPECT_EQ(code_for(images, 9, 0), CodeFor::nothing) << images << ": not the kernels of 9.0";
  }
  EXPECT_EQ(code_for("80-real 90a", 9, 0), CodeFor::machine);
  EXPECT_EQ(code_for("90", 12, 0), CodeFor::translation) << "neither word is both";
  EXPECT_EQ(code_for("native", 12, 0), CodeFor::machine) << "CMake's word for what is here";
}

}  // namespace
}  // namespace leq::LEQ_GPU

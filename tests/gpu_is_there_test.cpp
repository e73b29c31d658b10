// Reports why tests with label gpu did not run: they are instantiated for each GPU, so that without
// a GPU there are none.
#include <gtest/gtest.h>

#include <string>

#include "runtime/make_backend.h"

namespace leq::test {
namespace {

TEST(CudaDevices, AreThereOrAReasonIs) {
  const std::string none = "cuda  no device: ";
  for (const std::string& line : list_devices()) {
    if (line.starts_with(none)) GTEST_SKIP() << "gpu: NOT RUN (" << line.substr(none.size()) << ")";
  }
}

}  // namespace
}  // namespace leq::test

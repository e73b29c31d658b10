// Compares leq's declarations of NCCL with NVIDIA's library, if installed or named by LEQ_NCCL.
#include "ranks/nccl_calls.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "errors.h"

namespace leq {
namespace {

TEST(NcclCalls, ALibraryThatIsNotThereIsOneLine) {
  test::expect_error([] { (void)find_nccl("libnccl-missing.so.2"); },
                     {"libnccl-missing.so.2", "LEQ_NCCL"}, ErrorKind::no_device);
}

TEST(NcclCalls, AnotherLibraryIsRefusedByTheNameThatItLacks) {
  test::expect_error([&] { (void)find_nccl("libc.so.6"); }, {"libc.so.6 has no ncclGetVersion"});
}

// Members of the library's struct are read by offset, so their offsets must match its header.
TEST(NcclCalls, ConfigurationLiesAsTheLibraryReadsIt) {
  EXPECT_EQ(offsetof(NcclConfig, magic), 8u);
  EXPECT_EQ(offsetof(NcclConfig, version), 12u);
  EXPECT_EQ(offsetof(NcclConfig, blocking), 16u);
  EXPECT_EQ(offsetof(NcclConfig, max_blocks), 28u);
  EXPECT_EQ(offsetof(NcclConfig, network), 32u);
  EXPECT_EQ(offsetof(NcclConfig, shares_split), 40u);
  EXPECT_EQ(sizeof(NcclConfig), 48u);
  EXPECT_EQ(sizeof(NcclId), 128u);
}

TEST(NcclCalls, TheLibraryHasThemAndItsResultsAreOurs) {
  const char* const named = std::getenv("LEQ_NCCL");
  NcclCalls calls;
  try {
    calls = find_nccl(named != nullptr ? named : "libnccl.so.2");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  int version = 0;
  ASSERT_EQ(calls.version(&version), kNcclSuccess);
  EXPECT_GE(version, 21800);
  EXPECT_STREQ(calls.result_text(kNcclSuccess), "no error");
  EXPECT_NE(std::string(calls.result_text(kNcclInProgress)).find("progress"), std::string::npos);
  NcclId first = {}, second = {};
  ASSERT_EQ(calls.make_id(&first), kNcclSuccess) << calls.last_error(nullptr);
  ASSERT_EQ(calls.make_id(&second), kNcclSuccess);
  EXPECT_NE(first.bytes, second.bytes);
}

}  // namespace
}  // namespace leq

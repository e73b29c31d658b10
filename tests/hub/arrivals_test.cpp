// Files that are read while another thread downloads them.
#include "hub/arrivals.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <future>

#include "base/error.h"
#include "errors.h"
#include "temporary_folder.h"

namespace leq {
namespace {

class ArrivingFile : public testing::Test {
 protected:
  ArrivingFile() { arrivals_.open("a", path_); }

  // Bytes [first, last) of the file.
  std::string read(std::uint64_t first, std::uint64_t last) {
    std::string text(last - first, '.');
    arrivals_.read("a", first, std::as_writable_bytes(std::span(text)));
    return text;
  }
  void append(const std::string& text) {
    std::ofstream(path_, std::ios::app) << text;
    have_ += text.size();
    arrivals_.set_bytes("a", have_);
  }

  test::TemporaryFolder folder_;
  std::filesystem::path path_ = [this] {
    std::ofstream(folder_.path() / "a.incomplete");
    return folder_.path() / "a.incomplete";
  }();
  std::uint64_t have_ = 0;
  const std::array<HubFile, 1> files_ = {HubFile{"a", 9}};
  Arrivals arrivals_{files_};
};

TEST_F(ArrivingFile, AReaderWaitsForItsBytesAlone) {
  append("012");
  EXPECT_EQ(read(1, 3), "12");
  auto later = std::async(std::launch::async, [&] { return read(2, 5); });
  append("3");
  EXPECT_EQ(later.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  append("45");
  EXPECT_EQ(later.get(), "234");
  auto end = std::async(std::launch::async, [&] { arrivals_.finish(); });
  append("678");
  EXPECT_EQ(end.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  std::filesystem::rename(path_, folder_.path() / "whole");
  arrivals_.set_verified("a");
  end.get();
  EXPECT_EQ(read(0, 9), "012345678");
  EXPECT_EQ(read(8, 9), "8");
  EXPECT_NE(test::error_of([&] { read(8, 10); }).find("a: ends at byte 9"), std::string::npos);
  EXPECT_EQ(arrivals_.bytes("a"), 9u);
  EXPECT_EQ(arrivals_.bytes("b"), std::nullopt);
}

TEST_F(ArrivingFile, ReadersLearnWhyADownloadFailed) {
  append("0123");
  auto later = std::async(std::launch::async, [&] { return read(2, 5); });
  arrivals_.set_failed(std::make_exception_ptr(Error("the hub is gone", ErrorKind::io)));
  EXPECT_EQ(test::error_of([&] { later.get(); }), "the hub is gone");
  EXPECT_EQ(test::error_of([&] { arrivals_.finish(); }), "the hub is gone");
  EXPECT_FALSE(arrivals_.restarted());
}

TEST_F(ArrivingFile, WhatWasReadIsWorthNothingAfterANewBeginning) {
  append("0123");
  arrivals_.set_bytes("a", 0);  // nothing was read
  EXPECT_FALSE(arrivals_.restarted());
  arrivals_.set_bytes("a", 4);
  EXPECT_EQ(read(0, 2), "01");
  arrivals_.set_bytes("a", 2);  // what was read is still there
  EXPECT_FALSE(arrivals_.restarted());
  auto later = std::async(std::launch::async, [&] { return read(2, 5); });
  arrivals_.set_bytes("a", 0);
  EXPECT_THROW(later.get(), Error);
  EXPECT_TRUE(arrivals_.restarted());
  arrivals_.set_bytes("a", 9);
  arrivals_.set_verified("a");
  EXPECT_THROW(arrivals_.finish(), Error);
}

TEST_F(ArrivingFile, ADownloadThatIsNotNeededEnds) {
  append("0");
  arrivals_.give_up();
  EXPECT_EQ(test::thrown([&] { append("1"); })->kind(), ErrorKind::interrupted);
}

}  // namespace
}  // namespace leq

// The hub's listing of a repository, as text that is not trusted.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "errors.h"
#include "hub/hub.h"

namespace leq {
namespace {

const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";
const std::string kListing =
    R"({"id":"a/b","sha":")" + kCommit +
    R"(","siblings":[)"
    R"({"rfilename":"config.json","size":12,"blobId":"x"},)"
    R"({"rfilename":"model.safetensors","size":134,"lfs":{"sha256":"ab","size":5000000000}},)"
    R"({"rfilename":"onnx/model.onnx"}]})";

HubRepository read(const std::string& text) { return read_listing("a/b", "main", text, "url"); }

TEST(HubListing, HasNamesSizesAndHashes) {
  const HubRepository repository = read(kListing);
  EXPECT_EQ(repository.commit, kCommit);
  ASSERT_EQ(repository.files.size(), 3u);
  EXPECT_EQ(repository.files[0].name, "config.json");
  EXPECT_EQ(repository.files[0].bytes, 12u);
  EXPECT_EQ(repository.files[0].sha256, "");
  EXPECT_EQ(repository.files[1].bytes, 5000000000u);
  EXPECT_EQ(repository.files[1].sha256, "ab");
  EXPECT_EQ(repository.files[2].name, "onnx/model.onnx");
}

// Sizes are added up.
TEST(HubListing, RefusesSizesAndNumbersOfFilesThatNoDiskHolds) {
  const auto listing = [](const std::string& files) {
    return R"({"sha":")" + kCommit + R"(","siblings":[)" + files + "]}";
  };
  EXPECT_EQ(read(listing(R"({"rfilename":"a","size":70368744177664})")).files[0].bytes, 1ull << 46);
  for (const char* file : {R"({"rfilename":"a","size":70368744177665})",
                           R"({"rfilename":"a","size":1,"lfs":{"size":18446744073709551615}})"}) {
    EXPECT_NE(test::error_of([&] { read(listing(file)); }).find("larger than any disk"),
              std::string::npos)
        << file;
  }
  std::string files = R"({"rfilename":"a"})";
  for (int i = 1; i < 65536; ++i) files += R"(,{"rfilename":"a"})";
  EXPECT_EQ(read(listing(files)).files.size(), 65536u);
  const std::string more = files + R"(,{"rfilename":"a"})";
  EXPECT_NE(test::error_of([&] { read(listing(more)); }).find("more than 65536"),
            std::string::npos);
}

TEST(HubListing, EveryTruncatedPrefixIsRefused) {
  for (std::size_t length = 0; length < kListing.size(); ++length) {
    EXPECT_NE(test::error_of([&] { read(kListing.substr(0, length)); }).find("url"),
              std::string::npos)
        << length;
  }
}

TEST(HubListing, RefusesPathsOutsideTheFolderAndOtherCommits) {
  for (const char* name :
       {"../x", "/etc/passwd", "a/../../x", "a//b", "", ".", "a/.", "a\\\\b", "a\\nb", "a/../b"}) {
    const std::string text =
        R"({"sha":")" + kCommit + R"(","siblings":[{"rfilename":")" + name + R"("}]})";
    EXPECT_NE(test::error_of([&] { read(text); }).find("unsafe file name"), std::string::npos)
        << name;
  }
  for (const std::string& sha :
       {kCommit.substr(1), std::string("../../../../../../../../../../../../../xxxx"),
        kCommit + "0", std::string()}) {
    EXPECT_NE(test::error_of([&] {
                read(R"({"sha":")" + sha + R"(","siblings":[]})");
              }).find("is no commit"),
              std::string::npos)
        << sha;
  }
}

}  // namespace
}  // namespace leq

// Mappings, limited reads, and files that appear complete or not at all.
#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/bytes.h"
#include "base/error.h"
#include "base/huge_pages.h"
#include "temporary_folder.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(MappedFile, ShowsTheBytesAndSurvivesAMove) {
  const test::TemporaryFolder folder;
  write_text(folder.path() / "a", "hello");
  MappedFile file(folder.path() / "a");
  MappedFile moved(std::move(file));
  EXPECT_EQ(as_text(moved.bytes()), "hello");
  EXPECT_EQ(moved.name(), (folder.path() / "a").string());
  write_text(folder.path() / "empty", "");
  EXPECT_TRUE(MappedFile(folder.path() / "empty").bytes().empty());
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(MappedFile(folder.path() / "absent"), Error);
  EXPECT_THROW(MappedFile(folder.path()), Error);
  EXPECT_THROW(MappedFile("/dev/null"), Error);
}

TEST(MappedFile, DroppedPartsReadTheSameAgain) {
  const test::TemporaryFolder folder;
  std::string text(300'000, 'x');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7);
  write_text(folder.path() / "a", text);
  const MappedFile file(folder.path() / "a");
  file.drop(file.bytes());
  file.drop(file.bytes().subspan(1, 10));  // less than a page
  file.drop(file.bytes().subspan(5000, 100'000));
  EXPECT_EQ(as_text(file.bytes()), text);
}

TEST(ReadFile, HoldsToItsLimit) {
  const test::TemporaryFolder folder;
  write_text(folder.path() / "a", "12345");
  EXPECT_EQ(read_file(folder.path() / "a", 5), "12345");
  try {
    read_file(folder.path() / "a", 4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("at most 4"), std::string::npos);
  }
  EXPECT_THROW(read_file(folder.path() / "b", 4), Error);
  EXPECT_THROW(read_file(folder.path(), 4), Error);
}

TEST(AtomicFile, AppearsOnlyAtCommit) {
  const test::TemporaryFolder folder;
  const auto target = folder.path() / "model.leq";
  {
    AtomicFile file(target);
    file.append(as_bytes("0123456789"));
    EXPECT_FALSE(fs::exists(target));
    file.overwrite(2, as_bytes("ab"));
    file.overwrite(8, as_bytes("yz"));
    EXPECT_THROW(file.overwrite(9, as_bytes("ab")), Error);
    EXPECT_THROW(file.overwrite(11, as_bytes("")), Error);
    EXPECT_EQ(file.size(), 10u);
    file.commit();
  }
  EXPECT_EQ(read_file(target, 100), "01ab4567yz");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"model.leq"});
  struct stat status = {};
  ASSERT_EQ(::stat(target.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0400u, 0400u);
}

TEST(AtomicFile, PiecesOfAnySizeArriveInOrder) {
  const test::TemporaryFolder folder;
  constexpr std::size_t kBlock = 2u << 20;  // what is written at a time
  std::string expected;
  AtomicFile file(folder.path() / "a");
  for (const std::size_t piece : {kBlock - 1, std::size_t{1}, kBlock, std::size_t{3}, 2 * kBlock,
                                  std::size_t{0}, kBlock + 5, std::size_t{7}}) {
    std::string text(piece, '\0');
    for (std::size_t i = 0; i < piece; ++i)
      text[i] = static_cast<char>((expected.size() + i) % 251);
    file.append(as_bytes(text));
    expected += text;
    if (piece == 3) {  // in the middle: over what is written and what is still pending
      file.overwrite(expected.size() - 5, as_bytes("abcde"));
      expected.replace(expected.size() - 5, 5, "abcde");
    }
    EXPECT_EQ(file.size(), expected.size());
  }
  file.commit();
  EXPECT_TRUE(read_file(folder.path() / "a", 16u << 20) == expected);
}

TEST(AtomicFile, LiesInHugePagesWhereTheSystemHasThem) {
  const test::TemporaryFolder folder;
  AtomicFile file(folder.path() / "a");
  const std::string piece(1'000'000, 'x');
  for (int i = 0; i < 9; ++i) file.append(as_bytes(piece));
  file.commit();
  const MappedFile mapped(folder.path() / "a");
  map_ahead(mapped.bytes().data(), mapped.bytes().size());
  const std::size_t huge = bytes_in_huge_pages(mapped.bytes().data());
  if (huge == 0) GTEST_SKIP() << "no huge pages in the page cache of this folder's file system";
  EXPECT_EQ(huge, 4 * kHugePageBytes);
  EXPECT_EQ(bytes_in_huge_pages(mapped.bytes().data() + 4096), 0u);  // no mapping begins there
}

TEST(AtomicFile, RefusesWhatIsNoPlaceForAFile) {
  const test::TemporaryFolder folder;
  const auto message = [](const fs::path& target) -> std::string {
    try {
      AtomicFile file(target);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string place = folder.path().string();
  EXPECT_EQ(message(folder.path()), place + ": is a folder, expected the name of a file to write");
  EXPECT_EQ(message(folder.path() / "no" / "a"),
            place + "/no/a: cannot write there: " + place + "/no is no folder; make it first");
  // A device would lose its place to the new file.
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(message(folder.path() / "pipe"),
            place + "/pipe: is a device or pipe, expected the name of a file to write");
}

TEST(AtomicFile, WithoutCommitNothingIsLeftAndAnOldFileStays) {
  const test::TemporaryFolder folder;
  const auto target = folder.path() / "model.leq";
  write_text(target, "old");
  {
    AtomicFile file(target);
    file.append(as_bytes("new"));
  }
  EXPECT_EQ(read_file(target, 100), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"model.leq"});
  AtomicFile file(target);
  file.append(as_bytes("new"));
  file.commit();
  EXPECT_EQ(read_file(target, 100), "new");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"model.leq"});
}

TEST(AtomicFile, RefusesFoldersAndPlacesThatAreNotThere) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(AtomicFile(folder.path()), Error);
  EXPECT_THROW(AtomicFile(folder.path() / "absent" / "model.leq"), Error);
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace leq

// Tests mappings, reads with a size limit, and files that are written atomically.
#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/huge_pages.h"
#include "base/mapping_watch.h"
#include "errors.h"
#include "temporary_folder.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// In a child process: drops root's additional rights, then prints the error of `body` and exits
// with status 1, or with 3 if there is no error.
[[noreturn]] void end_with_error_of(const std::function<void()>& body) {
  if (::getuid() == 0 && ::setuid(65534) != 0) std::_Exit(2);
  try {
    body();
    std::_Exit(3);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(1);
  }
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
  test::expect_error([&] { read_file(folder.path() / "a", 4); }, {"at most 4"});
  EXPECT_THROW(read_file(folder.path() / "b", 4), Error);
  EXPECT_THROW(read_file(folder.path(), 4), Error);
}

// Reading must fail instead of waiting for a writer to open the pipe, which might never happen.
TEST(ReadFile, RefusesAPipeAndATextMayBeOne) {
  const test::TemporaryFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& read : std::vector<std::function<void()>>{[&] { read_file(pipe, 100); },
                                                             [&] { MappedFile{pipe}; }}) {
    EXPECT_EQ(test::error_of([&] { read(); }),
              pipe.string() + ": expected a regular file, found a pipe");
  }
  const std::string text(200'000, 't');  // more than a pipe's buffer
  std::thread writer([&] { write_text(pipe, text); });
  EXPECT_TRUE(read_text_file(pipe, text.size()) == text);
  writer.join();
  EXPECT_THROW(read_text_file("/dev/zero", 1000), Error);
  EXPECT_EQ(read_text_file("/dev/null", 1000), "");
  EXPECT_THROW(read_text_file(folder.path(), 1000), Error);
  write_text(folder.path() / "a", "12345");
  EXPECT_EQ(read_text_file(folder.path() / "a", 5), "12345");
  EXPECT_THROW(read_text_file(folder.path() / "a", 4), Error);
}

TEST(MappedFile, AFileThatBecomesShorterEndsTheProgramInOneLine) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "model.leq";
  write_text(path, std::string(1 << 20, 'x'));
  const auto child = [&] {
    watch_mappings("leq-test");
    const MappedFile file(path);
    fs::resize_file(path, 4096);
    volatile std::byte last = file.bytes()[(1 << 20) - 1];
    static_cast<void>(last);
  };
  EXPECT_EXIT(
      child(), testing::ExitedWithCode(1),
      "^leq-test: error: .*model.leq: cannot read at offset 1048575: the file became shorter");
}

TEST(MappedFile, AFileThatBecomesShorterIsZerosWhereTheProgramGoesOn) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "model.leq";
  write_text(path, std::string(1 << 20, 'x'));
  const auto child = [&] {
    watch_mappings("leq-test", LostPages::read_zeros);
    const MappedFile file(path), other(path);
    const bool was_whole = file.is_whole();
    fs::resize_file(path, 4096);
    const bool is_zero = file.bytes()[(1 << 20) - 1] == std::byte{0};
    const bool good = was_whole && is_zero && !file.is_whole() && other.is_whole();
    std::_Exit(good && file.bytes()[0] == std::byte{0} ? 7 : 8);
  };
  EXPECT_EXIT(
      child(), testing::ExitedWithCode(7),
      "^leq-test: error: .*model.leq: cannot read at offset 1048575: the file became shorter"
      ", or its disk failed, while it was in use\n$");
}

TEST(NamelessFile, IsShownByItsFormerName) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("a model (1).gguf", "x");
  EXPECT_EQ(shown_name(path), path);
  const NamelessFile named{fs::path(path)};
  EXPECT_EQ(shown_name(named.path()), "a model (1).gguf");
  const NamelessFile in_memory({}, "bytes");
  EXPECT_EQ(shown_name(in_memory.path()), "bytes");
  EXPECT_EQ(shown_name("/proc/self/fd/99999"), "/proc/self/fd/99999");
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
  constexpr std::size_t kBlock = 2u << 20;  // size of the blocks in which files are written
  std::string expected;
  AtomicFile file(folder.path() / "a");
  for (const std::size_t piece : {kBlock - 1, std::size_t{1}, kBlock, std::size_t{3}, 2 * kBlock,
                                  std::size_t{0}, kBlock + 5, std::size_t{7}}) {
    std::string text(piece, '\0');
    for (std::size_t i = 0; i < piece; ++i)
      text[i] = static_cast<char>((expected.size() + i) % 251);
    file.append(as_bytes(text));
    expected += text;
    if (piece == 3) {  // halfway: overwrites both written and pending bytes
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
    return test::error_of([&] { AtomicFile file(target); });
  };
  const std::string place = folder.path().string();
  EXPECT_EQ(message(folder.path()), place + ": is a folder, expected the name of a file to write");
  EXPECT_EQ(message(folder.path() / "no" / "a"),
            place + "/no/a: cannot write there: " + place + "/no is no folder; make it first");
  // A new file must not replace a pipe or a device.
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(message(folder.path() / "pipe"),
            place + "/pipe: is a pipe, expected the name of a file to write");
  EXPECT_EQ(message("/dev/null"), "/dev/null: is a device, expected the name of a file to write");
  EXPECT_EQ(message(""), "the name of the file to write is empty");
  EXPECT_NE(message("-").find("not written to standard output"), std::string::npos);
  EXPECT_EQ(message(folder.path() / "a" / ""),
            place + "/a/: is the name of a folder, expected that of a file to write");
  EXPECT_NE(message(folder.path() / std::string(300, 'n')).find("File name too long"),
            std::string::npos);
}

// A rename would replace the link by the new file.
TEST(AtomicFile, RefusesLinksAndLeavesWhatTheyLeadTo) {
  const test::TemporaryFolder folder;
  write_text(folder.path() / "real", "old");
  fs::create_symlink("real", folder.path() / "link");
  fs::create_symlink("nowhere", folder.path() / "dangling");
  for (const char* name : {"link", "dangling"}) {
    test::expect_error([&] { AtomicFile file(folder.path() / name); }, {"is a link to "});
  }
  EXPECT_EQ(read_file(folder.path() / "real", 100), "old");
  // A link that is created while the file is being written must not be replaced either.
  AtomicFile file(folder.path() / "new");
  file.append(as_bytes("new"));
  fs::create_symlink("real", folder.path() / "new");
  EXPECT_THROW(file.commit(), Error);
  EXPECT_EQ(read_file(folder.path() / "real", 100), "old");
  EXPECT_TRUE(fs::is_symlink(folder.path() / "new"));
}

TEST(AtomicFile, RefusesAFolderThatLetsNobodyWrite) {
  const test::TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0555), 0);
  EXPECT_EXIT(end_with_error_of([&] { check_output(folder.path() / "model.leq"); }),
              testing::ExitedWithCode(1), "cannot write there: Permission denied");
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
}

TEST(RequireNoInput, KnowsAFileByAnyName) {
  const test::TemporaryFolder folder;
  const fs::path input = folder.path() / "model.safetensors";
  write_text(input, "weights");
  fs::create_hard_link(input, folder.path() / "hard");
  fs::create_symlink(input, folder.path() / "soft");
  write_text(folder.path() / "other", "weights");
  const std::vector<fs::path> inputs = {folder.path() / "absent", input};
  for (const char* name : {"model.safetensors", "hard", "soft", "./hard"}) {
    test::expect_error([&] { require_no_input(folder.path() / name, inputs); }, {": is read here"});
  }
  EXPECT_NO_THROW(require_no_input(folder.path() / "other", inputs));
  EXPECT_NO_THROW(require_no_input(folder.path() / "new", inputs));
}

// If another user's file in a folder like /tmp cannot be replaced, this is reported at the start.
TEST(AtomicFile, SaysWhyAFileCannotBeReplaced) {
  const test::TemporaryFolder folder;
  if (::getuid() != 0) GTEST_SKIP() << "needs two users, and so to be root";
  const fs::path sticky = folder.path() / "sticky";
  fs::create_directory(sticky);
  write_text(sticky / "a", "another's");
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(sticky.c_str(), 01777), 0);
  EXPECT_EXIT(end_with_error_of([&] { check_output(sticky / "a"); }), testing::ExitedWithCode(1),
              "a: belongs to another user, and in .*sticky only the owner can replace a file");
  EXPECT_EXIT(end_with_error_of([&] {
                check_output(sticky / "b");
                throw Error("a new name will do");
              }),
              testing::ExitedWithCode(1), "a new name will do");
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

// A replaced file keeps its mode, so that a private one stays private.
TEST(AtomicFile, KeepsWhoMayReadTheFileThatItReplaces) {
  const test::TemporaryFolder folder;
  const fs::path target = folder.path() / "chat.json";
  folder.write("chat.json", "old");
  fs::permissions(target, fs::perms::owner_read | fs::perms::owner_write);
  AtomicFile(target).commit();
  EXPECT_EQ(fs::status(target).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

// Returns the id of a process that has ended.
pid_t ended_process() {
  const pid_t child = ::fork();
  if (child == 0) std::_Exit(0);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  return child;
}

TEST(AtomicFile, RemovesWhatKilledProcessesLeft) {
  const test::TemporaryFolder folder;
  const std::string begin = "model.leq.tmp", dead = std::to_string(ended_process());
  for (const std::string& name : {begin + dead + "-7", begin + std::to_string(::getpid()) + "-0"}) {
    folder.write(name, "half a model");
  }
  // Files that must stay: of a living process, of another target, without both numbers.
  std::vector<std::string> others = {begin + dead,
                                     begin,
                                     begin + "x",
                                     begin + "-" + dead,
                                     begin + dead + "-notes",
                                     begin + dead + "-",
                                     begin + dead + "--1",
                                     begin + std::to_string(::getppid()) + "-1",
                                     begin + "0",
                                     begin + dead + "00000000000",
                                     "other.leq.tmp" + dead + "-7",
                                     "model.leq"};
  for (const std::string& name : others) folder.write(name, "stays");
  others.push_back(begin + std::to_string(ended_process()) + "-7");
  fs::create_directory(folder.path() / others.back());
  std::ranges::sort(others);
  AtomicFile file(folder.path() / "model.leq");
  EXPECT_EQ(folder.names(), others);
  file.commit();
  EXPECT_EQ(folder.names(), others);
}

// The writing process may be alive in another container or machine, where its id is valid.
TEST(AtomicFile, LeavesWhatALivingOneWrites) {
  const test::TemporaryFolder folder;
  const fs::path name = folder.path() / ("model.leq.tmp" + std::to_string(ended_process()) + "-0");
  {
    AtomicFile living(folder.path() / "model.leq");
    for (const auto& open : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // for the loop below
      const std::string file = fs::read_symlink(open.path(), gone).string();
      if (!file.starts_with(folder.path().string())) continue;
      ASSERT_EQ(::linkat(AT_FDCWD, open.path().c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW),
                0);
    }
    ASSERT_TRUE(fs::exists(name));
    AtomicFile(folder.path() / "model.leq").commit();
    EXPECT_TRUE(fs::exists(name));
  }
  AtomicFile(folder.path() / "model.leq").commit();
  EXPECT_EQ(folder.names(), std::vector<std::string>{"model.leq"});
}

// For example, a server may save one slot for several clients.
TEST(AtomicFile, ThreadsMayWriteTheSameName) {
  const test::TemporaryFolder folder;
  const fs::path target = folder.path() / "slot";
  const auto write = [&](int writer) {
    const std::vector<std::byte> bytes(1000, static_cast<std::byte>(writer));
    for (int i = 0; i < 200; ++i) {
      AtomicFile file(target);
      file.append(bytes);
      file.commit();
    }
  };
  std::atomic<int> failures = 0;
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&, writer] {
      try {
        write(writer);
      } catch (const Error&) {
        ++failures;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"slot"});
  const std::string text = read_file(target, 1 << 20);
  EXPECT_EQ(text, std::string(1000, text.at(0)));
}

TEST(AtomicFile, RefusesFoldersAndPlacesThatAreNotThere) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(AtomicFile(folder.path()), Error);
  EXPECT_THROW(AtomicFile(folder.path() / "absent" / "model.leq"), Error);
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace leq

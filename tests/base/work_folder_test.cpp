// Tests folders that only one program at a time may use.
#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "errors.h"
#include "temporary_folder.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

std::string error_of(const fs::path& path) {
  return test::error_of([&] { const WorkFolder folder(path); });
}

TEST(WorkFolder, IsThereWhileItIsUsedAndGoesWhereItIsEmpty) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "out.partial";
  {
    WorkFolder work(path);
    EXPECT_TRUE(fs::is_directory(path));
    std::ofstream(path / "b") << "b";
    std::ofstream(path / "a") << "a";
    fs::create_directory(path / "c");
    EXPECT_EQ(work.names(), (std::vector<std::string>{"a", "b", "c"}));
    const WorkFolder moved(std::move(work));
    EXPECT_EQ(moved.path(), path);
  }
  EXPECT_TRUE(fs::exists(path / "a"));  // its content is kept
  {
    const WorkFolder work(path);
    work.clear();
    EXPECT_TRUE(work.names().empty());
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(WorkFolder, ASecondUserIsToldWhoHasIt) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "out.partial";
  const WorkFolder work(path);
  const std::string message = error_of(path);
  EXPECT_TRUE(message.starts_with(path.string() + ": another run")) << message;
  EXPECT_NE(message.find("writes the same output"), std::string::npos) << message;
  // Another process is locked out, too, and a process's lock ends with it, however it ends.
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) std::_Exit(error_of(path).empty() ? 1 : 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(WorkFolder, ALockOfAProcessThatWasKilledIsFree) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "out.partial";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const WorkFolder work(path);
    std::ofstream(path / "block") << "x";
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(fs::exists(path / "block"));
  EXPECT_EQ(error_of(path), "");
}

TEST(WorkFolder, RefusesWhatIsNoFolder) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "x";
  fs::create_directory(folder.path() / "real");
  fs::create_symlink("real", folder.path() / "link");
  for (const char* name : {"file", "link"}) {
    EXPECT_NE(error_of(folder.path() / name).find("expected a folder or nothing of this name"),
              std::string::npos)
        << name;
  }
  EXPECT_NE(error_of(folder.path() / "no" / "folder").find("cannot make this folder"),
            std::string::npos);
}

}  // namespace
}  // namespace leq

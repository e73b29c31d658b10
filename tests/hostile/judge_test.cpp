// The judge of hostile cases must detect each fault of a program.
#include "hostile/judge.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace leq::hostile {
namespace {

namespace fs = std::filesystem;

class Judge : public testing::Test {
 protected:
  Judge() {
    fs::create_directories(work_);
    fs::create_directories(notes_);
    write_bytes(work_ / "input", "whole");
  }

  // Returns the judge's verdict on a shell script that replaces the tool.
  std::string rule(const std::string& script, Expectation expectation = {}) {
    Command command;
    command.words = {"/bin/sh", "-c", script};
    command.folder = work_;
    const FolderState before = state_of(work_);
    const Ended ended = run_child(command, {.seconds = 2}, notes_);
    return judge("tool", ended, changes(before, state_of(work_)), expectation).rule;
  }

  test::TemporaryFolder folder_;
  const fs::path work_ = folder_.path() / "work", notes_ = folder_.path() / "notes";
};

const std::string kRefuses = "echo 'tool: error: input: bad' >&2; exit 1";

TEST_F(Judge, AcceptsWhatKeepsTheRules) {
  EXPECT_EQ(rule("exit 0"), "");
  EXPECT_EQ(rule("echo note >&2"), "");
  EXPECT_EQ(rule(kRefuses, {.expect = Expect::refused, .names = {"input"}}), "");
  EXPECT_EQ(rule("echo working >&2; " + kRefuses, {.talk = Talk::before}), "");
  EXPECT_EQ(rule("echo x > out", {.outputs = {"out"}}), "");
  EXPECT_EQ(rule("echo 'tool: the reply is cut after 3 tokens' >&2; exit 2"), "");
}

TEST_F(Judge, SeesCrashesAndHangs) {
  EXPECT_EQ(rule("kill -SEGV $$"), "signal");
  EXPECT_EQ(rule("exec sleep 60"), "hang");
  EXPECT_EQ(rule("sleep 60 & wait"), "hang");
  EXPECT_EQ(rule("exit 134"), "status");
  EXPECT_EQ(rule("exit 2"), "status");
}

TEST_F(Judge, SeesErrorsOfTheWrongShape) {
  EXPECT_EQ(rule("exit 1"), "shape");
  EXPECT_EQ(rule("echo 'error: bad' >&2; exit 1"), "shape");
  EXPECT_EQ(rule("echo working >&2; " + kRefuses), "lines");
  EXPECT_EQ(rule("echo 'tool: error: a' >&2; " + kRefuses, {.talk = Talk::before}), "lines");
  EXPECT_EQ(rule(kRefuses, {.names = {"other"}}), "name");
  EXPECT_EQ(rule("echo 'tool: error: std::bad_alloc' >&2; exit 1"), "internal");
  EXPECT_EQ(rule("printf 'tool: error: \\033[31m\\n' >&2; exit 1"), "control");
}

TEST_F(Judge, SeesWhatShouldNotPass) {
  EXPECT_EQ(rule("exit 0", {.expect = Expect::refused}), "passed");
  EXPECT_EQ(rule(kRefuses, {.expect = Expect::accepted}), "refused");
}

TEST_F(Judge, SeesWhatIsLeftAndChanged) {
  EXPECT_EQ(rule("echo x > litter"), "litter");
  EXPECT_EQ(rule("mkdir out.partial; " + kRefuses, {.outputs = {"out.partial"}}), "litter");
  EXPECT_EQ(rule("echo x > input"), "changed");
  EXPECT_EQ(rule("rm input"), "changed");
}

TEST_F(Judge, TakesAllOfAFolderWhereThatIsSaid) {
  EXPECT_EQ(rule("mkdir kept; echo x > kept/a", {.outputs = {"kept", "kept/*"}}), "");
  EXPECT_EQ(rule("mkdir kept; echo x > kept.b", {.outputs = {"kept", "kept/*"}}), "litter");
}

TEST_F(Judge, SeesOtherAnswers) {
  const auto rule_of = [](const std::string& answer) {
    Ended ended;
    ended.status = 0;
    ended.answers = {answer};
    return judge("tool", ended, {}, {.answer = said_in(R"({"content": "the end"})")}).rule;
  };
  EXPECT_EQ(rule_of(R"({"content": "the end", "id": 3})"), "");
  EXPECT_EQ(rule_of(R"({"content": "the"})"), "answer");
  EXPECT_EQ(rule_of(R"({"error": {"message": "no"}})"), "answer");
  EXPECT_EQ(rule_of(""), "answer");
  EXPECT_EQ(rule_of("{"), "answer");
}

TEST_F(Judge, LimitsMemoryAndRights) {
  if (!modes_hold()) GTEST_SKIP() << "this process may read everything";
  fs::permissions(work_ / "input", fs::perms::none);
  EXPECT_EQ(rule("cat input 2>/dev/null && exit 0; " + kRefuses, {.expect = Expect::refused}), "");
  fs::permissions(work_ / "input", fs::perms::owner_all);
}

}  // namespace
}  // namespace leq::hostile

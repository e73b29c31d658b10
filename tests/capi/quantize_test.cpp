// Quantizes through the C API; a run is interrupted and resumed.
#include <gtest/gtest.h>

#include "base/file.h"
#include "capi/owned_handles.h"
#include "temporary_folder.h"

namespace leq::test {
namespace {

// Interrupts a run after the first block, then runs again with the same output path.
class CApiInterrupted : public testing::Test {
 protected:
  struct Run {
    leq_status status = LEQ_OK;
    std::string error, lines;
    int calls = 0;
  };
  // If `stops`, interrupts the run as soon as a file of finished work exists.
  Run quantize_folder(const char* method, bool restart, bool stops) {
    struct Seen {
      std::string mark, lines;
      int calls = 0;
    } seen;
    if (stops) seen.mark = path_ + ".partial/block-00000.leq";
    auto options = sized<leq_quantize_options>();
    options.method = method;
    options.samples = 8;
    options.length = 32;
    options.threads = 2;
    options.restart = restart ? 1 : 0;
    options.user = &seen;
    options.on_progress = [](void* user, const char*, std::int64_t, std::int64_t) -> std::int32_t {
      auto& now = *static_cast<Seen*>(user);
      ++now.calls;
      return !now.mark.empty() && std::filesystem::exists(now.mark) ? 1 : 0;
    };
    options.on_line = [](void* user, const char* line) {
      (static_cast<Seen*>(user)->lines += line) += '\n';
    };
    leq_error error = no_error();
    const std::string checkpoint = std::string(LEQ_SOURCE_DIR) + "/examples/storyteller";
    const leq_status status =
        leq_quantize(checkpoint.c_str(), path_.c_str(), &options, nullptr, &error);
    return {status, error.text, seen.lines, seen.calls};
  }
  // Returns the file's bytes and removes the file.
  std::string taken() {
    const std::string bytes = read_file(path_, 1 << 26);
    std::filesystem::remove(path_);
    return bytes;
  }
  Run whole(const char* method) {
    const Run run = quantize_folder(method, false, false);
    EXPECT_EQ(run.status, LEQ_OK) << run.error;
    return run;
  }
  void interrupt(const char* method) {
    const Run run = quantize_folder(method, false, true);
    EXPECT_EQ(run.status, LEQ_INTERRUPTED) << run.error;
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_TRUE(std::filesystem::exists(path_ + ".partial/block-00000.leq"));
  }

  const TemporaryFolder folder_;
  const std::string path_ = (folder_.path() / "made.leq").string();
};

TEST_F(CApiInterrupted, TheNextRunContinuesToTheSameBytes) {
  const Run fresh = whole("gptq");
  const std::string expected = taken();
  interrupt("gptq");
  const Run resumed = quantize_folder("gptq", false, false);
  ASSERT_EQ(resumed.status, LEQ_OK) << resumed.error;
  EXPECT_TRUE(taken() == expected);
  EXPECT_LT(resumed.calls, fresh.calls);  // the finished block is not recomputed
  EXPECT_FALSE(std::filesystem::exists(path_ + ".partial"));
}

TEST_F(CApiInterrupted, RestartBeginsAnew) {
  const Run fresh = whole("gptq");
  const std::string expected = taken();
  interrupt("gptq");
  const Run again = quantize_folder("gptq", true, false);
  ASSERT_EQ(again.status, LEQ_OK) << again.error;
  EXPECT_TRUE(taken() == expected);
  EXPECT_EQ(again.calls, fresh.calls);  // everything is recomputed
  EXPECT_NE(again.lines.find(".partial"), std::string::npos) << again.lines;
}

TEST_F(CApiInterrupted, OtherSettingsNeedRestart) {
  (void)whole("gptq+");
  const std::string expected = taken();
  interrupt("gptq");
  const Run refused = quantize_folder("gptq+", false, false);
  EXPECT_NE(refused.status, LEQ_OK);
  EXPECT_NE(refused.error.find(path_ + ".partial"), std::string::npos) << refused.error;
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::exists(path_ + ".partial/block-00000.leq"));  // still there
  const Run restarted = quantize_folder("gptq+", true, false);
  ASSERT_EQ(restarted.status, LEQ_OK) << restarted.error;
  EXPECT_TRUE(taken() == expected);
}

TEST(CApiQuantize, AnEmptyCalibrationTextIsRefused) {
  const TemporaryFolder folder;
  auto options = sized<leq_quantize_options>();
  options.method = "gptq";
  options.calibration = "";
  leq_error error = no_error();
  const std::string checkpoint = std::string(LEQ_SOURCE_DIR) + "/examples/storyteller";
  EXPECT_EQ(leq_quantize(checkpoint.c_str(), (folder.path() / "made.leq").c_str(), &options,
                         nullptr, &error),
            LEQ_BAD_INPUT);
  EXPECT_EQ(std::string(error.text), "calibration: the text is empty");
}

}  // namespace
}  // namespace leq::test

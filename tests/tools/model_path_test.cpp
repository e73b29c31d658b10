// Tests errors for invalid model paths, which suggest the next command to type.
#include "tools/common/model_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "errors.h"
#include "tools/tool_runner.h"

namespace leq::test {
namespace {

namespace fs = std::filesystem;

class ModelPath : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "Tiny-1B");
    folder_.write("Tiny-1B/config.json", "{}");
    folder_.write("Tiny-1B/model.safetensors", "x");
    fs::create_directories(folder_ / "empty");
    folder_.write("b.leq", "x");
    folder_.write("a.leq", "x");
    folder_.write("x.gguf", "x");
    fs::create_directories(folder_ / "it's here");
    folder_.write("it's here/config.json", "{}");
    before_ = fs::current_path();
    fs::current_path(folder_ / "");
  }
  void TearDown() override { fs::current_path(before_); }

  static std::string model(const std::string& path) {
    return told([&] { check_model_file("-m", path); });
  }
  static std::string checkpoint(const std::string& path) {
    return told([&] { check_checkpoint_folder(path); });
  }
  template <class Call>
  static std::string told(Call call) {
    return test::error_of([&] { call(); });
  }

  TemporaryFolder folder_;
  fs::path before_;
};

TEST_F(ModelPath, AFileIsLeftToItsReader) {
  EXPECT_EQ(model("a.leq"), "");
  EXPECT_EQ(checkpoint("Tiny-1B"), "");
  EXPECT_EQ(checkpoint("empty"), "");
}

TEST_F(ModelPath, ACheckpointIsQuantizedFirst) {
  const std::string want =
      "is a checkpoint folder, and a .leq file is what runs: `leq-quantize Tiny-1B -o Tiny-1B.leq` "
      "makes one";
  EXPECT_EQ(model("Tiny-1B"), "-m Tiny-1B: " + want);
  EXPECT_EQ(model("Tiny-1B/"), "-m Tiny-1B/: " + want);
  for (const std::string part : {"Tiny-1B/model.safetensors", "Tiny-1B/config.json"}) {
    EXPECT_EQ(model(part),
              "-m " + part +
                  ": is a part of a checkpoint: `leq run Tiny-1B` runs the folder, and "
                  "`leq-quantize Tiny-1B -o Tiny-1B.leq` makes a file of it");
  }
  EXPECT_TRUE(model("empty").starts_with("-m empty: is a folder without config.json; what runs "));
  EXPECT_NE(model(".").find("without config.json; . has a.leq, b.leq, x.gguf; what runs are "),
            std::string::npos)
      << model(".");
  EXPECT_EQ(model("x.gguf"),
            "-m x.gguf: has the name of a GGUF file and does not begin as one does");
}

TEST_F(ModelPath, WhatIsNoModelIsToldWhatRuns) {
  folder_.write("README.md", "# A text");
  const std::string want =
      "README.md: is no model; what runs are .leq and GGUF files, folders of safetensors with a "
      "config.json, and names of `leq ls` or the Hugging Face hub";
  EXPECT_EQ(model("README.md"), "-m " + want);
  const ToolRun run = run_program("leq-run", {"README.md"}, "");
  EXPECT_EQ(run.err, "leq-run: error: -m " + want + "\n");
}

TEST_F(ModelPath, CommandsCanBePastedIntoAShell) {
  EXPECT_NE(model("it's here").find("`leq-quantize 'it'\\''s here' -o 'it'\\''s here.leq'`"),
            std::string::npos)
      << model("it's here");
}

TEST_F(ModelPath, ANameOfTheHubIsDownloadedFirst) {
  EXPECT_EQ(model("Qwen/Qwen3-0.6B"),
            "-m Qwen/Qwen3-0.6B: no such file; the model of that name on the Hugging Face hub is "
            "downloaded and run by `leq run Qwen/Qwen3-0.6B`");
  EXPECT_TRUE(checkpoint("Qwen/Qwen3-0.6B").starts_with("Qwen/Qwen3-0.6B: no such file; the"));
  // An existing folder, a file's name and other paths are not treated as names on the hub.
  for (const char* path : {"Tiny-1B/other", "Qwen/x.leq", "./x", "/no/x", "a/b/c", "~/x"}) {
    EXPECT_EQ(model(path).find("Hugging Face hub"), std::string::npos) << path;
    EXPECT_NE(model(path).find("no such file or folder"), std::string::npos) << path;
  }
}

TEST_F(ModelPath, AWrongNameIsAnsweredWithTheFilesThatAreThere) {
  EXPECT_EQ(model("c.leq"), "-m c.leq: no such file or folder; . has a.leq, b.leq, x.gguf");
  folder_.write("c1.leq", "x");
  folder_.write("d.leq", "x");
  EXPECT_EQ(model("c.leq"), "-m c.leq: no such file or folder; . has a.leq, b.leq, c1.leq, ...");
  EXPECT_EQ(model("empty/c.leq"), "-m empty/c.leq: no such file or folder");
}

TEST_F(ModelPath, OneFileOfACheckpointIsNoCheckpoint) {
  EXPECT_EQ(checkpoint("Tiny-1B/model.safetensors"),
            "Tiny-1B/model.safetensors: is one file of a checkpoint, expected the folder: "
            "`leq-quantize Tiny-1B -o Tiny-1B.leq`");
  EXPECT_EQ(checkpoint("x.gguf"),
            "x.gguf: has the name of a GGUF file and does not begin as one does");
  folder_.write("y", "GGUF and more");  // recognized by its first bytes
  EXPECT_EQ(checkpoint("y"), "");
  EXPECT_EQ(model("y"),
            "-m y: is a GGUF file, and a .leq file is what is looked into: `leq-quantize y -o "
            "y.leq` makes one");
}

// A quantized model is detected by the file's first bytes, whatever its extension.
TEST_F(ModelPath, AModelIsQuantizedAlready) {
  const std::string magic = "\x89LEQ\r\n\x1a\n";
  for (const std::string name : {"model.leq", "model", "Tiny-1B/model.leq"}) {
    folder_.write(name, magic + "and more");
    EXPECT_EQ(checkpoint(name), name + ": is quantized already: `leq-run -m " + name +
                                    "` runs it; to quantize it differently, "
                                    "give its checkpoint folder");
  }
  folder_.write("none.leq", "");
  folder_.write("short.leq", magic.substr(0, 7));
  EXPECT_EQ(checkpoint("a.leq"),
            "a.leq: has the name of a .leq file and does not begin as one does; expected a "
            "checkpoint folder or a GGUF file");
  EXPECT_EQ(checkpoint("short.leq").find("is quantized already"), std::string::npos);
  EXPECT_EQ(
      checkpoint("none.leq"),
      "none.leq: has the name of a .leq file and is empty; expected a checkpoint folder or a GGUF "
      "file");
}

TEST_F(ModelPath, IsToldByEveryTool) {
  const std::string tiny = (folder_ / "Tiny-1B").string();
  const ToolRun refused = run_program("leq-bench", {"-m", tiny});
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("config.json: key \"model_type\" is missing"), std::string::npos)
      << refused.err;
  expect_tool_error(run_program("leq-run", {tiny + "/config.json"}), {"`leq run " + tiny + "`"});
  EXPECT_NE(run_program("leq-quantize", {tiny + "/model.safetensors", "-o", "y.leq"})
                .err.find("expected the folder"),
            std::string::npos);
}

}  // namespace
}  // namespace leq::test

// Paths given by users: outputs that are links, devices or the inputs themselves, pipes instead of
// files, two programs with the same output. Nothing may be destroyed or wait forever, and errors
// that can be detected early must be reported before the work begins.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "tools/process.h"
#include "tools/tool_runner.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

using test::Process;
using test::read_bytes;
using test::run_program;
using test::ToolRun;
using Words = std::vector<std::string>;

const std::string kStoryteller = std::string(LEQ_SOURCE_DIR) + "/examples/storyteller";

std::string tool(const std::string& name) { return std::string(LEQ_TOOLS_DIR) + "/" + name; }

class Paths : public testing::Test {
 protected:
  // Returns a copy of the storyteller, which a test may damage.
  std::string checkpoint() const {
    const fs::path copy = folder_ / "checkpoint";
    fs::create_directory(copy);
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors",
                             "tokenizer.json", "tokenizer_config.json"}) {
      fs::copy_file(kStoryteller + "/" + name, copy / name);
    }
    return copy.string();
  }
  std::string model() const {
    const std::string path = (folder_ / "model.leq").string();
    if (fs::exists(path)) return path;
    const ToolRun run =
        run_program("leq-quantize", {kStoryteller, "-o", path, "--type", "int8", "--no-gate"});
    EXPECT_EQ(run.status, 0) << run.err;
    return path;
  }
  std::string pipe() const {
    const std::string path = (folder_ / "pipe").string();
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    return path;
  }
  static void expect_one_line(const ToolRun& run, const std::string& part) {
    test::expect_tool_error(run, {part});
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_ / "")) {
      found.push_back(entry.path().filename().string());
    }
    std::ranges::sort(found);
    return found;
  }

  const test::TemporaryFolder folder_;
};

TEST_F(Paths, AnOutputIsNeverAnInput) {
  const std::string source = checkpoint();
  fs::create_hard_link(source + "/model.safetensors", folder_ / "hard.leq");
  const std::string text = folder_.write("text", read_bytes(kStoryteller + "/heldout.txt"));
  const std::string weights = read_bytes(source + "/model.safetensors");
  for (const std::string& output :
       {source + "/model.safetensors", source + "/config.json", source + "/tokenizer.json",
        (folder_ / "hard.leq").string(), text}) {
    expect_one_line(run_program("leq-quantize",
                                {source, "-o", output, "--method", "rtn", "--calibration", text}),
                    ": is read here");
  }
  expect_one_line(run_program("leq-quantize", {source, "-o", (folder_ / "a").string(), "--search",
                                               "--method", "rtn", "--target-bpw", "4",
                                               "--search-log", (folder_ / "a").string()}),
                  "would be written twice");
  EXPECT_TRUE(read_bytes(source + "/model.safetensors") == weights);
  // A .leq file of an earlier run may be replaced, even in the checkpoint's folder.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(
        run_program("leq-quantize", {source, "-o", source + "/model.leq", "--type", "f16"}).status,
        0);
  }
  const std::string leq = model();
  expect_one_line(
      run_program("leq-perplexity", {"-m", leq, "-f", text, "--kl-divergence-base", leq}),
      ": is read here");
  const test::Finished chat =
      test::run({tool("leq-run"), "-m", leq, "-cnv", "-n", "2", "--chat-template", "chatml"},
                "/save " + leq + "\n");
  EXPECT_EQ(chat.status, 1);
  EXPECT_NE(chat.err.find(": is read here"), std::string::npos) << chat.err;
  EXPECT_EQ(run_program("leq-inspect", {leq, "--verify"}).status, 0);
}

TEST_F(Paths, NamesThatAreNoUtf8LoseNoWork) {
  const std::string source = (folder_ / "checkpoint\xff").string();
  fs::rename(checkpoint(), source);
  const std::string all = read_bytes(kStoryteller + "/heldout.txt");
  const std::string text = folder_.write("text\xff", all.substr(0, 3000)),
                    heldout = folder_.write("heldout\xff", all.substr(3000, 3000));
  const std::string leq = (folder_ / "model\xff.leq").string();
  const ToolRun made = run_program(
      "leq-quantize", {source, "-o", leq, "--method", "gptq", "--calibration", text, "--samples",
                       "2", "--length", "32", "--gate", "--heldout", heldout});
  ASSERT_EQ(made.status, 0) << made.err;
  const std::string receipt = (folder_ / "r.json").string();
  const ToolRun reply =
      run_program("leq-run", {"-m", leq, "--raw", "-p", "Once", "-n", "4", "--receipt", receipt});
  EXPECT_EQ(reply.status, 0) << reply.err;
  EXPECT_EQ(parse_json(read_bytes(receipt), receipt).at("model"), "model\ufffd.leq");
  const ToolRun shown = run_program("leq-inspect", {leq, "--json"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  const Json provenance = parse_json(shown.out, "output").at("provenance");
  EXPECT_EQ(provenance.at("source"), "checkpoint\ufffd");
  EXPECT_EQ(provenance.at("calibration")[0].at("text"), "text\\xff");
}

TEST_F(Paths, AnOutputIsNoLinkAndNoDevice) {
  const std::string kept = folder_.write("kept", "kept");
  fs::create_symlink("kept", folder_ / "link.leq");
  const auto to = [&](const std::string& output) {
    return run_program("leq-quantize", {kStoryteller, "-o", output, "--type", "f16"});
  };
  expect_one_line(to((folder_ / "link.leq").string()), "is a link to kept");
  expect_one_line(to("/dev/null"), "is a device");
  expect_one_line(to("/dev/stdout"), "/dev/stdout: is a");
  expect_one_line(to(pipe()), "is a pipe");
  EXPECT_EQ(read_bytes(kept), "kept");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link.leq"));
}

TEST_F(Paths, ContradictionsAreReportedBeforeWorkBegins) {
  const std::string out = (folder_ / "out.leq").string();
  const std::string text =
      folder_.write("text", read_bytes(kStoryteller + "/heldout.txt").substr(0, 3000));
  const auto with = [&](Words flags) {
    flags.insert(flags.begin(), {kStoryteller, "-o", out, "--calibration", text, "--samples", "4"});
    return run_program("leq-quantize", flags);
  };
  const Words search = {"--search", "--method", "rtn", "--group", "64"};
  const auto with_search = [&](const Words& more) {
    Words flags = search;
    flags.insert(flags.end(), more.begin(), more.end());
    return with(flags);
  };
  const std::string note = folder_.write("note", "to self");
  const std::string few = folder_.write("few", "Once upon a time");
  expect_one_line(run_program("leq-quantize", {kStoryteller, "-o", ""}), "-o");
  expect_one_line(with_search({"--target-size", "1"}), "--target-size 1: ");
  expect_one_line(with_search({"--target-bpw", "2"}), "--target-bpw 2: ");
  expect_one_line(with_search({"--target-bpw", "4", "--search-log", note}), note + ": ");
  expect_one_line(with_search({"--target-bpw", "4", "--search-log", "/no/such/log"}),
                  "/no/such/log");
  expect_one_line(with({"--recipe", "q8", "--heldout", few}), "too few to judge by");
  expect_one_line(with({"--recipe", "q8", "--heldout", text}), "was used for calibration");
  EXPECT_EQ(names(), (Words{"few", "note", "text"}));
}

TEST_F(Paths, ASecondWriterOfAnOutputIsRefused) {
  const std::string text =
      folder_.write("text", read_bytes(kStoryteller + "/heldout.txt").substr(0, 3000));
  const std::string out = (folder_ / "out.leq").string();
  const auto words = [&](const std::string& bits) {
    return Words{kStoryteller,    "-o", out,        "--method", "gptq",   "--group", "64",
                 "--samples",     "8",  "--length", "64",       "--bits", bits,      "--no-gate",
                 "--calibration", text, "-t",       "1"};
  };
  Words first = words("4");
  first.insert(first.begin(), tool("leq-quantize"));
  Process process(first, Process::Input::pipe);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!fs::exists(out + ".partial/block-00000.leq") && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const ToolRun second = run_program("leq-quantize", words("3"));
  EXPECT_EQ(process.finish(), 0) << process.err;
  expect_one_line(second, "writes the same output");
  const ToolRun inspected = run_program("leq-inspect", {out, "--json"});
  ASSERT_EQ(inspected.status, 0) << inspected.err;
  const Json report = parse_json(inspected.out, "output");
  for (const Json& tensor : report.at("tensors")) {
    EXPECT_NE(tensor.at("scheme"), "int3-g64") << tensor.at("name");
  }
  EXPECT_EQ(names(), (Words{"out.leq", "text"}));
}

TEST_F(Paths, TheSameCommandGoesOnAndARestartSaysWhatItRemoves) {
  const std::string out = (folder_ / "out.leq").string();
  const Words words = {kStoryteller, "-o", out,        "--method", "gptq",      "--bits", "4",
                       "--samples",  "8",  "--length", "64",       "--no-gate", "-t",     "1"};
  Words command = words;
  command.insert(command.begin(), tool("leq-quantize"));
  Process process(command, Process::Input::pipe);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!fs::exists(out + ".partial/block-00000.leq") && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  process.signal(SIGKILL);
  process.finish();
  Words other = words;
  other[6] = "3";
  const ToolRun refused = run_program("leq-quantize", other);
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("or --restart to remove it"), std::string::npos) << refused.err;
  other.push_back("--restart");
  fs::copy(out + ".partial", out + ".kept", fs::copy_options::recursive);
  const ToolRun restarted = run_program("leq-quantize", other);
  EXPECT_EQ(restarted.status, 0) << restarted.err;
  EXPECT_NE(restarted.err.find("restarting  removed the partial results in "), std::string::npos)
      << restarted.err;
  fs::rename(out + ".kept", out + ".partial");
  const ToolRun again = run_program("leq-quantize", words);
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.err.find("blocks are done"), std::string::npos) << again.err;
}

TEST_F(Paths, AFullDiskLeavesWhatAResumedRunTakes) {
  const std::string out = (folder_ / "out.leq").string();
  const Words words = {kStoryteller, "-o", out,        "--method", "gptq",      "--bits", "4",
                       "--samples",  "8",  "--length", "64",       "--no-gate", "-t",     "1"};
  // The limit on the file size simulates a full disk: blocks fit, but not the model.
  std::string line = "ulimit -f 4000; exec " + tool("leq-quantize");
  for (const std::string& word : words) line += " '" + word + "'";
  const test::Finished run = test::run({"/bin/sh", "-c", line});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("File too large"), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("nothing is left"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("the same command goes on with it"), std::string::npos) << run.err;
  EXPECT_EQ(names(), Words{"out.leq.partial"});
  const ToolRun rest = run_program("leq-quantize", words);
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_NE(rest.err.find("blocks are done"), std::string::npos) << rest.err;
  EXPECT_EQ(names(), Words{"out.leq"});
}

TEST_F(Paths, APipeIsNoModel) {
  const std::string fifo = pipe();
  const std::string leq = model();
  expect_one_line(run_program("leq-run", {"-m", fifo, "-p", "x"}), "found a pipe");
  expect_one_line(run_program("leq-inspect", {fifo}), "found a pipe");
  expect_one_line(run_program("leq-bench", {"-m", fifo}), "found a pipe");
  expect_one_line(run_program("leq-inspect", {fifo, "--tokenize", "-"}), "found a pipe");
  const std::string source = checkpoint();
  for (const std::string name : {"model.safetensors", "tokenizer.json", "generation_config.json",
                                 "tokenizer_config.json", "config.json"}) {
    const fs::path file = fs::path(source) / name;
    fs::rename(file, folder_ / "moved");
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    expect_one_line(run_program("leq-quantize",
                                {source, "-o", (folder_ / "out.leq").string(), "--type", "f16"}),
                    name + ": expected a regular file, found a pipe");
    fs::remove(file);
    fs::rename(folder_ / "moved", file);
  }
}

TEST_F(Paths, ATextMayBeAPipe) {
  const std::string leq = model();
  const std::string fifo = pipe();
  const std::string text = read_bytes(kStoryteller + "/heldout.txt").substr(0, 2000);
  const std::string file = folder_.write("text", text);
  const auto both = [&](const std::string& program, const Words& words) {
    Words with_file = words, with_pipe = words;
    with_file.push_back(file);
    with_pipe.push_back(fifo);
    const ToolRun expected = run_program(program, with_file);
    std::thread writer([&] { std::ofstream(fifo) << text; });
    const ToolRun found = run_program(program, with_pipe);
    writer.join();
    EXPECT_EQ(found.status, 0) << found.err;
    return std::pair(expected.out, found.out);
  };
  const auto [ids, piped_ids] = both("leq-inspect", {leq, "--tokenize"});
  EXPECT_EQ(piped_ids, ids);
  const auto [reply, piped_reply] =
      both("leq-run", {"-m", leq, "--raw", "-n", "4", "--temp", "0", "-f"});
  EXPECT_EQ(piped_reply, reply);
  const test::Finished stdin_text = test::run(
      {tool("leq-run"), "-m", leq, "--raw", "-n", "4", "--temp", "0", "-f", "/dev/stdin"}, text);
  EXPECT_EQ(stdin_text.out, reply) << stdin_text.err;
}

TEST_F(Paths, AModelThatIsTruncatedWhileItRunsEndsTheRunInOneLine) {
  const std::string leq = model();
  Process process({tool("leq-run"), "-m", leq, "--mmap", "--raw", "-p", "Once", "-n", "900", "-c",
                   "1024", "--ignore-eos", "-t", "1"},
                  Process::Input::pipe);
  ASSERT_TRUE(process.wait_for_output(" ")) << process.err;
  fs::resize_file(leq, 4096);
  EXPECT_EQ(process.finish(), 1);
  EXPECT_NE(process.err.find("leq-run: error: " + leq + ": cannot read at offset"),
            std::string::npos)
      << process.err;
  EXPECT_NE(process.err.find("the file became shorter"), std::string::npos) << process.err;
}

TEST_F(Paths, ThreadsThatCannotStartAreAnErrorInOneLine) {
  // Each thread would need a stack of 1 GB, but only 400 MB are allowed.
  const test::Finished run =
      test::run({"/bin/sh", "-c",
                 "ulimit -s 1000000; ulimit -v 400000; exec " + tool("leq-run") + " -m " + model() +
                     " -p hi -n 1 -t 2"});
  if (std::string(LEQ_SANITIZE).empty()) {
    EXPECT_EQ(run.status, 1);
    EXPECT_NE(run.err.find("-t: expected 2, the system lets"), std::string::npos) << run.err;
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
  }
}

TEST_F(Paths, TextOfFilesGivesATerminalNoOrders) {
  const std::string saved = (folder_ / "chat.json").string();
  const auto chat = [&](const std::string& input) {
    return test::run({tool("leq-run"), "-m", model(), "-cnv", "-n", "2", "--chat-template",
                      "chatml", "-sys", "be \x1b]0;owned\x07"},
                     input);
  };
  ASSERT_EQ(chat("/save " + saved + "\n").status, 0);
  const std::string name = "\"model.leq\"";
  std::string text = read_bytes(saved);
  ASSERT_NE(text.find(name), std::string::npos) << text;
  text.replace(text.find(name), name.size(), "\"\\u001b[31mred\\u009b0m\"");
  folder_.write("chat.json", text);
  const test::Finished found = chat("/system\n/load " + saved + "\n/load " + saved + "\x1b[2J\n");
  EXPECT_EQ(found.status, 1);
  for (const char order : {'\x1b', '\x07', '\x9b'}) {
    EXPECT_EQ(found.err.find(order), std::string::npos) << found.err;
  }
  for (const char* part : {"system prompt: be \\x1b]0;owned\\x07",
                           "written with \\x1b[31mred\\xc2\\x9b0m", "chat.json\\x1b[2J"}) {
    EXPECT_NE(found.err.find(part), std::string::npos) << part << '\n' << found.err;
  }
}

}  // namespace
}  // namespace leq

// The chat loop of leq-run: reads messages and commands, prints replies.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generator.h"
#include "tools/run/line_reader.h"
#include "tools/run/output.h"
#include "tools/run/report.h"

namespace leq::run {

struct ChatLoopOptions {
  std::optional<std::string> first_message;
  bool single_turn = false;
  bool multi_line = false;
  bool verbose = false;
  std::filesystem::path model;
  std::string template_name;
};

class ChatLoop {
 public:
  // All references must outlive the loop.
  ChatLoop(ChatSession& session, Generator& generator, ReplyPrinter& printer, RunTotals& totals,
           const ChatLoopOptions& options);

  // Runs until /exit, the end of the input, or two Ctrl-C. On a terminal, the error of a turn is
  // printed and the conversation continues; from a pipe or with single_turn, the error is thrown.
  void run();

 private:
  struct Command;
  static const std::vector<Command>& commands();

  bool read_message(std::string& message);
  bool handle(const std::string& message);
  bool run_command(std::string_view line);
  [[noreturn]] static void fail_unknown(std::string_view name);
  void turn(const std::function<FinishedReply(const TextSink&, const std::atomic<bool>&)>& write);
  void say(const std::string& message);
  void print_greeting();

  void help(std::string_view);
  void reset(std::string_view);
  void system(std::string_view text);
  void regenerate(std::string_view);
  void set(std::string_view text);
  void save(std::string_view path);
  void load(std::string_view path);
  void leave(std::string_view);

  ChatSession& session_;
  Generator& generator_;
  ReplyPrinter& printer_;
  RunTotals& totals_;
  ChatLoopOptions options_;
  std::unique_ptr<LineReader> reader_;
  bool leaving_ = false;
  bool interrupted_once_ = false;
};

}  // namespace leq::run

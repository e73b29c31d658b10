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
  std::optional<std::string> system;  // wins over that of a saved chat
  bool single_turn = false;
  bool multi_line = false;
  bool verbose = false;
  bool colored = false;
  std::filesystem::path model;
  std::string model_line;
  std::string_view chat_template;
  std::string template_name;
  std::filesystem::path saved_as;  // read at the start, written after every turn; empty: not saved
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
  // Commands, the words of /set and of /show. The words of a row are separated by spaces.
  struct Command;
  static const std::vector<Command>& commands();
  static const std::vector<Command>& switches();
  static const std::vector<Command>& views();

  bool read_message(std::string& message);
  bool handle(const std::string& message);
  void run_command(std::string_view line);
  static const Command* find(const std::vector<Command>& commands, std::string_view word);
  static void print(const std::vector<Command>& commands, std::string_view before);
  [[noreturn]] static void fail_unknown(std::string_view name);
  void turn(const std::function<FinishedReply(const TextSink&, const std::atomic<bool>&)>& write);
  void say(const std::string& message);
  void print_greeting();

  void help(std::string_view);
  void reset(std::string_view);
  void system(std::string_view text);
  void regenerate(std::string_view);
  void set(std::string_view text);
  void set_parameter_of(std::string_view text);
  void set_format(std::string_view text);
  void show(std::string_view text);
  void show_model(std::string_view);
  void show_settings(std::string_view);
  void show_template(std::string_view);
  void show_messages(std::string_view);
  void show_chats(std::string_view);
  void attach(std::string_view path);
  void save(std::string_view path);
  void load(std::string_view path);
  void write_chat(const std::filesystem::path& path) const;
  void save_named();
  std::string read_chat(const std::filesystem::path& path, bool with_settings);
  template <bool on>
  void set_thinking(std::string_view);
  template <bool on>
  void set_verbose(std::string_view);
  template <bool on>
  void set_wrap(std::string_view);
  template <bool on>
  void set_history(std::string_view);
  void leave(std::string_view);

  ChatSession& session_;
  Generator& generator_;
  ReplyPrinter& printer_;
  RunTotals& totals_;
  ChatLoopOptions options_;
  std::unique_ptr<LineReader> reader_;
  bool leaving_ = false;
  bool interrupted_once_ = false;
  ChatState saved_;       // as in the file of options_.saved_as
  std::string attached_;  // put before the next message
};

}  // namespace leq::run

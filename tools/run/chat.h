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

// How a chat is shown, which commands change; it stays if the model is opened again.
struct ChatView {
  bool verbose = false;
  bool wrap = true;
  bool history = true;    // remembers the lines typed
  bool own_seed = false;  // the user chose it
};

struct ChatLoopOptions {
  std::optional<std::string> first_message;
  bool single_turn = false;
  bool plain = false;  // nothing is printed but the reply and warnings
  bool greets = true;
  bool multi_line = false;
  bool colored = false;
  bool fixed_context = false;  // /set num_ctx is refused
  std::filesystem::path model;
  std::string model_name;  // as it was given
  std::string model_line;
  std::string_view chat_template;
  std::string template_name;
  std::filesystem::path saved_as;  // written after every turn; empty: not saved
  ChatSettings settings;           // of which sampling is that of the generator
};

class ChatLoop {
 public:
  // All references must outlive the loop.
  ChatLoop(ChatSession& session, Generator& generator, ReplyPrinter& printer, RunTotals& totals,
           ChatView& view, const ChatLoopOptions& options);

  // Runs until /exit, the end of the input, or two Ctrl-C. On a terminal, the error of a turn is
  // printed and the conversation continues; from a pipe or with single_turn, the error is thrown.
  // Returns the chat if it must be reopened with another context, that of its settings.
  std::optional<ChatFile> run();

 private:
  // Commands, the words of /set and of /show. The words of a row are separated by spaces.
  struct Command;
  static const std::vector<Command>& commands();
  static const std::vector<Command>& switches();
  static const std::vector<Command>& views();

  ChatFile file() const;
  void apply(const ChatSettings& settings);

  bool read_message(std::string& message);
  bool handle(const std::string& message);
  void run_command(std::string_view line);
  static const Command* find(const std::vector<Command>& commands, std::string_view word);
  static void print(const std::vector<Command>& commands, std::string_view before);
  [[noreturn]] static void fail_unknown(std::string_view name);
  void turn(const std::function<FinishedReply(const TextSink&, const std::atomic<bool>&)>& write);
  void say(const std::string& message);
  void print_greeting();

  void help(std::string_view topic);
  void reset(std::string_view);
  void system(std::string_view text);
  void regenerate(std::string_view);
  void set(std::string_view text);
  void set_parameter_of(std::string_view text);
  void set_option(std::string_view name, std::string_view option, std::string_view value);
  void set_stop(std::string_view texts);
  void set_format(std::string_view text);
  void show(std::string_view text);
  void show_model(std::string_view);
  void show_settings(std::string_view);
  void show_modelfile(std::string_view);
  void show_license(std::string_view);
  void show_template(std::string_view);
  void show_messages(std::string_view);
  void show_chats(std::string_view);
  void attach(std::string_view path);
  void save(std::string_view path);
  void load(std::string_view path);
  void write_chat(const std::filesystem::path& path) const;
  void save_named();
  void list_models(std::string_view);
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
  ChatView& view_;
  ChatLoopOptions options_;
  std::unique_ptr<LineReader> reader_;
  bool leaving_ = false;
  bool interrupted_once_ = false;
  bool reopens_ = false;
  ChatFile saved_;        // as in the file of options_.saved_as
  std::string attached_;  // put before the next message
};

}  // namespace leq::run

#include "tools/run/chat.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "chat/conversation.h"
#include "grammar/grammar.h"
#include "sampling/settings.h"
#include "tools/common/interrupt.h"
#include "tools/common/options.h"
#include "tools/common/setting_flags.h"
#include "tools/run/history_file.h"
#include "tools/run/prompt.h"

namespace leq::run {
namespace {

// A word without a dot or slash is the name of a chat, anything else a file.
std::filesystem::path chat_path(std::string_view name) {
  return is_chat_name(name) ? named_chat_path(name) : std::filesystem::path(name);
}

// Line breaks stay, other characters that command a terminal do not.
std::string shown_text(std::string_view text) {
  std::string shown;
  for (const std::string_view line : split(text, "\n")) {
    shown += (shown.empty() ? "" : "\n") + printable(line, std::string::npos);
  }
  return shown;
}

}  // namespace

struct ChatLoop::Command {
  std::string_view words;
  std::string_view argument;  // shown by /help; empty: none may follow
  std::string_view help;
  void (ChatLoop::*run)(std::string_view argument);
};

const std::vector<ChatLoop::Command>& ChatLoop::commands() {
  static const std::vector<Command> kCommands = {
      {"/help /?", "", "show these lines", &ChatLoop::help},
      {"/clear /reset", "", "forget the conversation, keep the system prompt", &ChatLoop::reset},
      {"/system", "[TEXT]", "show the system prompt, or change it (\"\" for none)",
       &ChatLoop::system},
      {"/regen", "", "write the last reply again", &ChatLoop::regenerate},
      {"/set", "[NAME VALUE]", "show the settings, or change one: /set temp 0.5", &ChatLoop::set},
      {"/show", "[WHAT]", "show the model, or system, settings, template, messages, chats",
       &ChatLoop::show},
      {"/read", "FILE", "put a text file before the next message", &ChatLoop::attach},
      {"/save", "NAME|FILE", "save the conversation and its settings", &ChatLoop::save},
      {"/load", "NAME|FILE", "go on with a saved conversation", &ChatLoop::load},
      {"/bye /exit /quit", "", "leave; the end of the input (Ctrl-D) does the same",
       &ChatLoop::leave},
  };
  return kCommands;
}

const std::vector<ChatLoop::Command>& ChatLoop::switches() {
  static const std::vector<Command> kSwitches = {
      {"parameter", "NAME VALUE", "the same as /set NAME VALUE", &ChatLoop::set_parameter_of},
      {"system", "TEXT", "change the system prompt", &ChatLoop::system},
      {"format", "json", "replies are JSON objects", &ChatLoop::set_format},
      {"noformat", "", "replies are any text", &ChatLoop::set_format},
      {"think", "", "reasoning before the answer", &ChatLoop::set_thinking<true>},
      {"nothink", "", "no reasoning", &ChatLoop::set_thinking<false>},
      {"verbose", "", "counts and speeds after each reply", &ChatLoop::set_verbose<true>},
      {"quiet", "", "none of these", &ChatLoop::set_verbose<false>},
      {"wordwrap", "", "wrap words at the terminal's width", &ChatLoop::set_wrap<true>},
      {"nowordwrap", "", "do not wrap", &ChatLoop::set_wrap<false>},
      {"history", "", "remember the lines typed", &ChatLoop::set_history<true>},
      {"nohistory", "", "do not remember them", &ChatLoop::set_history<false>},
  };
  return kSwitches;
}

const std::vector<ChatLoop::Command>& ChatLoop::views() {
  static const std::vector<Command> kViews = {
      {"info model", "", "", &ChatLoop::show_model},
      {"system", "", "", &ChatLoop::system},
      {"settings parameters", "", "", &ChatLoop::show_settings},
      {"template", "", "", &ChatLoop::show_template},
      {"messages", "", "", &ChatLoop::show_messages},
      {"chats", "", "", &ChatLoop::show_chats},
  };
  return kViews;
}

const ChatLoop::Command* ChatLoop::find(const std::vector<Command>& commands,
                                        std::string_view word) {
  for (const Command& command : commands) {
    for (const std::string_view name : split(command.words, " ")) {
      if (name == word) return &command;
    }
  }
  return nullptr;
}

void ChatLoop::print(const std::vector<Command>& commands, std::string_view before) {
  constexpr std::size_t kColumn = 28;
  for (const Command& command : commands) {
    std::string left = "  " + std::string(before) + replace_all(command.words, " ", ", ") + " " +
                       std::string(command.argument);
    left.resize(std::max(left.size() + 1, kColumn), ' ');
    std::fprintf(stderr, "%s%s\n", left.c_str(), std::string(command.help).c_str());
  }
}

ChatLoop::ChatLoop(ChatSession& session, Generator& generator, ReplyPrinter& printer,
                   RunTotals& totals, const ChatLoopOptions& options)
    : session_(session),
      generator_(generator),
      printer_(printer),
      totals_(totals),
      options_(options),
      reader_(make_line_reader(options.colored)) {}

void ChatLoop::print_greeting() {
  if (!reader_->is_terminal()) return;
  note("type a message, or /help; Ctrl-C stops a reply, /bye leaves");
  if (options_.multi_line) note("a message goes on until a line ends with a backslash");
}

void ChatLoop::run() {
  if (file_exists(options_.saved_as)) {
    const std::string other = read_chat(options_.saved_as, false);
    if (options_.system) session_.set_system(*options_.system);
    saved_ = session_.state();
    note("the chat " + options_.saved_as.stem().string() + " goes on after " +
         std::to_string(saved_.messages.size()) + " messages" + other + "; /clear begins anew");
  }
  print_greeting();
  if (options_.first_message) {
    if (reader_->is_terminal()) {
      const std::string shown = "> " + *options_.first_message;
      std::fprintf(stderr, "%s\n",
                   options_.colored
                       ? (std::string(kTypedStyle) + shown + std::string(kColorsOff)).c_str()
                       : shown.c_str());
    }
    say(*options_.first_message);
    save_named();
    if (options_.single_turn) return;
  }
  std::string message;
  while (!leaving_ && read_message(message)) {
    if (handle(message) && options_.single_turn) return;
  }
}

// Reads one message, which may be several joined lines; returns false at the end of the input.
bool ChatLoop::read_message(std::string& message) {
  constexpr std::string_view kQuotes = "\"\"\"";
  bool quoted = false;
  message.clear();
  for (bool first = true;; first = false) {
    Line line = reader_->read(first ? "> " : "| ");
    if (line.end == LineEnd::interrupted) {
      // Ctrl-C discards the typed text; if nothing is typed, a second Ctrl-C leaves the chat.
      if (message.empty() && line.text.empty()) {
        if (interrupted_once_) return false;
        interrupted_once_ = true;
        tell("Ctrl-C again, Ctrl-D or /exit leaves");
      }
      message.clear();
      return true;
    }
    if (line.end == LineEnd::end_of_input) return !message.empty();
    interrupted_once_ = false;
    if (first && line.text.starts_with(kQuotes)) {
      quoted = true;
      line.text.erase(0, kQuotes.size());
    }
    if (quoted) {
      const bool ends = line.text.ends_with(kQuotes);
      if (ends) line.text.resize(line.text.size() - kQuotes.size());
      message += (first || message.empty() ? "" : "\n") + line.text;
      if (!ends) continue;
      if (message.starts_with('/')) message.insert(0, 1, ' ');  // no command
      return true;
    }
    const bool backslash = line.text.ends_with('\\');
    if (backslash) line.text.pop_back();
    const bool command = first && line.text.starts_with('/');
    message += (first ? "" : "\n") + line.text;
    if (command || backslash == options_.multi_line) return true;
  }
}

// Returns true if the message was a turn of the conversation.
bool ChatLoop::handle(const std::string& message) {
  if (trim(message).empty()) return false;
  try {
    const bool is_command = message.starts_with('/');
    if (is_command) {
      run_command(message);
    } else {
      check_utf8(message, "the message");
      say(message);
    }
    save_named();
    return !is_command;
  } catch (const Error& error) {
    printer_.end_line();
    // Messages from a pipe depend on the success of earlier ones, so the error ends the chat.
    if (options_.single_turn || !reader_->is_terminal()) throw;
    std::fprintf(stderr, "leq-run: error: %s\n",
                 printable(with_flags(error), std::string::npos).c_str());
    return false;
  }
}

void ChatLoop::fail_unknown(std::string_view name) {
  std::vector<std::string> known;
  for (const Command& command : commands()) {
    for (const std::string_view word : split(command.words, " ")) known.emplace_back(word);
  }
  const auto nearest = nearest_word(std::string(name), known);
  fail("unknown command ", printable(name), ": ", nearest ? "did you mean " + *nearest + "? " : "",
       "/help lists them; ", "a message may begin with a slash after a space");
}

void ChatLoop::run_command(std::string_view line) {
  const std::size_t space = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string_view name = line.substr(0, space);
  const Command* found = find(commands(), name);
  if (found == nullptr) fail_unknown(name);
  const std::string_view argument = trim(line.substr(space));
  require(!found->argument.empty() || argument.empty(), name, " takes no argument, found '",
          printable(argument), "'");
  (this->*found->run)(argument);
}

void ChatLoop::turn(
    const std::function<FinishedReply(const TextSink&, const std::atomic<bool>&)>& write) {
  const InterruptScope scope;
  bool begun = false;
  const FinishedReply reply = write(
      [&](std::string_view text) {
        // Models begin a reply with the space or the line break after their template.
        if (!begun) text.remove_prefix(std::min(text.find_first_not_of(" \n"), text.size()));
        begun = begun || !text.empty();
        printer_.reply(text);
      },
      scope.flag());
  printer_.finish();
  totals_.add(reply);
  if (reply.stopped == StopReason::context_full) {
    note("the context of " + with_commas(generator_.context()) +
         " positions is full: /clear begins a new conversation, a larger -c holds more");
  } else if (reply.stopped == StopReason::interrupted) {
    note("interrupted");
  } else if (reply.stopped == StopReason::token_limit) {
    note("the reply ends here: -n " + with_commas(std::ssize(reply.tokens)) + " tokens");
  }
  if (options_.verbose && !options_.single_turn) {
    RunTotals one;
    one.add(reply);
    note(one.line());
  }
}

void ChatLoop::say(const std::string& message) {
  const std::string text = attached_ + message;
  turn([&](const TextSink& on_text, const std::atomic<bool>& interrupted) {
    return session_.say(text, on_text, interrupted);
  });
  attached_.clear();
}

void ChatLoop::regenerate(std::string_view) {
  turn([&](const TextSink& on_text, const std::atomic<bool>& interrupted) {
    return session_.regenerate(on_text, interrupted);
  });
}

void ChatLoop::help(std::string_view) {
  print(commands(), "");
  print(switches(), "/set ");
  std::fprintf(stderr,
               "  \"\"\"                       begins and ends a message of several lines\n%s",
               options_.multi_line ? "  A line that ends with a backslash ends the message.\n"
                                   : "  A line that ends with a backslash goes on in the next.\n");
}

void ChatLoop::reset(std::string_view) {
  session_.reset();
  tell("a new conversation");
}

void ChatLoop::system(std::string_view text) {
  if (text.empty()) {
    const std::string_view now = session_.system();
    tell(now.empty() ? "no system prompt" : "system prompt: " + std::string(now));
    return;
  }
  check_utf8(text, "/system");
  session_.set_system(text == "\"\"" ? "" : text);
  tell(text == "\"\"" ? "no system prompt from now on" : "system prompt changed");
}

void ChatLoop::set(std::string_view text) {
  if (text.empty()) return show_settings({});
  const std::size_t space = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view rest = trim(text.substr(space));
  const Command* found = find(switches(), text.substr(0, space));
  if (found == nullptr) return set_parameter_of(text);
  require(found->argument.empty() == rest.empty(), "/set ", found->words, ": ",
          found->argument.empty() ? "takes no value" : "expected ", found->argument, ", found '",
          printable(rest), "'");
  (this->*found->run)(rest);
}

void ChatLoop::set_parameter_of(std::string_view text) {
  const std::size_t space = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view name = text.substr(0, space), value = trim(text.substr(space));
  SamplingSettings settings = generator_.sampling();
  if (name == "seed") {
    const auto seed = parse_int(value);
    require(seed && *seed >= 0, "/set seed: expected a whole number of at least 0, found '",
            printable(value), "'");
    settings.seed = static_cast<std::uint64_t>(*seed);
    generator_.set_sampling(settings);
    return tell("seed is " + std::to_string(*seed) + " from now on");
  }
  const SamplingParameter* parameter = find_parameter(name);
  require(parameter != nullptr, "/set: no setting is called ", printable(name),
          ": /set shows them; -c, at the start, is the context");
  const auto number = parse_double(value);
  require(number && (!parameter->is_whole() || parse_int(value)), "/set ", printable(name),
          ": expected ", parameter->range, ", found '", printable(value), "'");
  set_parameter(settings, *parameter, *number);
  settings.penalties_when_greedy |=
      parameter->role == ParameterRole::penalty;  // requested by the user
  generator_.set_sampling(settings);
  tell(parameter_word(*parameter) + " is " + number_text(*number) + " from now on");
}

void ChatLoop::set_format(std::string_view text) {
  require(text.empty() || text == "json", "/set format: expected json, found '", printable(text),
          "'");
  const auto grammar = text.empty()
                           ? nullptr
                           : Grammar::from_json_schema(R"({"type": "object"})", "/set format json");
  generator_.check_grammar(grammar);
  session_.options().grammar = grammar;
  tell(text.empty() ? "replies are any text from now on" : "replies are JSON from now on");
}

template <bool on>
void ChatLoop::set_thinking(std::string_view) {
  session_.options().rendering.enable_thinking = on;
  tell(on ? "reasoning before the answer, if the model's template knows it"
          : "no reasoning, if the model's template knows that");
}

template <bool on>
void ChatLoop::set_verbose(std::string_view) {
  options_.verbose = on;
}

template <bool on>
void ChatLoop::set_wrap(std::string_view) {
  printer_.set_wrap(on);
}

template <bool on>
void ChatLoop::set_history(std::string_view) {
  reader_->keep_history(on);
}

void ChatLoop::show(std::string_view text) {
  const Command* found = find(views(), text.empty() ? "info" : text);
  if (found == nullptr) {
    std::vector<std::string> known;
    for (const Command& view : views()) known.emplace_back(split(view.words, " ").front());
    fail("/show: expected one of ", join(known), ", found '", printable(text), "'");
  }
  (this->*found->run)({});
}

void ChatLoop::show_model(std::string_view) {
  const ChatState& state = session_.state();
  tell(options_.model_line);
  tell("context of " + with_commas(generator_.context()) + " tokens, template " +
       options_.template_name);
  tell(std::to_string(state.messages.size()) + " messages" +
       (state.left_out > 0 ? ", the first " + std::to_string(state.left_out) + " left out" : "") +
       (options_.saved_as.empty() ? "" : ", saved in " + options_.saved_as.string()));
}

void ChatLoop::show_settings(std::string_view) {
  const SamplingSettings& settings = generator_.sampling();
  std::vector<std::string> all;
  for (const SamplingParameter& parameter : kSamplingParameters) {
    all.push_back(parameter_word(parameter) + " " +
                  number_text(parameter_value(settings, parameter)));
  }
  tell(join(all) + ", seed " + std::to_string(settings.seed));
}

void ChatLoop::show_template(std::string_view) {
  std::fprintf(stderr, "%s\n", shown_text(options_.chat_template).c_str());
}

void ChatLoop::show_messages(std::string_view) {
  for (const ChatMessage& message : session_.state().messages) {
    std::fprintf(stderr, "%s: %s\n", message.role.c_str(),
                 shown_text(trim(message.content)).c_str());
  }
}

void ChatLoop::show_chats(std::string_view) {
  const std::vector<std::string> names = saved_chat_names();
  tell(names.empty() ? "no chat is saved by name" : join(names));
}

void ChatLoop::attach(std::string_view path) {
  require(!path.empty(), "/read: a file name must follow");
  attached_ += read_prompt_text(path) + "\n\n";
  tell("the next message begins with " + std::string(path));
}

void ChatLoop::write_chat(const std::filesystem::path& path) const {
  const std::filesystem::path folder = path.parent_path();
  std::error_code ignored;  // writing fails then
  if (folder == named_chat_folder()) std::filesystem::create_directories(folder, ignored);
  save_chat(path, {options_.model.filename().string(), options_.template_name, session_.state(),
                   generator_.sampling()});
}

void ChatLoop::save_named() {
  if (options_.saved_as.empty() || session_.state() == saved_) return;
  write_chat(options_.saved_as);
  saved_ = session_.state();
}

void ChatLoop::save(std::string_view name) {
  require(!name.empty(), "/save: a name or a file name must follow");
  const std::filesystem::path path = chat_path(name);
  require_no_input(path, std::array{options_.model});
  write_chat(path);
  tell("saved " + std::to_string(session_.state().messages.size()) + " messages to " +
       path.string());
}

// Returns the file's model, if it is another.
std::string ChatLoop::read_chat(const std::filesystem::path& path, bool with_settings) {
  ChatFile file = load_chat(path);
  const SamplingSettings before = generator_.sampling();
  if (with_settings) generator_.set_sampling(file.sampling);  // throws on ids that the model lacks
  try {
    session_.restore(std::move(file.chat));
  } catch (const Error&) {
    generator_.set_sampling(before);
    throw;
  }
  return file.model == options_.model.filename().string() ? ""
                                                          : " (written with " + file.model + ")";
}

void ChatLoop::load(std::string_view name) {
  require(!name.empty(), "/load: a name or a file name must follow");
  const std::filesystem::path path = chat_path(name);
  const std::string other = read_chat(path, true);
  tell("loaded " + std::to_string(session_.state().messages.size()) +
       " messages and their settings from " + path.string() + other);
}

void ChatLoop::leave(std::string_view) { leaving_ = true; }

}  // namespace leq::run

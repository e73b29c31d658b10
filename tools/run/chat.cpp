#include "tools/run/chat.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "chat/conversation.h"
#include "sampling/settings.h"
#include "tools/common/interrupt.h"
#include "tools/common/options.h"
#include "tools/common/setting_flags.h"
#include "tools/run/prompt.h"

namespace leq::run {

struct ChatLoop::Command {
  std::string_view name;
  std::string_view argument;  // shown by /help
  std::string_view help;
  void (ChatLoop::*run)(std::string_view argument);
};

const std::vector<ChatLoop::Command>& ChatLoop::commands() {
  static const std::vector<Command> kCommands = {
      {"/help", "", "show these lines", &ChatLoop::help},
      {"/reset", "", "forget the conversation, keep the system prompt", &ChatLoop::reset},
      {"/system", "[TEXT]", "show the system prompt, or change it (\"\" for none)",
       &ChatLoop::system},
      {"/regen", "", "write the last reply again", &ChatLoop::regenerate},
      {"/set", "[NAME VALUE]", "show the settings, or change one: /set temp 0.5", &ChatLoop::set},
      {"/save", "FILE", "save the conversation and its settings", &ChatLoop::save},
      {"/load", "FILE", "go on with a saved conversation", &ChatLoop::load},
      {"/exit", "", "leave; the end of the input (Ctrl-D) does the same", &ChatLoop::leave},
  };
  return kCommands;
}

ChatLoop::ChatLoop(ChatSession& session, Generator& generator, ReplyPrinter& printer,
                   RunTotals& totals, const ChatLoopOptions& options)
    : session_(session),
      generator_(generator),
      printer_(printer),
      totals_(totals),
      options_(options),
      reader_(make_line_reader()) {}

void ChatLoop::print_greeting() {
  if (!reader_->is_terminal()) return;
  note("type a message, or /help; Ctrl-C stops a reply, twice leaves");
  if (options_.multi_line) note("a message goes on until a line ends with a backslash");
}

void ChatLoop::run() {
  print_greeting();
  if (options_.first_message) {
    if (reader_->is_terminal()) std::fprintf(stderr, "> %s\n", options_.first_message->c_str());
    say(*options_.first_message);
    if (options_.single_turn) return;
  }
  std::string message;
  while (!leaving_ && read_message(message)) {
    if (handle(message) && options_.single_turn) return;
  }
}

// Reads one message, which may be several joined lines; returns false at the end of the input.
bool ChatLoop::read_message(std::string& message) {
  message.clear();
  for (bool first = true;; first = false) {
    Line line = reader_->read(first ? "> " : "| ");
    if (line.end == LineEnd::interrupted) {
      // Ctrl-C discards the typed text; if nothing is typed, a second Ctrl-C leaves the chat.
      if (message.empty() && line.text.empty()) {
        if (interrupted_once_) return false;
        interrupted_once_ = true;
        note("Ctrl-C again, Ctrl-D or /exit leaves");
      }
      message.clear();
      return true;
    }
    if (line.end == LineEnd::end_of_input) return !message.empty();
    interrupted_once_ = false;
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
    if (message.starts_with('/')) return run_command(message);
    check_utf8(message, "the message");
    say(message);
    return true;
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
  for (const Command& command : commands()) known.emplace_back(command.name);
  const auto nearest = nearest_word(std::string(name), known);
  fail("unknown command ", printable(name), ": ", nearest ? "did you mean " + *nearest + "? " : "",
       "/help lists them; ", "a message may begin with a slash after a space");
}

bool ChatLoop::run_command(std::string_view line) {
  const std::size_t space = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string_view name = line.substr(0, space);
  const auto found = std::ranges::find(commands(), name, &Command::name);
  if (found == commands().end()) fail_unknown(name);
  const std::string_view argument = trim(line.substr(space));
  require(!found->argument.empty() || argument.empty(), name, " takes no argument, found '",
          printable(argument), "'");
  (this->*found->run)(argument);
  return false;
}

void ChatLoop::turn(
    const std::function<FinishedReply(const TextSink&, const std::atomic<bool>&)>& write) {
  const InterruptScope scope;
  const FinishedReply reply =
      write([&](std::string_view text) { printer_.reply(text); }, scope.flag());
  printer_.finish();
  printer_.end_line();
  totals_.add(reply);
  if (reply.stopped == StopReason::context_full) {
    note("the context of " + with_commas(generator_.context()) +
         " positions is full: /reset begins a new conversation, a larger -c holds more");
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
  turn([&](const TextSink& on_text, const std::atomic<bool>& interrupted) {
    return session_.say(message, on_text, interrupted);
  });
}

void ChatLoop::regenerate(std::string_view) {
  turn([&](const TextSink& on_text, const std::atomic<bool>& interrupted) {
    return session_.regenerate(on_text, interrupted);
  });
}

void ChatLoop::help(std::string_view) {
  for (const Command& command : commands()) {
    std::string left = "  " + std::string(command.name) + " " + std::string(command.argument);
    left.resize(std::max<std::size_t>(left.size(), 22), ' ');
    std::fprintf(stderr, "%s%s\n", left.c_str(), std::string(command.help).c_str());
  }
  std::fprintf(stderr, "%s",
               options_.multi_line ? "  A line that ends with a backslash ends the message.\n"
                                   : "  A line that ends with a backslash goes on in the next.\n");
}

void ChatLoop::reset(std::string_view) {
  session_.reset();
  note("a new conversation");
}

void ChatLoop::system(std::string_view text) {
  if (text.empty()) {
    const std::string_view now = session_.system();
    note(now.empty() ? "no system prompt" : "system prompt: " + std::string(now));
    return;
  }
  check_utf8(text, "/system");
  session_.set_system(text == "\"\"" ? "" : text);
  note(text == "\"\"" ? "no system prompt from now on" : "system prompt changed");
}

void ChatLoop::set(std::string_view text) {
  SamplingSettings settings = generator_.sampling();
  if (text.empty()) {
    std::vector<std::string> all;
    for (const SamplingKnob& knob : kSamplingKnobs) {
      all.push_back(knob_word(knob) + " " + number_text(knob_value(settings, knob)));
    }
    note(join(all) + ", seed " + std::to_string(settings.seed));
    return;
  }
  const std::size_t space = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view name = text.substr(0, space), value = trim(text.substr(space));
  const SamplingKnob* knob = find_knob(name);
  require(knob != nullptr, "/set: no setting is called ", printable(name), ": /set shows them");
  const auto number = parse_double(value);
  require(number && (!knob->is_whole() || parse_int(value)), "/set ", printable(name),
          ": expected ", knob->range, ", found '", printable(value), "'");
  set_knob(settings, *knob, *number);
  settings.penalties_when_greedy |= knob->role == KnobRole::penalty;  // requested by the user
  generator_.set_sampling(settings);
  note(knob_word(*knob) + " is " + number_text(*number) + " from now on");
}

void ChatLoop::save(std::string_view path) {
  require(!path.empty(), "/save: a file name must follow");
  require_no_input(path, std::array{options_.model});
  save_chat(path, {options_.model.filename().string(), options_.template_name, session_.state(),
                   generator_.sampling()});
  note("saved " + std::to_string(session_.state().messages.size()) + " messages to " +
       std::string(path));
}

void ChatLoop::load(std::string_view path) {
  require(!path.empty(), "/load: a file name must follow");
  ChatFile file = load_chat(path);
  const std::size_t count = file.chat.messages.size();
  const SamplingSettings before = generator_.sampling();
  generator_.set_sampling(file.sampling);  // throws on biases for ids that the model lacks
  try {
    session_.restore(std::move(file.chat));
  } catch (const Error&) {
    generator_.set_sampling(before);
    throw;
  }
  note("loaded " + std::to_string(count) + " messages and their settings from " +
       std::string(path) +
       (file.model == options_.model.filename().string() ? ""
                                                         : " (written with " + file.model + ")"));
}

void ChatLoop::leave(std::string_view) { leaving_ = true; }

}  // namespace leq::run

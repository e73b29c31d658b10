#include "tools/run/chat.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "chat/conversation.h"
#include "sampling/settings.h"
#include "tools/common/interrupt.h"
#include "tools/common/model_name.h"
#include "tools/common/modelfile.h"
#include "tools/common/options.h"
#include "tools/common/setting_flags.h"
#include "tools/common/typed_text.h"
#include "tools/run/history_file.h"
#include "tools/run/options.h"
#include "tools/run/prompt.h"

namespace leq::run {
namespace {

// A word without a dot or slash is the name of a chat, anything else a file.
std::filesystem::path chat_path(std::string_view name) {
  return is_chat_name(name) ? named_chat_path(name) : std::filesystem::path(name);
}

constexpr std::string_view kQuotes = "\"\"\"";

// Words, of which those in quotation marks may have spaces; empty ones are left out.
std::vector<std::string> quoted_words(std::string_view text) {
  std::vector<std::string> words;
  while (!(text = trim(text)).empty()) {
    const bool quoted = text.front() == '"';
    if (quoted) text.remove_prefix(1);
    const std::size_t end =
        std::min(quoted ? text.find('"') : text.find_first_of(" \t"), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
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
      {"/help /?", "[WHAT]", "show these lines, or set, show, shortcuts", &ChatLoop::help},
      {"/clear /reset", "", "forget the conversation, keep the system prompt", &ChatLoop::reset},
      {"/system", "[TEXT]", "show the system prompt, or change it (\"\" for none)",
       &ChatLoop::system},
      {"/regen", "", "write the last reply again", &ChatLoop::regenerate},
      {"/set", "[NAME VALUE]", "show the settings, or change one: /set temp 0.5", &ChatLoop::set},
      {"/show", "[WHAT]", "show the model; /help show lists what else", &ChatLoop::show},
      {"/list", "", "show the names of the models that are here", &ChatLoop::list_models},
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
      {"parameter", "NAME VALUE", "the same as /set NAME VALUE, also num_ctx, num_predict, stop",
       &ChatLoop::set_parameter_of},
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
      {"info model", "", "the model, its context and the conversation", &ChatLoop::show_model},
      {"system", "", "the system prompt", &ChatLoop::system},
      {"settings parameters", "", "sampling, length, stop texts, context",
       &ChatLoop::show_settings},
      {"template", "", "the model's chat template", &ChatLoop::show_template},
      {"modelfile", "", "model, system prompt and settings for `leq create`",
       &ChatLoop::show_modelfile},
      {"license", "", "where the licence is", &ChatLoop::show_license},
      {"messages", "", "the conversation", &ChatLoop::show_messages},
      {"chats", "", "the names of saved chats", &ChatLoop::show_chats},
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
                   RunTotals& totals, ChatView& view, const ChatLoopOptions& options)
    : session_(session),
      generator_(generator),
      printer_(printer),
      totals_(totals),
      view_(view),
      options_(options),
      reader_(make_line_reader(options.colored)) {
  printer_.set_wrap(view_.wrap);
  reader_->keep_history(view_.history);
  if (options_.greets) saved_ = file();
}

ChatFile ChatLoop::file() const {
  ChatSettings settings = options_.settings;
  settings.sampling = generator_.sampling();
  return {options_.model.filename().string(), options_.template_name, session_.state(), settings};
}

// Takes settings but the sampling ones. The user's stop texts stand before those of the template.
void ChatLoop::apply(const ChatSettings& settings) {
  const std::int64_t context = options_.settings.context;
  StopRules& stop = session_.options().stop;
  stop.strings.erase(
      stop.strings.begin(),
      stop.strings.begin() + static_cast<std::ptrdiff_t>(options_.settings.stop.size()));
  stop.strings.insert(stop.strings.begin(), settings.stop.begin(), settings.stop.end());
  stop.max_tokens = settings.max_tokens;
  session_.options().rendering.enable_thinking = settings.thinking;
  if (settings.json != options_.settings.json) {
    session_.options().grammar = settings.json ? json_grammar() : nullptr;
  }
  options_.settings = settings;
  if (settings.context == context) return;
  if (options_.fixed_context) {
    options_.settings.context = context;
  } else {
    reopens_ = leaving_ = true;
  }
}

void ChatLoop::print_greeting() {
  const bool asks = options_.single_turn && options_.first_message;
  if (!reader_->is_terminal() || asks || !options_.greets) return;
  note("type a message, or /help; Ctrl-C stops a reply, /bye leaves");
  if (options_.multi_line) note("a message goes on until a line ends with a backslash");
}

std::optional<ChatFile> ChatLoop::run() {
  save_named();
  print_greeting();
  if (options_.first_message) {
    if (reader_->is_terminal() && !options_.single_turn) {
      const std::string shown = "> " + shown_text(*options_.first_message);
      std::fprintf(stderr, "%s\n",
                   options_.colored
                       ? (std::string(kTypedStyle) + shown + std::string(kColorsOff)).c_str()
                       : shown.c_str());
    }
    say(*options_.first_message);
    save_named();
    if (options_.single_turn) return std::nullopt;
  }
  std::string message;
  while (!leaving_ && read_message(message)) {
    if (handle(message) && options_.single_turn) return std::nullopt;
  }
  return reopens_ ? std::optional(file()) : std::nullopt;
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
        tell("Ctrl-C again, Ctrl-D or /exit leaves");
      }
      message.clear();
      return true;
    }
    if (line.end == LineEnd::end_of_input) return !message.empty();
    interrupted_once_ = false;
    // A text of several lines, also that of a command: /set system """.
    const bool opens = line.text.starts_with(kQuotes) || line.text.starts_with('/');
    if (const std::size_t open = line.text.find(kQuotes);
        first && opens && open != std::string::npos) {
      message = line.text.substr(0, open);
      std::string text = line.text.substr(open + kQuotes.size());
      Line next;
      while (!text.ends_with(kQuotes) && next.end == LineEnd::line) {
        next = reader_->read("| ");
        text += (text.empty() ? "" : "\n") + next.text;
        check_prompt_size(text.size());
      }
      if (next.end == LineEnd::interrupted) text = message = "";
      if (text.ends_with(kQuotes)) text.resize(text.size() - kQuotes.size());
      if (message.empty() && text.starts_with('/')) message = ' ';  // no command
      message += text;
      return true;
    }
    const bool backslash = line.text.ends_with('\\');
    if (backslash) line.text.pop_back();
    const bool command = first && line.text.starts_with('/');
    message += (first ? "" : "\n") + line.text;
    check_prompt_size(message.size());
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
    note("the context of " + with_commas(generator_.context()) + " positions is full" +
         (options_.single_turn ? "" : ": /clear begins a new conversation") +
         context_advice(generator_));
  } else if (reply.stopped == StopReason::interrupted) {
    note("interrupted");
  } else if (reply.stopped == StopReason::token_limit && !options_.plain) {
    note("the reply ends here: -n " + with_commas(std::ssize(reply.tokens)) + " tokens");
  }
  if (view_.verbose && !options_.single_turn) {
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

void ChatLoop::help(std::string_view topic) {
  if (topic.starts_with('/')) topic.remove_prefix(1);
  if (topic == "set") return print(switches(), "/set ");
  if (topic == "show") return print(views(), "/show ");
  if (topic == "shortcuts") {
    std::fprintf(stderr,
                 "  Ctrl-A, Ctrl-E            go to the beginning or the end of the line\n"
                 "  Alt-B, Alt-F              go a word back or forward\n"
                 "  Ctrl-K, Ctrl-U, Ctrl-W    cut to the end, the whole line, the word before\n"
                 "  Ctrl-L                    clear the screen\n"
                 "  Ctrl-C                    stop a reply, or clear the line\n"
                 "  Ctrl-D                    leave\n");
    return;
  }
  require(topic.empty(), "/help: expected set, show or shortcuts, found '", printable(topic), "'");
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
    if (now.empty()) return tell("no system prompt");
    std::fprintf(stderr, "system prompt: %s\n", shown_text(now).c_str());
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
  if (text == "parameter") return show_settings({});
  if (text == "system") return system({});
  require(found->argument.empty() == rest.empty(), "/set ", found->words, ": ",
          found->argument.empty() ? "takes no value" : "expected ", found->argument, ", found '",
          printable(rest), "'");
  (this->*found->run)(rest);
}

void ChatLoop::set_parameter_of(std::string_view text) {
  const std::size_t space = std::min(text.find_first_of(" \t\n"), text.size());
  const std::string_view name = text.substr(0, space), value = trim(text.substr(space));
  const SamplingParameter* parameter = nullptr;
  try {
    const std::string option = option_of_parameter(name);
    parameter = find_parameter(option);
    if (parameter == nullptr) return set_option(name, option, value);
  } catch (const Error& error) {
    fail("/set: ", error.what());
  }
  SamplingSettings settings = generator_.sampling();
  const auto number = parse_double(value);
  require(number && (!parameter->is_whole() || parse_int(value)), "/set ", printable(name),
          ": expected ", parameter->range, ", found '", printable(value), "'");
  set_parameter(settings, *parameter, *number);
  settings.penalties_when_greedy |=
      parameter->role == ParameterRole::penalty;  // requested by the user
  generator_.set_sampling(settings);
  tell(parameter_word(*parameter) + " is " + number_text(*number) + " from now on");
}

// Parameters that are no sampling settings.
void ChatLoop::set_option(std::string_view name, std::string_view option, std::string_view value) {
  if (option == "reverse-prompt") return set_stop(value);
  const auto number = parse_int(value);
  const auto require_number = [&](std::int64_t least, std::string_view expected,
                                  std::int64_t most = kMaxCount) {
    require(number && *number >= least && *number <= most, name, ": expected ", expected,
            ", found '", printable(value), "'");
  };
  if (option == "seed") {
    require_number(0, "a whole number of at least 0", std::numeric_limits<std::int64_t>::max());
    SamplingSettings settings = generator_.sampling();
    settings.seed = static_cast<std::uint64_t>(*number);
    generator_.set_sampling(settings);
    view_.own_seed = true;
    tell("seed is " + std::to_string(*number) + " from now on");
  } else if (option == "n-predict") {
    require_number(-2, "a number of tokens, or -1 for no limit");
    ChatSettings changed = options_.settings;
    changed.max_tokens = std::max<std::int64_t>(*number, -1);
    apply(changed);
    tell("replies have " +
         (*number < 0 ? "no limit" : "at most " + std::to_string(*number) + " tokens") +
         " from now on");
  } else {
    require(option == "ctx-size" && !options_.fixed_context, name, ": is chosen at the start: --",
            option, ' ', printable(value));
    const std::int64_t most = generator_.longest_context();
    require_number(1, "a number of tokens, at most the model's " + std::to_string(most), most);
    ChatSettings changed = options_.settings;
    changed.context = *number;
    apply(changed);
  }
}

void ChatLoop::set_stop(std::string_view texts) {
  check_utf8(texts, "/set stop");
  const std::vector<std::string> words = quoted_words(texts);
  ChatSettings changed = options_.settings;
  changed.stop = words;
  apply(changed);
  tell(words.empty() ? "no stop texts from now on"
                     : "replies stop before " + join(words) + " from now on");
}

void ChatLoop::set_format(std::string_view text) {
  require(text.empty() || text == "json", "/set format: expected json, found '", printable(text),
          "'");
  ChatSettings changed = options_.settings;
  changed.json = !text.empty();
  if (changed.json) generator_.check_grammar(json_grammar());
  apply(changed);
  tell(text.empty() ? "replies are any text from now on" : "replies are JSON from now on");
}

template <bool on>
void ChatLoop::set_thinking(std::string_view) {
  session_.options().rendering.enable_thinking = options_.settings.thinking = on;
  tell(on ? "reasoning before the answer, if the model's template knows it"
          : "no reasoning, if the model's template knows that");
}

template <bool on>
void ChatLoop::set_verbose(std::string_view) {
  view_.verbose = on;
  tell(on ? "counts and speeds after each reply" : "no counts and speeds");
}

template <bool on>
void ChatLoop::set_wrap(std::string_view) {
  printer_.set_wrap(view_.wrap = on);
  tell(on ? "words are wrapped" : "words are not wrapped");
}

template <bool on>
void ChatLoop::set_history(std::string_view) {
  reader_->keep_history(view_.history = on);
  tell(on ? "lines are remembered" : "lines are not remembered");
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
  all.push_back("seed " + std::to_string(settings.seed));
  all.push_back("num_predict " + std::to_string(options_.settings.max_tokens));
  all.push_back("num_ctx " + std::to_string(generator_.context()));
  if (!options_.settings.stop.empty()) all.push_back("stop " + join(options_.settings.stop));
  tell(join(all));
}

void ChatLoop::show_modelfile(std::string_view) {
  Modelfile shown = {.from = options_.model_name, .system = std::string(session_.system())};
  const SamplingSettings& settings = generator_.sampling();
  for (const SamplingParameter& parameter : kSamplingParameters) {
    const double value = parameter_value(settings, parameter);
    if (value == parameter_value(SamplingSettings{}, parameter)) continue;
    shown.parameters.emplace_back(name_of_parameter(parameter), number_text(value));
  }
  if (view_.own_seed) shown.parameters.emplace_back("seed", std::to_string(settings.seed));
  const ChatSettings& own = options_.settings;
  if (own.max_tokens >= 0) {
    shown.parameters.emplace_back("num_predict", std::to_string(own.max_tokens));
  }
  if (own.context > 0) shown.parameters.emplace_back("num_ctx", std::to_string(own.context));
  for (const std::string& text : own.stop) shown.parameters.emplace_back("stop", text);
  std::fprintf(stderr, "%s", (shown_text(modelfile_text(shown)) + "\n").c_str());
}

void ChatLoop::show_license(std::string_view) {
  tell("a model's file has no licence; `leq show USER/REPOSITORY` has what the hub says");
}

void ChatLoop::list_models(std::string_view) {
  std::vector<std::string> names;
  for (const auto& models : {created_models(), listed_models()}) {
    for (const KeptModel& model : models) names.push_back(model.name);
  }
  tell(names.empty() ? "no models are kept" : join(names));
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
  save_chat(path, file());
  constexpr auto kPrivate =
      std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
  if (folder == named_chat_folder()) std::filesystem::permissions(path, kPrivate, ignored);
}

void ChatLoop::save_named() {
  if (options_.saved_as.empty() || file() == saved_) return;
  write_chat(options_.saved_as);
  saved_ = file();
}

void ChatLoop::save(std::string_view name) {
  require(!name.empty(), "/save: a name or a file name must follow");
  const std::filesystem::path path = chat_path(name);
  require_no_input(path, std::array{options_.model});
  write_chat(path);
  tell("saved " + std::to_string(session_.state().messages.size()) + " messages to " +
       path.string());
}

void ChatLoop::load(std::string_view name) {
  require(!name.empty(), "/load: a name or a file name must follow");
  const std::filesystem::path path = chat_path(name);
  require(file_exists(path) || !is_chat_name(name), "/load: no chat is called ", name,
          ": /show chats lists them; `leq run ", name, "` runs a model");
  ChatFile loaded = load_chat(path);
  const SamplingSettings before = generator_.sampling();
  generator_.set_sampling(loaded.settings.sampling);  // throws on ids that the model lacks
  const std::string other = loaded.model == options_.model.filename().string()
                                ? ""
                                : " (written with " + loaded.model + ")";
  try {
    session_.restore(std::move(loaded.chat));
  } catch (const Error&) {
    generator_.set_sampling(before);
    throw;
  }
  apply(loaded.settings);
  tell("loaded " + std::to_string(session_.state().messages.size()) +
       " messages and their settings from " + path.string() + other);
}

void ChatLoop::leave(std::string_view) { leaving_ = true; }

}  // namespace leq::run

#include "engine/generator.h"

#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace leq {
namespace {

std::size_t vocabulary_of(Session& session) {
  return static_cast<std::size_t>(session.transformer().config().vocab);
}

constexpr std::string_view kWhiteSpace = " \t\r\n";

// Drops the white space that many models write at the start of a reply. The conversation keeps it,
// but the screen should not show it.
TextSink without_first_space(const TextSink& on_text) {
  return [&on_text, started = false](std::string_view text) mutable {
    if (!started) {
      const std::size_t first = text.find_first_not_of(kWhiteSpace);
      if (first == std::string_view::npos) return;
      text.remove_prefix(first);
      started = true;
    }
    on_text(text);
  };
}

// A reply as it is shown and kept.
class ShownReply {
 public:
  ShownReply(const ReplyStyle& style, const TextSink& on_text) : on_text_(on_text) {
    if (style.channels) reader_.emplace(style, "", false);
  }

  void push(std::string_view text) {
    if (reader_) return add(reader_->push(text));
    content_ += text;
    on_text_(text);
  }
  // Returns what the conversation keeps.
  std::string finish() {
    if (reader_) add(reader_->finish());
    return std::move(content_);
  }

 private:
  void add(const ReplyPiece& piece) {
    std::string text;
    if (!piece.reasoning.empty()) {
      if (!std::exchange(reasons_, true)) text = "<think>\n";
      text += piece.reasoning;
    }
    if (!piece.content.empty()) {
      if (std::exchange(reasons_, false)) text += "\n</think>\n\n";
      text += piece.content;
      content_ += piece.content;
    }
    if (!text.empty()) on_text_(text);
  }

  TextSink on_text_;
  std::optional<ReplyReader> reader_;
  bool reasons_ = false;
  std::string content_;
};

}  // namespace

Generator::Generator(Session& session, const Tokenizer& tokenizer, const GeneratorOptions& options)
    : session_(session),
      tokenizer_(tokenizer),
      options_(options),
      engine_(session, tokenizer, options.engine) {
  set_sampling(options.sampling);
}

void Generator::set_sampling(const SamplingSettings& sampling) {
  const Sampler checked(sampling, vocabulary_of(session_), options_.banned, tokenizer_);
  options_.sampling = checked.settings();
}

void Generator::check_prompt(std::span<const Token> prompt) const {
  leq::check_prompt(prompt, vocabulary_of(session_), context(), longest_context());
}

FinishedReply Generator::generate(EngineRequest request, const std::atomic<bool>* interrupted) {
  std::optional<EngineReply> ended;
  request.sampling = options_.sampling;
  request.banned = options_.banned;
  request.on_end = [&](const EngineReply& reply) { ended = reply; };
  const RequestId id = engine_.submit(std::move(request));
  while (!ended) {
    if (interrupted != nullptr && interrupted->load(std::memory_order_relaxed)) engine_.cancel(id);
    engine_.step();
  }
  if (ended->error) throw *ended->error;
  return *ended;
}

ChatSession::ChatSession(Generator& generator, const Tokenizer& tokenizer,
                         const ChatTemplate& format, const ChatSessionOptions& options)
    : generator_(generator), tokenizer_(tokenizer), format_(format), options_(options) {
  format_.add_stops(tokenizer_, options_.stop);
}

std::vector<Token> ChatSession::prompt_of(const std::vector<ChatMessage>& messages,
                                          std::size_t left_out) const {
  std::vector<ChatMessage> kept = messages;
  const auto first = kept.begin() + (messages.front().role == "system" ? 1 : 0);
  kept.erase(first, first + static_cast<std::ptrdiff_t>(left_out));
  return tokenizer_.encode_parts(format_.render(kept, options_.rendering));
}

// Leaves out turns until the prompt takes half of the context, or only the last message is left.
// Returns the prompt, which ends with the reply so far; an empty one if it would be no shorter.
std::vector<Token> ChatSession::shorter_prompt(const std::vector<ChatMessage>& messages,
                                               std::size_t& left_out,
                                               std::span<const Token> reply) const {
  const std::size_t first = messages.front().role == "system" ? 1 : 0;
  std::vector<Token> prompt;
  for (std::size_t at = first + left_out + 1; at < messages.size(); ++at) {
    if (messages[at].role != "user") continue;
    left_out = at - first;
    prompt = prompt_of(messages, left_out);
    prompt.insert(prompt.end(), reply.begin(), reply.end());
    if (2 * std::ssize(prompt) <= generator_.context()) break;
  }
  return prompt;
}

// Runs one turn: generates the reply to `messages`; stores the messages and the reply in the state.
FinishedReply ChatSession::write(std::vector<ChatMessage> messages, const TextSink& on_text,
                                 const std::atomic<bool>& interrupted) {
  std::size_t left_out = state_.left_out;
  auto replies = state_.replies;
  EngineRequest request;
  request.prompt = prompt_of(messages, left_out);
  if (std::ssize(request.prompt) >= generator_.context()) {
    std::vector<Token> shorter = shorter_prompt(messages, left_out, {});
    if (!shorter.empty()) request.prompt = std::move(shorter);
  }
  if (std::ssize(request.prompt) >= generator_.context()) {
    const std::string found = "the conversation has " + std::to_string(request.prompt.size()) +
                              " tokens, which leaves no room for a reply in a context of " +
                              std::to_string(generator_.context());
    require(generator_.context() < generator_.longest_context(), found,
            ", and this model has no longer one: begin a new conversation");
    fail(found, ": begin a new one, or start with a larger ", Setting{"context"});
  }
  if (left_out != state_.left_out) options_.on_left_out(left_out);
  request.stop = options_.stop;
  request.grammar = options_.grammar;
  request.reply = replies++;
  request.begun = 0;
  request.on_prompt = options_.on_prompt;
  if (options_.style.channels) request.shown = shown_tokens(options_.style, tokenizer_);
  ShownReply shown(options_.style, without_first_space(on_text));
  request.on_text = [&](std::string_view text) { shown.push(text); };
  FinishedReply reply = generator_.generate(request, &interrupted);
  // The rest of a reply is sampled with the random numbers of the next reply.
  while (reply.stopped == StopReason::context_full && options_.grammar == nullptr) {
    std::size_t more = left_out;
    request.prompt = shorter_prompt(messages, more, reply.tokens);
    if (request.prompt.empty() || std::ssize(request.prompt) >= generator_.context()) break;
    left_out = more;
    options_.on_left_out(left_out);
    if (options_.stop.max_tokens >= 0) {
      request.stop.max_tokens = options_.stop.max_tokens - std::ssize(reply.tokens);
    }
    request.reply = replies++;
    request.begun = std::ssize(reply.tokens);
    reply.add(generator_.generate(request, &interrupted));
  }
  if (const std::string rest = std::exchange(reply.rest, {}); !rest.empty()) {
    reply.text += rest;
    shown.push(rest);
  }
  if (reply.stopped == StopReason::interrupted && reply.tokens.empty()) return reply;
  messages.push_back({"assistant", shown.finish()});
  state_.messages = std::move(messages);
  state_.left_out = left_out;
  state_.replies = replies;
  return reply;
}

FinishedReply ChatSession::say(std::string_view message, const TextSink& on_text,
                               const std::atomic<bool>& interrupted) {
  std::vector<ChatMessage> messages = state_.messages;
  messages.push_back({"user", std::string(message)});
  return write(std::move(messages), on_text, interrupted);
}

FinishedReply ChatSession::regenerate(const TextSink& on_text,
                                      const std::atomic<bool>& interrupted) {
  std::vector<ChatMessage> messages = state_.messages;
  require(!messages.empty() && messages.back().role != "system",
          "there is no reply to write again: say something first");
  if (messages.back().role == "assistant") messages.pop_back();
  return write(std::move(messages), on_text, interrupted);
}

void ChatSession::reset() {
  const bool keep = state_.has_system();
  state_.messages.resize(keep ? 1 : 0);
  state_.replies = 0;
  state_.left_out = 0;
}

void ChatSession::set_system(std::string_view text) {
  ChatState changed = state_;
  if (changed.has_system()) changed.messages.erase(changed.messages.begin());
  if (!text.empty()) {
    changed.messages.insert(changed.messages.begin(), {"system", std::string(text)});
  }
  restore(std::move(changed));
}

std::string_view ChatSession::system() const {
  return state_.has_system() ? std::string_view(state_.messages.front().content) : "";
}

void ChatSession::restore(ChatState state) {
  // Renders a next turn, since a template that does not support system prompts throws only then.
  std::vector<ChatMessage> probe = state.messages;
  if (probe.empty() || probe.back().role != "user") probe.push_back({"user", "?"});
  (void)prompt_of(probe, state.left_out);
  state_ = std::move(state);
}

}  // namespace leq

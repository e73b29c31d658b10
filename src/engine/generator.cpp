#include "engine/generator.h"

#include <optional>
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

bool has_system(const ChatState& state) {
  return !state.messages.empty() && state.messages.front().role == "system";
}

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
  leq::check_prompt(prompt, vocabulary_of(session_), context());
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

// Runs one turn: generates the reply to `messages`; stores the messages and the reply in the state.
FinishedReply ChatSession::write(std::vector<ChatMessage> messages, const TextSink& on_text,
                                 const std::atomic<bool>& interrupted) {
  EngineRequest request;
  request.prompt = tokenizer_.encode_parts(format_.render(messages, options_.rendering));
  require(std::ssize(request.prompt) < generator_.context(), "the conversation has ",
          request.prompt.size(), " tokens, which leaves no room for a reply in a context of ",
          generator_.context(), ": begin a new one, or start with a larger ", Setting{"context"});
  request.stop = options_.stop;
  request.grammar = options_.grammar;
  request.reply = state_.replies;
  request.on_prompt = options_.on_prompt;
  request.on_text = without_first_space(on_text);
  FinishedReply reply = generator_.generate(std::move(request), &interrupted);
  ++state_.replies;
  if (reply.stopped == StopReason::interrupted && reply.tokens.empty()) return reply;
  messages.push_back({"assistant", reply.text});
  state_.messages = std::move(messages);
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
  const bool keep = has_system(state_);
  state_.messages.resize(keep ? 1 : 0);
  state_.replies = 0;
}

void ChatSession::set_system(std::string_view text) {
  ChatState changed = state_;
  if (has_system(changed)) changed.messages.erase(changed.messages.begin());
  if (!text.empty()) {
    changed.messages.insert(changed.messages.begin(), {"system", std::string(text)});
  }
  restore(std::move(changed));
}

std::string_view ChatSession::system() const {
  return has_system(state_) ? std::string_view(state_.messages.front().content) : "";
}

void ChatSession::restore(ChatState state) {
  // Renders a next turn, since a template that does not support system prompts throws only then.
  std::vector<ChatMessage> probe = state.messages;
  if (probe.empty() || probe.back().role != "user") probe.push_back({"user", "?"});
  (void)format_.render(probe, options_.rendering);
  state_ = std::move(state);
}

}  // namespace leq

#include "generate/generator.h"

#include <algorithm>
#include <chrono>

#include "backend/checks.h"
#include "base/error.h"
#include "tokenizer/stream_decoder.h"

namespace leq {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double rate(std::int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

bool is_interrupted(const ReplyRequest& request) {
  return request.interrupted != nullptr && request.interrupted->load(std::memory_order_relaxed);
}

std::size_t vocabulary_of(Session& session) {
  return static_cast<std::size_t>(session.transformer().config().vocab);
}

std::vector<Token> all_banned(Session& session, const Tokenizer& tokenizer,
                              const GeneratorOptions& options) {
  std::vector<Token> banned = ids_without_token(tokenizer, vocabulary_of(session));
  banned.insert(banned.end(), options.banned.begin(), options.banned.end());
  return banned;
}

// Tokens on their way to the caller: decoded, with stop strings taken out.
class ReplyText {
 public:
  ReplyText(const Tokenizer& tokenizer, const ReplyRequest& request, Reply& reply)
      : decoder_(tokenizer, request.at_text_start),
        finder_(request.stop.strings),
        request_(request),
        reply_(reply) {}

  // True where this token completed a stop string.
  bool push(Token token) {
    emit(finder_.push(decoder_.push(token)));
    return note_stop_string();
  }
  // Emits what was held back; true where that completed a stop string.
  bool finish() {
    emit(finder_.push(decoder_.finish()));
    if (note_stop_string()) return true;
    emit(finder_.finish());
    return false;
  }

 private:
  void emit(std::string_view text) {
    if (text.empty()) return;
    reply_.text += text;
    request_.on_text(text);
  }
  bool note_stop_string() {
    if (finder_.found()) reply_.stop_string = finder_.found_string();
    return finder_.found();
  }

  StreamDecoder decoder_;
  StopStringFinder finder_;
  const ReplyRequest& request_;
  Reply& reply_;
};

}  // namespace

double Reply::prompt_tokens_per_second() const { return rate(fed_tokens, prompt_seconds); }

double Reply::reply_tokens_per_second() const { return rate(decoded_tokens, reply_seconds); }

Generator::Generator(Session& session, const Tokenizer& tokenizer, const GeneratorOptions& options)
    : session_(session),
      tokenizer_(tokenizer),
      options_(options),
      sampler_(options.sampling, vocabulary_of(session), all_banned(session, tokenizer, options)) {}

void Generator::set_sampling(const SamplingSettings& sampling) {
  options_.sampling = sampling;
  sampler_ = Sampler(sampling, vocabulary_of(session_), all_banned(session_, tokenizer_, options_));
}

std::int64_t Generator::context() const { return session_.transformer().limits().context; }

void Generator::check_prompt(std::span<const Token> prompt) const {
  require(!prompt.empty(), "the prompt is empty: expected at least one token");
  const auto vocabulary = static_cast<Token>(vocabulary_of(session_));
  for (const Token id : prompt) {
    require(id >= 0 && id < vocabulary, "the prompt holds token ", id,
            ", expected ids below the model's vocabulary of ", vocabulary);
  }
  require(static_cast<std::int64_t>(prompt.size()) < context(), "the prompt has ", prompt.size(),
          " tokens, which leaves no room for a reply in a context of ", context(),
          ": shorten it, or try a larger -c");
}

// Cuts the KV cache back to what it shares with the prompt and returns that length. At least the
// prompt's last token is fed, since its logits are wanted.
std::int64_t Generator::keep_prefix(std::span<const Token> prompt) {
  const auto end =
      held_.begin() + static_cast<std::ptrdiff_t>(std::min(held_.size(), prompt.size() - 1));
  const auto shared = std::mismatch(held_.begin(), end, prompt.begin()).first - held_.begin();
  session_.cache().truncate(options_.sequence, shared);
  held_.resize(static_cast<std::size_t>(shared));
  return shared;
}

// The logits after the prompt, on the device; null where the reply was interrupted before.
const Rows* Generator::feed_prompt(const ReplyRequest& request, Reply& reply) {
  const auto start = Clock::now();
  reply.cached_tokens = keep_prefix(request.prompt);
  std::span<const Token> rest = request.prompt.subspan(held_.size());
  const auto chunk = static_cast<std::size_t>(session_.limits().batch_tokens);
  const Rows* logits = nullptr;
  while (!rest.empty() && !is_interrupted(request)) {
    const auto part = rest.first(std::min(chunk, rest.size()));
    logits = &session_.advance(options_.sequence, part);
    session_.transformer().backend().synchronize();  // an interruption waits for one chunk
    held_.insert(held_.end(), part.begin(), part.end());
    rest = rest.subspan(part.size());
    reply.fed_tokens += static_cast<std::int64_t>(part.size());
  }
  reply.prompt_seconds = seconds_since(start);
  return rest.empty() ? logits : nullptr;
}

// Only the token comes to the host.
Token Generator::draw(const Rows& logits, std::span<const Token> context,
                      const SamplePoint& point) {
  const SampleRequest request = sampler_.request(context, point);
  Token drawn = 0;
  Backend& backend = session_.transformer().backend();
  backend.sample(logits, {&request, 1}, {&drawn, 1});
  require_drawn(backend, logits, {&drawn, 1});
  return drawn;
}

Reply Generator::generate(const ReplyRequest& request) {
  check_prompt(request.prompt);
  Reply reply;
  const Rows* logits = feed_prompt(request, reply);
  const auto start = Clock::now();
  write(request, logits, reply);
  reply.reply_seconds = seconds_since(start);
  return reply;
}

void Generator::write(const ReplyRequest& request, const Rows* logits, Reply& reply) {
  std::vector<Token> all(request.prompt.begin(), request.prompt.end());
  ReplyText text(tokenizer_, request, reply);
  const auto check_limits = [&] {
    const auto count = static_cast<std::int64_t>(reply.tokens.size());
    const std::int64_t limit = request.stop.max_tokens;
    if (logits == nullptr || is_interrupted(request)) return StopReason::interrupted;
    if (limit >= 0 && count >= limit) return StopReason::token_limit;
    return std::ssize(all) < context() ? StopReason::none : StopReason::context_full;
  };
  const auto add_token = [&] {
    const SamplePoint point = {static_cast<std::uint32_t>(reply.tokens.size()), request.reply,
                               static_cast<std::uint32_t>(options_.sequence)};
    const Token token = draw(*logits, all, point);
    if (request.stop.is_end_token(token)) return StopReason::end_token;
    reply.tokens.push_back(token);
    all.push_back(token);
    return text.push(token) ? StopReason::stop_string : check_limits();
  };
  for (reply.stopped = check_limits(); reply.stopped == StopReason::none;) {
    reply.stopped = add_token();
    if (reply.stopped != StopReason::none) break;
    logits = &session_.advance(options_.sequence, std::span(&all.back(), 1));
    held_.push_back(all.back());
    ++reply.decoded_tokens;
  }
  if (reply.stopped != StopReason::stop_string && text.finish()) {
    reply.stopped = StopReason::stop_string;
  }
}

}  // namespace leq

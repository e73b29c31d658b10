#include "generate/generator.h"

#include <algorithm>

#include "backend/checks.h"
#include "base/error.h"
#include "base/stopwatch.h"

namespace leq {
namespace {

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

}  // namespace

double FinishedReply::prompt_tokens_per_second() const { return rate(fed_tokens, prompt_seconds); }

double FinishedReply::reply_tokens_per_second() const {
  return rate(decoded_tokens, reply_seconds);
}

void check_prompt(std::span<const Token> prompt, std::size_t vocabulary, std::int64_t context) {
  require(!prompt.empty(), "the prompt is empty: expected at least one token");
  for (const Token id : prompt) {
    require(id >= 0 && static_cast<std::size_t>(id) < vocabulary, "the prompt holds token ", id,
            ", expected ids below the model's vocabulary of ", vocabulary);
  }
  require(std::ssize(prompt) < context, "the prompt has ", prompt.size(),
          " tokens, which leaves no room for a reply in a context of ", context,
          ": shorten it, or try a larger ", Setting{"context"});
}

Generator::Generator(Session& session, const Tokenizer& tokenizer, const GeneratorOptions& options)
    : session_(session),
      tokenizer_(tokenizer),
      options_(options),
      sampler_(options.sampling, vocabulary_of(session), all_banned(session, tokenizer, options),
               tokenizer) {}

void Generator::set_sampling(const SamplingSettings& sampling) {
  sampler_ = Sampler(sampling, vocabulary_of(session_), all_banned(session_, tokenizer_, options_),
                     tokenizer_);
  options_.sampling = sampling;
}

std::int64_t Generator::context() const { return session_.transformer().limits().context; }

void Generator::check_prompt(std::span<const Token> prompt) const {
  leq::check_prompt(prompt, vocabulary_of(session_), context());
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

// The logits after the last of these tokens, on the device.
const Rows& Generator::feed(std::span<const Token> tokens) {
  const Rows& logits = session_.advance(options_.sequence, tokens);
  held_.insert(held_.end(), tokens.begin(), tokens.end());
  return logits;
}

// Null where the reply was interrupted before the prompt's end.
const Rows* Generator::feed_prompt(const ReplyRequest& request, FinishedReply& finished) {
  const Stopwatch watch;
  finished.cached_tokens = keep_prefix(request.prompt);
  std::span<const Token> rest = request.prompt.subspan(held_.size());
  const auto chunk = static_cast<std::size_t>(session_.limits().batch_tokens);
  const Rows* logits = nullptr;
  while (!rest.empty() && !is_interrupted(request)) {
    const auto part = rest.first(std::min(chunk, rest.size()));
    logits = &feed(part);
    session_.transformer().backend().synchronize();  // an interruption waits for one chunk
    rest = rest.subspan(part.size());
    finished.fed_tokens += std::ssize(part);
  }
  finished.prompt_seconds = watch.seconds();
  return rest.empty() ? logits : nullptr;
}

// Only the token comes to the host. Returns the text that it completes.
std::string Generator::draw(const Rows& logits, Reply& reply) {
  const SampleRequest request = reply.request();
  Token drawn = 0;
  Backend& backend = session_.transformer().backend();
  backend.sample(logits, {&request, 1}, {&drawn, 1});
  if (drawn >= 0) return reply.take(drawn);
  reply.fail(undrawn_text(backend, logits, 0, drawn));
  return {};
}

FinishedReply Generator::generate(const ReplyRequest& request) {
  check_prompt(request.prompt);
  Reply reply(tokenizer_, request.prompt, sampler_,
              {.stop = request.stop,
               .context = context(),
               .number = request.reply,
               .at_text_start = request.at_text_start});
  FinishedReply finished;
  const Rows* logits = feed_prompt(request, finished);
  const Stopwatch watch;
  write(request, logits, reply, finished);
  finished.reply_seconds = watch.seconds();
  finished.tokens.assign(reply.tokens().begin(), reply.tokens().end());
  finished.text = reply.text();
  finished.stopped = reply.stopped();
  finished.stop_string = reply.stop_string();
  return finished;
}

void Generator::write(const ReplyRequest& request, const Rows* logits, Reply& reply,
                      FinishedReply& finished) {
  const auto show = [&](const std::string& text) {
    if (!text.empty()) request.on_text(text);
  };
  const auto goes_on = [&] {
    if (logits == nullptr || is_interrupted(request)) reply.interrupt();
    return reply.stopped() == StopReason::none;
  };
  while (goes_on()) {
    if (const auto taken = reply.context().subspan(held_.size()); !taken.empty()) {
      logits = &feed(taken);
      finished.decoded_tokens += std::ssize(taken);
    }
    show(draw(*logits, reply));
  }
  if (reply.stopped() == StopReason::failed) fail(reply.error());
  show(reply.finish());
}

}  // namespace leq

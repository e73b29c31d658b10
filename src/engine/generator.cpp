#include "engine/generator.h"

#include <optional>
#include <utility>

namespace leq {
namespace {

std::size_t vocabulary_of(Session& session) {
  return static_cast<std::size_t>(session.transformer().config().vocab);
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

FinishedReply Generator::generate(const ReplyRequest& request) {
  std::optional<EngineReply> ended;
  EngineRequest asked;
  asked.prompt.assign(request.prompt.begin(), request.prompt.end());
  asked.sampling = options_.sampling;
  asked.banned = options_.banned;
  asked.stop = request.stop;
  asked.reply = request.reply;
  asked.at_text_start = request.at_text_start;
  asked.grammar = request.grammar;
  asked.on_prompt = request.on_prompt;
  asked.on_text = request.on_text;
  asked.on_logits = request.on_logits;
  asked.on_end = [&](const EngineReply& reply) { ended = reply; };
  const RequestId id = engine_.submit(std::move(asked));
  while (!ended) {
    if (request.interrupted != nullptr && request.interrupted->load(std::memory_order_relaxed)) {
      engine_.cancel(id);
    }
    engine_.step();
  }
  if (ended->error) throw *ended->error;
  return *ended;
}

}  // namespace leq

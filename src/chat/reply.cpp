#include "chat/reply.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace leq {

ReasoningState reasoning_after(const ReplyStyle& style, std::string_view prompt) {
  if (style.think_begin.empty()) return ReasoningState::none;
  if (begins_with_reasoning(style, prompt)) return ReasoningState::begun;
  if (style.channels) {
    const bool is_new = trim(prompt).ends_with(kHarmonyRole);
    return is_new ? ReasoningState::may : ReasoningState::none;
  }
  return trim(prompt).ends_with(style.think_end) ? ReasoningState::none : ReasoningState::may;
}

std::shared_ptr<ReasoningBudget> reasoning_budget(const ReplyStyle& style, std::string_view prompt,
                                                  const Tokenizer& tokenizer,
                                                  std::string_view words) {
  const ReasoningState thinking = reasoning_after(style, prompt);
  if (thinking == ReasoningState::none) return nullptr;
  auto budget = std::make_shared<ReasoningBudget>();
  budget->begin = style.think_begin;
  budget->end = style.think_end;
  budget->begun = thinking == ReasoningState::begun;
  for (const std::string_view mark : marks_in_reasoning(style)) budget->calls.emplace_back(mark);
  std::string after = "\n\n";
  if (style.channels) {  // calls may follow where there are any
    after = kHarmonyRole;
    if (style.tools == ToolCallStyle::none) after += "<|channel|>final<|message|>";
  }
  const std::vector<TextPart> closing = {{std::string(words) + style.think_end + after, true}};
  budget->closing = tokenizer.encode_parts(closing);
  return budget;
}

ReasoningWatch::ReasoningWatch(std::shared_ptr<const ReasoningBudget> budget,
                               const Tokenizer& tokenizer)
    : budget_(std::move(budget)), tokenizer_(&tokenizer) {
  if (budget_ != nullptr) place_ = budget_->begun ? Place::reasoning : Place::start;
}

std::optional<Token> ReasoningWatch::forced() const {
  const bool is_over = place_ == Place::reasoning && count_ >= budget_->tokens;
  if (place_ != Place::closing && !is_over) return std::nullopt;
  return said_ < budget_->closing.size() ? std::optional(budget_->closing[said_]) : std::nullopt;
}

void ReasoningWatch::take(Token token) {
  if (place_ == Place::answer) return;
  if (const auto wanted = forced(); wanted && token == *wanted) {
    place_ = ++said_ < budget_->closing.size() ? Place::closing : Place::answer;
    return;
  }
  if (place_ == Place::reasoning) ++count_;
  read(tokenizer_->decode(std::span(&token, 1), true));
}

void ReasoningWatch::read(std::string_view text) {
  tail_ += text;
  if (place_ == Place::start) {
    const std::size_t first = tail_.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return;
    const std::string_view said = std::string_view(tail_).substr(first);
    if (said.size() < budget_->begin.size() && budget_->begin.starts_with(said)) return;
    if (!said.starts_with(budget_->begin)) {
      place_ = Place::answer;
      return;
    }
    place_ = Place::reasoning;
    tail_.erase(0, first + budget_->begin.size());
  }
  std::size_t longest = budget_->end.size();
  bool is_over = tail_.find(budget_->end) != std::string::npos;
  for (const std::string& mark : budget_->calls) {
    is_over = is_over || tail_.find(mark) != std::string::npos;
    longest = std::max(longest, mark.size());
  }
  if (is_over) {
    place_ = Place::answer;
    tail_.clear();
    return;
  }
  tail_.erase(0, tail_.size() - std::min(tail_.size(), longest - 1));
}

void check_prompt(std::span<const Token> prompt, std::size_t vocabulary, std::int64_t context,
                  std::int64_t longest) {
  require(!prompt.empty(), "the prompt is empty: expected at least one token");
  for (const Token id : prompt) {
    require(id >= 0 && static_cast<std::size_t>(id) < vocabulary, "the prompt holds token ", id,
            ", expected ids below the model's vocabulary of ", vocabulary);
  }
  if (std::ssize(prompt) < context) return;
  const std::string found = "the prompt has " + std::to_string(prompt.size()) +
                            " tokens, which leaves no room for a reply in a context of " +
                            std::to_string(context);
  require(context < longest, found, ", and this model has no longer one: shorten it");
  fail(found, ": shorten it, or try a larger ", Setting{"context"});
}

void FinishedReply::add(const FinishedReply& next) {
  tokens.insert(tokens.end(), next.tokens.begin(), next.tokens.end());
  text += next.text;
  rest = next.rest;
  stopped = next.stopped;
  stop_string = next.stop_string;
  cached_tokens += next.cached_tokens;
  fed_tokens += next.fed_tokens;
  prompt_seconds += next.prompt_seconds;
  decoded_tokens += next.decoded_tokens;
  reply_seconds += next.reply_seconds;
}

Reply::Reply(const Tokenizer& tokenizer, std::span<const Token> prompt, const Sampler& sampler,
             ReplyRules rules)
    : tokenizer_(&tokenizer),
      prompt_tokens_(prompt.size()),
      context_(prompt.begin(), prompt.end()),
      sampler_(sampler),
      rules_(std::move(rules)),
      decoder_(tokenizer, rules_.at_text_start),
      finder_(rules_.stop.strings),
      stopped_(reached_limit()),
      reasoning_(rules_.reasoning, tokenizer) {
  for (const Token token : prompt.last(static_cast<std::size_t>(rules_.begun))) {
    (void)finder_.push(decoded(token));
  }
  if (!rules_.grammar) return;
  grammar_state_ = rules_.grammar->start();
  const bool is_whole = rules_.grammar->must_end(grammar_state_);
  if (stopped_ == StopReason::none && is_whole) stopped_ = StopReason::end_token;
}

SampleRequest Reply::request(std::span<const Token> drafts) {
  const std::span<const std::uint64_t> mask = allowed(drafts);
  const std::size_t known = context_.size();
  context_.insert(context_.end(), drafts.begin(), drafts.end());
  SampleRequest request = sampler_.request(
      context_, {static_cast<std::uint32_t>(tokens().size()), rules_.number, rules_.choice});
  context_.resize(known);
  request.allowed = mask;
  return request;
}

// The token that must come next because the reasoning has exceeded its budget.
std::optional<Token> Reply::forced(std::span<const Token> drafts) const {
  if (rules_.reasoning == nullptr) return std::nullopt;
  ReasoningWatch watch = reasoning_;
  for (const Token draft : drafts) watch.take(draft);
  return watch.forced();
}

// A matcher that other replies have filled must not end this one: the first time that it fails, the
// text so far is read again by a matcher of this reply's own. Rethrows the error otherwise.
void Reply::read_alone() {
  if (std::exchange(is_alone_, true) || !rules_.grammar->is_crowded()) throw;
  rules_.grammar = rules_.grammar->emptied();
  grammar_state_ = rules_.grammar->start();
  for (const Token token : tokens()) {
    allow_after(grammar_state_);  // as each draw did
    grammar_state_ = rules_.grammar->after(grammar_state_, token);
  }
}

// If the grammar reports an error, no token is allowed.
std::span<const std::uint64_t> Reply::allowed(std::span<const Token> drafts) {
  if (const auto only = forced(drafts)) {
    const auto id = static_cast<std::size_t>(*only);
    allowed_.assign((rules_.reasoning->vocabulary + 63) / 64, 0);
    allowed_[id / 64] |= std::uint64_t{1} << id % 64;
    return allowed_;
  }
  if (!rules_.grammar) return {};
  try {
    try {
      return allowed_by_grammar(drafts);
    } catch (const Error&) {
      read_alone();
      return allowed_by_grammar(drafts);
    }
  } catch (const Error&) {  // grammar_error() reports it
    allowed_.assign(rules_.grammar->words(), 0);
    return allowed_;
  }
}

std::span<const std::uint64_t> Reply::allowed_by_grammar(std::span<const Token> drafts) {
  GrammarState state = grammar_state_;
  for (const Token draft : drafts) {
    if (state != kOutOfGrammar) state = rules_.grammar->after(state, draft);
  }
  if (state == kOutOfGrammar) return {};  // the drafts are rejected, so this draw is unused
  if (rules_.grammar->allows_all(state)) return {};
  allow_after(state);
  return allowed_;
}

void Reply::allow_after(GrammarState state) {
  GrammarMatcher& grammar = *rules_.grammar;
  allowed_.assign(grammar.words(), 0);
  grammar.allow(state, allowed_);
  if (!grammar.may_end(state)) return;
  for (const Token end : rules_.stop.end_tokens) {
    const auto id = static_cast<std::size_t>(end);
    if (end >= 0 && id / 64 < allowed_.size()) allowed_[id / 64] |= std::uint64_t{1} << id % 64;
  }
}

std::string Reply::grammar_error() {
  if (!rules_.grammar) return {};
  try {
    allow_after(grammar_state_);
  } catch (const Error& error) {
    return error.what();
  }
  if (std::ranges::any_of(allowed_, [](std::uint64_t word) { return word != 0; })) return {};
  constexpr std::size_t kShown = 40;
  const std::string_view end =
      std::string_view(text_).substr(text_.size() - std::min(text_.size(), kShown));
  return "grammar: no token of this model can go on with it " +
         (end.empty() ? std::string("at its start") : "after \"" + printable(end) + "\"");
}

// A special token adds no text, unless it is one of the tokens in `shown`.
std::string Reply::decoded(Token token) {
  if (std::ranges::find(rules_.shown, token) == rules_.shown.end()) return decoder_.push(token);
  return decoder_.finish() + tokenizer_->decode(std::span(&token, 1), true);
}

std::string Reply::take(Token drawn) {
  ensure(stopped_ == StopReason::none, "reply: a token after its end (", describe(stopped_), ")");
  ensure(drawn >= 0, "reply: took ", drawn, ", which is no token");
  if (rules_.stop.is_end_token(drawn)) {
    stopped_ = StopReason::end_token;
    return {};
  }
  context_.push_back(drawn);
  sampler_.took();
  reasoning_.take(drawn);
  std::string text = finder_.push(decoded(drawn));
  text_ += text;
  stopped_ = finder_.found() ? StopReason::stop_string : reached_limit();
  if (rules_.grammar) follow_grammar(drawn);
  return text;
}

void Reply::follow_grammar(Token drawn) {
  try {
    try {
      grammar_state_ = rules_.grammar->after(grammar_state_, drawn);
    } catch (const Error&) {
      read_alone();  // with the drawn token
    }
  } catch (const Error& error) {
    return fail(error.what());
  }
  if (grammar_state_ == kOutOfGrammar) return fail("the reply has left its grammar");
  const bool found_string = stopped_ == StopReason::stop_string;
  if (!found_string && rules_.grammar->must_end(grammar_state_)) stopped_ = StopReason::end_token;
}

void Reply::fail(std::string error) {
  stopped_ = StopReason::failed;
  error_ = std::move(error);
}

void Reply::interrupt() {
  const bool limited = stopped_ == StopReason::token_limit || stopped_ == StopReason::context_full;
  if (limited || stopped_ == StopReason::none) stopped_ = StopReason::interrupted;
}

std::string Reply::finish() {
  ensure(stopped_ != StopReason::none, "reply: finished while it goes on");
  if (finder_.found()) return {};
  std::string text = finder_.push(decoder_.finish());
  if (finder_.found()) {
    if (stopped_ != StopReason::failed) stopped_ = StopReason::stop_string;
  } else {
    text += finder_.finish();
  }
  text_ += text;
  return text;
}

std::int64_t Reply::tokens_left() const {
  const std::int64_t left = rules_.context - std::ssize(context_);
  const std::int64_t limit = rules_.stop.max_tokens;
  return limit < 0 ? left : std::min(left, limit - std::ssize(tokens()));
}

StopReason Reply::reached_limit() const {
  const std::int64_t limit = rules_.stop.max_tokens;
  if (limit >= 0 && std::ssize(tokens()) >= limit) return StopReason::token_limit;
  return std::ssize(context_) < rules_.context ? StopReason::none : StopReason::context_full;
}

}  // namespace leq

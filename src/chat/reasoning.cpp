#include "chat/reasoning.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/text.h"
#include "grammar/watch.h"

namespace leq {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr std::string_view kReasoningBlanks = " \t\r\n";
constexpr std::int64_t kMaxBlanks = 8;  // around marks

Expr blanks(GrammarBuilder& b) {
  return b.repeat(b.chars({{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}}), 0, kMaxBlanks);
}

}  // namespace

ReasoningState reasoning_after(const ReplyStyle& style, std::string_view prompt) {
  if (style.think_begin.empty()) return ReasoningState::none;
  if (begins_with_reasoning(style, prompt)) return ReasoningState::begun;
  return trim(prompt).ends_with(style.think_end) ? ReasoningState::none : ReasoningState::may;
}

Expr after_reasoning(GrammarBuilder& builder, const ReplyStyle& style, std::string_view prompt,
                     Expr answer) {
  const ReasoningState thinking = reasoning_after(style, prompt);
  if (thinking == ReasoningState::none) return answer;
  const WatchMode free = {.anywhere = {{style.think_end, {}, 1}}};
  const Expr reasoning = watched_text(builder, {free, {.closed = true}}, 0, WatchEnd::closed);
  // The answer is a rule of its own, so that the grammar contains it only once.
  const std::int32_t rule = builder.rule("answer");
  builder.define(rule, answer);
  const Expr rest = builder.sequence({reasoning, blanks(builder), builder.call(rule)});
  if (thinking == ReasoningState::begun) return rest;
  return builder.choice(
      {builder.call(rule),
       builder.sequence({blanks(builder), builder.text(style.think_begin), rest})});
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
  const std::vector<TextPart> closing = {{std::string(words) + style.think_end + "\n\n", true}};
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
    const std::size_t first = tail_.find_first_not_of(kReasoningBlanks);
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
  if (tail_.find(budget_->end) != std::string::npos) {
    place_ = Place::answer;
    tail_.clear();
    return;
  }
  const std::size_t kept = std::min(tail_.size(), budget_->end.size() - 1);
  tail_.erase(0, tail_.size() - kept);
}

}  // namespace leq

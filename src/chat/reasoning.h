// Reasoning before an answer: when a grammar begins to apply, and the reasoning's token limit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_calls.h"
#include "grammar/builder.h"
#include "tokenizer/tokenizer.h"

namespace leq {

enum class ReasoningState : std::uint8_t {
  none,   // the style has no reasoning, or the prompt has ended it
  may,    // the reply may begin with reasoning
  begun,  // the prompt has begun the reasoning
};
ReasoningState reasoning_after(const ReplyStyle& style, std::string_view prompt);

// The answer, preceded by optional reasoning of any length if the style has reasoning.
GrammarBuilder::Expr after_reasoning(GrammarBuilder& builder, const ReplyStyle& style,
                                     std::string_view prompt, GrammarBuilder::Expr answer);

// The token limit of reasoning, after which the reply is forced to continue with `closing`.
struct ReasoningBudget {
  std::string begin, end;  // the marks around reasoning
  bool begun = false;      // whether the prompt has begun the reasoning
  std::int64_t tokens = 0;
  std::vector<Token> closing;
  std::size_t vocabulary = 0;  // number of logits
};

// Sets the marks, `closing` and `begun`; null if the reply has no reasoning. `words` are written
// before the mark that ends the reasoning.
std::shared_ptr<ReasoningBudget> reasoning_budget(const ReplyStyle& style, std::string_view prompt,
                                                  const Tokenizer& tokenizer,
                                                  std::string_view words);

// Tracks how much of a reply's reasoning is written. Copies are used to look ahead over drafts.
class ReasoningWatch {
 public:
  ReasoningWatch() = default;
  // A null budget sets no limit.
  ReasoningWatch(std::shared_ptr<const ReasoningBudget> budget, const Tokenizer& tokenizer);

  // The token that must come next; nullopt if any token may.
  std::optional<Token> forced() const;
  void take(Token token);

 private:
  enum class Place : std::uint8_t { start, reasoning, closing, answer };
  void read(std::string_view text);

  std::shared_ptr<const ReasoningBudget> budget_;
  const Tokenizer* tokenizer_ = nullptr;
  Place place_ = Place::answer;
  std::string tail_;  // the end of the text, which may begin a mark
  std::int64_t count_ = 0;
  std::size_t said_ = 0;  // number of closing tokens written
};

}  // namespace leq

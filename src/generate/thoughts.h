// Thoughts in front of an answer: where a grammar may begin, and how many tokens they may take.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generate/grammar/builder.h"
#include "generate/tool_calls.h"
#include "tokenizer/tokenizer.h"

namespace leq {

enum class ThoughtState : std::uint8_t {
  none,   // the style has no thoughts, or the prompt has ended them
  may,    // the model may begin its reply with them
  begun,  // the prompt has begun them
};
ThoughtState thinking_after(const ReplyStyle& style, std::string_view prompt);

// The answer after thoughts, as many as there may be; the answer alone where there are none.
GrammarBuilder::Expr after_thoughts(GrammarBuilder& builder, const ReplyStyle& style,
                                    std::string_view prompt, GrammarBuilder::Expr answer);

// The limit of tokens for thoughts, after which the reply is forced to continue with `closing`.
struct ThoughtBudget {
  std::string begin, end;  // the marks around thoughts
  bool begun = false;      // by the prompt
  std::int64_t tokens = 0;
  std::vector<Token> closing;
  std::size_t vocabulary = 0;  // of the model's logits
};

// The marks, `closing` and whether they have begun; null where the reply has no thoughts. `words`:
// said before the mark that ends them.
std::shared_ptr<ThoughtBudget> thought_budget(const ReplyStyle& style, std::string_view prompt,
                                              const Tokenizer& tokenizer, std::string_view words);

// Progress of a reply through its thoughts: a value, copied to look ahead over draft tokens.
class ThoughtWatch {
 public:
  ThoughtWatch() = default;
  // Null: nothing is watched.
  ThoughtWatch(std::shared_ptr<const ThoughtBudget> budget, const Tokenizer& tokenizer);

  // The token that must come next; nullopt: any may.
  std::optional<Token> forced() const;
  void take(Token token);

 private:
  enum class Place : std::uint8_t { start, thoughts, closing, answer };
  void read(std::string_view text);

  std::shared_ptr<const ThoughtBudget> budget_;
  const Tokenizer* tokenizer_ = nullptr;
  Place place_ = Place::answer;
  std::string tail_;  // the end of the text that may begin a mark
  std::int64_t count_ = 0;
  std::size_t said_ = 0;  // of the closing tokens
};

}  // namespace leq

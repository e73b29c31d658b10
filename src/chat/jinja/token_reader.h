// Reads a template's tokens one after another for the parser, and reports unexpected ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "chat/jinja/lexer.h"

namespace leq::jinja {

class TokenReader {
 public:
  // The last token must be the end token.
  TokenReader(std::vector<Token> tokens, std::string_view source)
      : tokens_(std::move(tokens)), source_(source) {}

  const Token& now() const { return tokens_[at_]; }
  Token take() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool skip_sign(std::string_view sign) {
    const bool found = now().is_sign(sign);
    if (found) take();
    return found;
  }
  bool skip_name(std::string_view name) {
    const bool found = now().is_name(name);
    if (found) take();
    return found;
  }
  void expect(Token::Type type, std::string_view what) {
    if (now().type != type) wrong("expected ", what, ", found ", shown(now()));
    take();
  }
  void expect_sign(std::string_view sign) {
    if (!skip_sign(sign)) wrong("expected ", sign, ", found ", shown(now()));
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) wrong("expected ", name, ", found ", shown(now()));
  }
  std::string take_name(std::string_view what) {
    if (now().type != Token::Type::name) wrong("expected ", what, ", found ", shown(now()));
    return take().text;
  }

  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(source_, ": chat template, line ", now().line, ": ", parts...);
  }

  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }

  static std::string shown(const Token& token) {
    switch (token.type) {
      case Token::Type::end:
        return "the end of the template";
      case Token::Type::block_begin:
        return "{%";
      case Token::Type::block_end:
        return "%}";
      case Token::Type::print_begin:
        return "{{";
      case Token::Type::print_end:
        return "}}";
      default:
        return printable(token.text);
    }
  }

 private:
  std::vector<Token> tokens_;
  std::string_view source_;
  std::size_t at_ = 0;
};

}  // namespace leq::jinja

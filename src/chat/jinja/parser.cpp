// Parses Jinja's grammar by recursive descent with bounded depth.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "chat/jinja/syntax.h"

namespace leq::jinja {
namespace {

using Type = Token::Type;

constexpr int kMaxDepth = 200;                // limit of nested brackets, blocks and conditions
constexpr std::uint32_t kMaxTreeDepth = 600;  // limit, including chains of operators

class Parser {
 public:
  // The last token must be the end token.
  Parser(std::vector<Token> tokens, std::string_view source)
      : tokens_(std::move(tokens)), source_(source) {}

  Syntax run() {
    syntax_.root = block({});
    return std::move(syntax_);
  }

 private:
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
    if (now().type != Type::name) wrong("expected ", what, ", found ", shown(now()));
    return take().text;
  }

  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(source_, ": chat template, line ", now().line, ": ", parts...);
  }

  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }

  static std::string shown(const Token& token) {
    switch (token.type) {
      case Type::end:
        return "the end of the template";
      case Type::block_begin:
        return "{%";
      case Type::block_end:
        return "%}";
      case Type::print_begin:
        return "{{";
      case Type::print_end:
        return "}}";
      default:
        return printable(token.text);
    }
  }

  // Increments the recursion depth for its own lifetime.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) parser_.wrong("nested deeper than ", kMaxDepth);
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  NodeId add(Node node) {
    for (const NodeId child : node.children) {
      if (child == kNoNode) continue;
      node.depth = std::max(node.depth, syntax_.nodes[child].depth + 1);
    }
    if (node.depth > kMaxTreeDepth) wrong("an expression of more than ", kMaxTreeDepth, " parts");
    syntax_.nodes.push_back(std::move(node));
    return static_cast<NodeId>(syntax_.nodes.size() - 1);
  }
  NodeId add(Kind kind, std::uint32_t line, std::vector<NodeId> children, std::string text = {}) {
    return add(
        Node{.kind = kind, .line = line, .text = std::move(text), .children = std::move(children)});
  }

  // Reads statements up to a tag that begins with one of `ends`; of that tag only {% is consumed.
  NodeId block(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    const std::uint32_t line = now().line;
    std::vector<NodeId> statements;
    while (true) {
      if (now().type == Type::end) {
        if (ends.size() > 0) wrong("expected {% ", *(ends.end() - 1), " %} before the end");
        break;
      }
      if (now().type == Type::data) {
        const Token data = take();
        statements.push_back(add(Kind::data, data.line, {}, data.text));
      } else if (now().type == Type::print_begin) {
        take();
        const std::uint32_t at = now().line;
        statements.push_back(add(Kind::print, at, {tuple()}));
        expect(Type::print_end, "}}");
      } else {
        expect(Type::block_begin, "a tag");
        const bool ended =
            now().type == Type::name && std::ranges::find(ends, now().text) != ends.end();
        if (ended) break;
        statements.push_back(statement());
      }
    }
    return add(Kind::block, line, std::move(statements));
  }

  void end_tag() { expect(Type::block_end, "%}"); }
  void close(std::string_view name) {
    expect_name(name);
    end_tag();
  }
  // The statements up to this tag, and the tag.
  NodeId block_to(std::string_view end) {
    const NodeId body = block({end});
    close(end);
    return body;
  }

  NodeId statement() {
    struct Rule {
      std::string_view name;
      NodeId (Parser::*parse)();
    };
    constexpr std::array<Rule, 9> kRules = {{{"for", &Parser::loop},
                                             {"if", &Parser::branch},
                                             {"set", &Parser::assign},
                                             {"macro", &Parser::macro},
                                             {"filter", &Parser::filter_block},
                                             {"with", &Parser::with},
                                             {"generation", &Parser::generation},
                                             {"break", &Parser::leave},
                                             {"continue", &Parser::leave}}};
    const auto rule = std::ranges::find(kRules, now().text, &Rule::name);
    if (now().type != Type::name || rule == kRules.end()) {
      wrong("the tag {% ", shown(now()), " %} is not supported here");
    }
    return (this->*rule->parse)();
  }

  NodeId loop() {
    const std::uint32_t line = take().line;
    const NodeId target = targets("in");
    expect_name("in");
    const NodeId iterated = tuple(Condition::no);
    const NodeId filter = skip_name("if") ? expression() : kNoNode;
    if (now().is_name("recursive")) wrong("recursive loops are not supported");
    end_tag();
    ++loops_;
    const NodeId body = block({"else", "endfor"});
    --loops_;
    NodeId other = kNoNode;
    if (skip_name("else")) {
      end_tag();
      other = block({"endfor"});
    }
    close("endfor");
    return add(Kind::loop, line, {target, iterated, filter, body, other});
  }

  // if, elif ... as alternating conditions and blocks, and the else block at the end.
  NodeId branch() {
    const std::uint32_t line = now().line;
    std::vector<NodeId> parts;
    bool more = true;
    while (more) {
      take();  // the token `if` or `elif`
      parts.push_back(tuple(Condition::no));
      end_tag();
      parts.push_back(block({"elif", "else", "endif"}));
      more = now().is_name("elif");
    }
    if (skip_name("else")) {
      end_tag();
      parts.push_back(block({"endif"}));
    }
    close("endif");
    return add(Kind::branch, line, std::move(parts));
  }

  NodeId assign() {
    const std::uint32_t line = take().line;
    const NodeId target = targets("");
    if (skip_sign("=")) {
      const NodeId value = tuple();
      end_tag();
      return add(Kind::assign, line, {target, value});
    }
    const NodeId filter = skip_sign("|") ? filters_from(add(Kind::input, line, {})) : kNoNode;
    end_tag();
    return add(Kind::assign_block, line, {target, block_to("endset"), filter});
  }

  NodeId macro() {
    const std::uint32_t line = take().line;
    std::string name = take_name("the macro's name");
    expect_sign("(");
    std::vector<NodeId> parts = {kNoNode};
    while (!skip_sign(")")) {
      if (parts.size() > 1) expect_sign(",");
      const std::uint32_t at = now().line;
      std::string parameter = take_name("a parameter");
      if (skip_sign("=")) {
        parts.push_back(add(Kind::keyword, at, {expression()}, std::move(parameter)));
      } else {
        parts.push_back(add(Kind::name, at, {}, std::move(parameter)));
      }
    }
    end_tag();
    const int loops = std::exchange(loops_, 0);
    parts[0] = block_to("endmacro");
    loops_ = loops;
    return add(Kind::macro, line, std::move(parts), std::move(name));
  }

  NodeId filter_block() {
    const std::uint32_t line = take().line;
    const NodeId filter = filters_from(add(Kind::input, line, {}));
    end_tag();
    return add(Kind::filter_block, line, {filter, block_to("endfilter")});
  }

  NodeId with() {
    const std::uint32_t line = take().line;
    std::vector<NodeId> parts = {kNoNode};
    while (now().type != Type::block_end) {
      if (parts.size() > 1) expect_sign(",");
      parts.push_back(targets(""));
      expect_sign("=");
      parts.push_back(expression());
    }
    end_tag();
    parts[0] = block_to("endwith");
    return add(Kind::with, line, std::move(parts));
  }

  // The generation tag marks model output for training; here only its content matters.
  NodeId generation() {
    take();
    end_tag();
    return block_to("endgeneration");
  }

  NodeId leave() {
    if (loops_ == 0) wrong(now().text, " outside of a loop");
    const Token word = take();
    end_tag();
    return add(word.text == "break" ? Kind::break_loop : Kind::continue_loop, word.line, {});
  }

  // Names to assign to: a, a.b, or several separated by commas, with or without brackets.
  NodeId targets(std::string_view end) {
    const std::uint32_t line = now().line;
    std::vector<NodeId> list;
    bool several = false;
    do {
      if (now().is_name(end) || now().is_sign("=") || now().is_sign(")")) break;
      list.push_back(target());
      several = several || now().is_sign(",");
    } while (skip_sign(","));
    if (list.empty()) wrong("expected a name, found ", shown(now()));
    return several ? add(Kind::tuple, line, std::move(list)) : list[0];
  }

  NodeId target() {
    const Level level(*this);
    const std::uint32_t line = now().line;
    if (skip_sign("(")) {
      const NodeId inner = targets("");
      expect_sign(")");
      return inner;
    }
    std::string name = take_name("a name");
    constexpr std::array<std::string_view, 6> kTaken = {"true", "false", "none",
                                                        "True", "False", "None"};
    if (std::ranges::find(kTaken, name) != kTaken.end()) wrong("cannot assign to ", name);
    const NodeId root = add(Kind::name, line, {}, std::move(name));
    if (!skip_sign(".")) return root;
    return add(Kind::attribute, line, {root}, take_name("a name"));
  }

  enum class Condition { no, yes };

  // One expression, or several separated by commas (a tuple).
  NodeId tuple(Condition condition = Condition::yes) {
    const std::uint32_t line = now().line;
    std::vector<NodeId> list;
    bool several = false;
    while (true) {
      if (several && ends_tuple()) break;
      list.push_back(condition == Condition::yes ? expression() : either());
      if (!skip_sign(",")) break;
      several = true;
    }
    return several ? add(Kind::tuple, line, std::move(list)) : list[0];
  }
  bool ends_tuple() const {
    return now().type == Type::block_end || now().type == Type::print_end || now().is_sign(")") ||
           now().is_sign("]") || now().is_sign("}");
  }

  NodeId expression() {
    const Level level(*this);
    NodeId value = either();
    while (now().is_name("if")) {
      const std::uint32_t line = take().line;
      const NodeId condition = either();
      const NodeId other = skip_name("else") ? expression() : kNoNode;
      value = add(Kind::conditional, line, {value, condition, other});
    }
    return value;
  }

  NodeId either() { return joined(Kind::either, "or", &Parser::both); }
  NodeId both() { return joined(Kind::both, "and", &Parser::negation); }
  NodeId joined(Kind kind, std::string_view word, NodeId (Parser::*operand)()) {
    NodeId left = (this->*operand)();
    while (now().is_name(word)) {
      const std::uint32_t line = take().line;
      left = add(kind, line, {left, (this->*operand)()});
    }
    return left;
  }
  NodeId negation() {
    if (!now().is_name("not")) return comparison();
    const Level level(*this);
    const std::uint32_t line = take().line;
    return add(Kind::negation, line, {negation()});
  }

  NodeId comparison() {
    const std::uint32_t line = now().line;
    std::vector<NodeId> parts = {sum()};
    while (true) {
      constexpr std::array<std::string_view, 6> kSigns = {"==", "!=", "<=", ">=", "<", ">"};
      const std::uint32_t at = now().line;
      std::string sign;
      if (now().type == Type::sign && std::ranges::find(kSigns, now().text) != kSigns.end()) {
        sign = take().text;
      } else if (skip_name("in")) {
        sign = "in";
      } else if (now().is_name("not") && after().is_name("in")) {
        take();
        take();
        sign = "not in";
      } else {
        break;
      }
      parts.push_back(add(Kind::operand, at, {sum()}, std::move(sign)));
    }
    return parts.size() > 1 ? add(Kind::compare, line, std::move(parts)) : parts[0];
  }

  // Left-associative operators, by level; each level binds tighter than the previous one.
  NodeId sum(std::size_t level = 0) {
    constexpr std::array<std::array<std::string_view, 4>, 4> kLevels = {
        {{"+", "-", "", ""}, {"~", "", "", ""}, {"*", "/", "//", "%"}, {"**", "", "", ""}}};
    if (level == kLevels.size()) return unary(true);
    NodeId left = sum(level + 1);
    while (now().type == Type::sign &&
           std::ranges::find(kLevels[level], now().text) != kLevels[level].end()) {
      const Token sign = take();
      left = add(Kind::binary, sign.line, {left, sum(level + 1)}, sign.text);
    }
    return left;
  }

  NodeId unary(bool with_filters) {
    const Level level(*this);
    const std::uint32_t line = now().line;
    NodeId value = kNoNode;
    if (skip_sign("-")) {
      value = add(Kind::minus, line, {unary(false)});
    } else if (skip_sign("+")) {
      value = add(Kind::plus, line, {unary(false)});
    } else {
      value = primary();
    }
    value = postfix(value);
    return with_filters ? filters(value) : value;
  }

  NodeId primary() {
    const Token token = take();
    if (token.type == Type::name) return named(token);
    if (token.type == Type::text) {
      std::string text = token.text;
      while (now().type == Type::text) text += take().text;
      return add(Kind::literal, token.line, {}, std::move(text));
    }
    if (token.type == Type::integer) {
      return add({.kind = Kind::integer, .line = token.line, .number = *parse_int(token.text)});
    }
    if (token.type == Type::real) return add(Kind::real, token.line, {}, token.text);
    if (token.is_sign("(")) {
      if (skip_sign(")")) return add(Kind::tuple, token.line, {});
      const NodeId inner = tuple();
      expect_sign(")");
      return inner;
    }
    if (token.is_sign("[")) return elements(Kind::list, token.line, "]");
    if (token.is_sign("{")) return elements(Kind::dict, token.line, "}");
    wrong("expected an expression, found ", shown(token));
  }

  NodeId named(const Token& token) {
    const std::string& name = token.text;
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      const bool value = name == "true" || name == "True";
      return add({.kind = Kind::boolean, .line = token.line, .number = value ? 1 : 0});
    }
    if (name == "none" || name == "None") return add(Kind::none, token.line, {});
    return add(Kind::name, token.line, {}, name);
  }

  // The elements of a list, or the alternating keys and values of a dict.
  NodeId elements(Kind kind, std::uint32_t line, std::string_view end) {
    std::vector<NodeId> parts;
    while (!skip_sign(end)) {
      if (!parts.empty()) {
        expect_sign(",");
        if (skip_sign(end)) break;
      }
      parts.push_back(expression());
      if (kind == Kind::list) continue;
      expect_sign(":");
      parts.push_back(expression());
    }
    return add(kind, line, std::move(parts));
  }

  NodeId postfix(NodeId value) {
    while (true) {
      const std::uint32_t line = now().line;
      if (skip_sign(".")) {
        if (now().type == Type::integer) {
          const NodeId index =
              add({.kind = Kind::integer, .line = line, .number = *parse_int(take().text)});
          value = add(Kind::item, line, {value, index});
        } else {
          value = add(Kind::attribute, line, {value}, take_name("a name"));
        }
      } else if (skip_sign("[")) {
        const NodeId index = subscript();
        expect_sign("]");
        value = add(Kind::item, line, {value, index});
      } else if (now().is_sign("(")) {
        value = call(value);
      } else {
        return value;
      }
    }
  }

  NodeId subscript() {
    const std::uint32_t line = now().line;
    const auto bound = [&] {
      return now().is_sign(":") || now().is_sign("]") ? kNoNode : expression();
    };
    const NodeId from = bound();
    if (!skip_sign(":")) {
      if (from == kNoNode) wrong("expected an index, found ", shown(now()));
      return from;
    }
    const NodeId to = bound();
    const NodeId step = skip_sign(":") ? bound() : kNoNode;
    return add(Kind::slice, line, {from, to, step});
  }

  // Appends the arguments in brackets to `parts`.
  void arguments(std::vector<NodeId>& parts) {
    expect_sign("(");
    bool more = false;
    while (!skip_sign(")")) {
      if (more) {
        expect_sign(",");
        if (skip_sign(")")) break;
      }
      more = true;
      if (now().is_sign("*") || now().is_sign("**")) wrong("* in arguments is not supported");
      const std::uint32_t line = now().line;
      if (now().type == Type::name && after().is_sign("=")) {
        std::string name = take().text;
        take();
        parts.push_back(add(Kind::keyword, line, {expression()}, std::move(name)));
      } else {
        parts.push_back(expression());
      }
    }
  }

  NodeId call(NodeId callee) {
    const Level level(*this);
    const std::uint32_t line = now().line;
    std::vector<NodeId> parts = {callee};
    arguments(parts);
    return add(Kind::call, line, std::move(parts));
  }

  NodeId filters(NodeId value) {
    while (true) {
      if (now().is_sign("|")) {
        take();
        value = filter(value);
      } else if (now().is_name("is")) {
        value = test(value);
      } else if (now().is_sign("(")) {
        value = call(value);
      } else {
        return value;
      }
    }
  }
  // Reads the filters of a filter block, whose first filter has no | before it.
  NodeId filters_from(NodeId value) { return filters(filter(value)); }

  NodeId filter(NodeId value) {
    const std::uint32_t line = now().line;
    std::string name = take_name("a filter");
    std::vector<NodeId> parts = {value};
    if (now().is_sign("(")) arguments(parts);
    return add(Kind::filter, line, std::move(parts), std::move(name));
  }

  NodeId test(NodeId value) {
    const std::uint32_t line = take().line;
    const bool negated = skip_name("not");
    std::string name = take_name("a test");
    std::vector<NodeId> parts = {value};
    if (now().is_sign("(")) {
      arguments(parts);
    } else if (begins_argument()) {
      parts.push_back(postfix(primary()));
    }
    const NodeId result = add(Kind::test, line, std::move(parts), std::move(name));
    return negated ? add(Kind::negation, line, {result}) : result;
  }
  bool begins_argument() const {
    const Token& token = now();
    if (token.type == Type::name) {
      return token.text != "else" && token.text != "or" && token.text != "and" &&
             token.text != "is";
    }
    return token.type == Type::text || token.type == Type::integer || token.type == Type::real ||
           token.is_sign("[") || token.is_sign("{");
  }

  std::vector<Token> tokens_;
  std::string_view source_;
  std::size_t at_ = 0;
  Syntax syntax_;
  int depth_ = 0;
  int loops_ = 0;  // number of enclosing loops
};

}  // namespace

Syntax parse(std::string_view source_text, std::string_view source) {
  return Parser(tokenize(source_text, source), source).run();
}

}  // namespace leq::jinja

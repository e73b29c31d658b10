// The tokens and the syntax tree of a template.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace leq::jinja {

struct Token {
  enum class Type : std::uint8_t {
    data,  // text outside of all tags
    block_begin,
    block_end,
    print_begin,
    print_end,
    name,
    text,  // a string literal
    integer,
    real,
    sign,  // an operator or a bracket
    end    // end of the template
  };
  Type type = Type::end;
  std::string text;  // the token's value: a literal without quotes and escapes
  std::uint32_t line = 1;

  bool is_name(std::string_view name) const { return type == Type::name && text == name; }
  bool is_sign(std::string_view sign) const { return type == Type::sign && text == sign; }
};

// Throws Error naming `source`, the line and the unexpected text. The last token is `end`.
std::vector<Token> tokenize(std::string_view source_text, std::string_view source);

// The syntax tree: nodes in one list, which refer to each other by index.
using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = 0xffffffff;

// The children are listed beside each kind; a child in [] may be kNoNode.
enum class Kind : std::uint8_t {
  // Statements
  block,         // statements
  data,          // (text)
  print,         // expressions
  branch,        // condition, block, [else: block or branch]
  loop,          // target, iterated, [filter], block, [else]; flag: recursive
  assign,        // target, expression
  assign_block,  // target, block, [filter around `input`]
  macro,         // (text: name) block, parameters (name or keyword) ...
  filter_block,  // filter around `input`, block
  with,          // block, then alternating targets and expressions
  break_loop,
  continue_loop,
  // Expressions
  literal,  // (text)
  integer,  // (number)
  real,     // (text)
  boolean,  // (number)
  none,
  name,       // (text)
  list,       // elements
  tuple,      // elements
  dict,       // alternating keys and values
  attribute,  // value (text: name)
  item,       // value, index
  slice,      // [from], [to], [step]
  call,       // callee, arguments
  keyword,    // (text: name) value; an argument only
  filter,     // value, arguments (text: name)
  test,       // value, arguments (text: name)
  negation,   // not
  minus,
  plus,
  both,         // and
  either,       // or
  binary,       // (text: sign) left, right
  compare,      // first, operands
  operand,      // (text: sign, "in" or "not in") value
  conditional,  // value, condition, [else]
  input,        // the content of a filter block
};

struct Node {
  Kind kind = Kind::none;
  std::uint32_t line = 0;
  std::uint32_t depth = 1;  // depth of the subtree
  std::int64_t number = 0;
  std::string text = {};
  std::vector<NodeId> children = {};
};

struct Syntax {
  std::vector<Node> nodes;
  NodeId root = 0;
};

// Throws Error naming `source`, the line, and the expected or the unsupported construct.
Syntax parse(std::string_view source_text, std::string_view source);

}  // namespace leq::jinja

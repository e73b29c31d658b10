// A template as a tree: nodes in one list, which name each other by their places in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace leq::jinja {

using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = 0xffffffff;

// What children are stands beside each kind; [x] may be kNoNode.
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
  with,          // block, targets and expressions by turns
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
  dict,       // keys and values by turns
  attribute,  // value (text: name)
  item,       // value, index
  slice,      // [from], [to], [step]
  call,       // callee, arguments
  keyword,    // (text: name) value; in arguments
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
  input,        // what a filter block holds
};

struct Node {
  Kind kind = Kind::none;
  std::uint32_t line = 0;
  std::uint32_t depth = 1;  // of the tree below
  std::int64_t number = 0;
  std::string text = {};
  std::vector<NodeId> children = {};
};

struct Syntax {
  std::vector<Node> nodes;
  NodeId root = 0;
};

// Throws Error naming `source`, the line, and what is expected or not supported there.
Syntax parse(std::string_view source_text, std::string_view source);

}  // namespace leq::jinja

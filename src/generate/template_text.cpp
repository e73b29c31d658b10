#include "generate/template_text.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/text.h"

namespace leq {
namespace {

constexpr std::string_view kSpace = " \t\n\r\f\v";

enum class TagKind { statement, output, comment };

// One {% %}, {{ }} or {# #} and the text in front of it.
struct Tag {
  std::string_view text_before;
  TagKind kind = TagKind::statement;
  std::string_view inside;
  bool trims_left = false;   // {%-
  bool trims_right = false;  // -%}
};

// Offset after the string literal that starts at `at`.
std::size_t skip_literal(std::string_view text, std::size_t at) {
  const char quote = text[at++];
  while (at < text.size() && text[at] != quote) at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

std::size_t find_tag(std::string_view text) {
  for (std::size_t at = 0; at + 1 < text.size(); ++at) {
    if (text[at] == '{' && (text[at + 1] == '%' || text[at + 1] == '{' || text[at + 1] == '#')) {
      return at;
    }
  }
  return std::string_view::npos;
}

// Offset of the two characters that close a tag whose inside starts at `at`.
std::size_t find_close(std::string_view text, std::size_t at, TagKind kind) {
  const std::string_view close = kind == TagKind::comment     ? "#}"
                                 : kind == TagKind::statement ? "%}"
                                                              : "}}";
  while (at < text.size()) {
    if (text.substr(at).starts_with(close)) return at;
    const bool literal = kind != TagKind::comment && (text[at] == '\'' || text[at] == '"');
    at = literal ? skip_literal(text, at) : at + 1;
  }
  return std::string_view::npos;
}

// Takes the next tag off `text`; false where there is none, or none that ends.
bool take_tag(std::string_view& text, Tag& tag) {
  const std::size_t open = find_tag(text);
  if (open == std::string_view::npos) return false;
  tag.text_before = text.substr(0, open);
  tag.kind = text[open + 1] == '%'   ? TagKind::statement
             : text[open + 1] == '{' ? TagKind::output
                                     : TagKind::comment;
  const std::size_t close = find_close(text, open + 2, tag.kind);
  if (close == std::string_view::npos) return false;
  tag.inside = text.substr(open + 2, close - open - 2);
  tag.trims_left = tag.inside.starts_with('-');
  if (tag.trims_left || tag.inside.starts_with('+')) tag.inside.remove_prefix(1);
  tag.trims_right = tag.inside.ends_with('-');
  if (tag.trims_right || tag.inside.ends_with('+')) tag.inside.remove_suffix(1);
  text.remove_prefix(close + 2);
  return true;
}

// What is printed of the text between two tags; `before` is null at the start, `after` at the end.
std::string_view printed_text(std::string_view text, const Tag* before, const Tag* after) {
  std::size_t eaten = 0;
  if (before != nullptr && before->trims_right) {
    eaten = std::min(text.find_first_not_of(kSpace), text.size());
  } else if (before != nullptr && before->kind != TagKind::output && text.starts_with('\n')) {
    eaten = 1;  // trim_blocks
  }
  const bool at_line_start = eaten > 0 ? text[eaten - 1] == '\n' : before == nullptr;
  text.remove_prefix(eaten);
  if (after == nullptr) return text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
  const std::size_t last = text.find_last_not_of(kSpace) + 1;  // 0: nothing but space
  if (after->trims_left) return text.substr(0, last);
  const std::size_t line = text.rfind('\n') + 1;  // 0: no newline
  const bool strips = after->kind != TagKind::output && last <= line && (line > 0 || at_line_start);
  return strips ? text.substr(0, line) : text;  // lstrip_blocks
}

// A string literal in single quotes with newlines and tabs escaped.
std::string canonical_literal(std::string_view literal) {
  const char quote = literal.front();
  std::string out = "'";
  for (std::size_t i = 1; i + 1 < literal.size(); ++i) {
    const char c = literal[i];
    if (c == '\\' && i + 2 < literal.size()) {
      const char next = literal[++i];
      out += next == '"' ? std::string("\"") : std::string("\\") + next;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\'' && quote == '"') {
      out += "\\'";
    } else {
      out += c;
    }
  }
  return out + "'";
}

// Code between literals: no white space, fields in brackets, methods as filters.
std::string canonical_code(std::string_view code) {
  std::string out;
  for (const char c : code) {
    if (kSpace.find(c) == std::string_view::npos) out += c;
  }
  out = replace_all(std::move(out), ".strip()", "|trim");
  out = replace_all(std::move(out), ".role", "['role']");
  return replace_all(std::move(out), ".content", "['content']");
}

std::string canonical_inside(std::string_view inside) {
  std::string out;
  std::size_t literal_end = std::string::npos;  // in `out`, after the last literal
  for (std::size_t at = 0; at < inside.size();) {
    const std::size_t quote = std::min(inside.find_first_of("'\"", at), inside.size());
    out += canonical_code(inside.substr(at, quote - at));
    if (quote == inside.size()) break;
    at = skip_literal(inside, quote);
    const std::string literal = canonical_literal(inside.substr(quote, at - quote));
    const std::size_t next = inside.find_first_not_of(kSpace, at);
    // 'a' + 'b' is 'ab', but for 'a' + 'b' | trim and the like.
    const bool binds = next != std::string_view::npos &&
                       std::string_view("|.[*%").find(inside[next]) != std::string_view::npos;
    if (!binds && literal_end != std::string::npos && out.size() == literal_end + 1 &&
        out.back() == '+') {
      out.resize(literal_end - 1);
      out += literal.substr(1);
    } else {
      out += literal;
    }
    literal_end = out.size();
  }
  return out;
}

void append_tag(TemplateText& result, const Tag& tag) {
  if (tag.kind == TagKind::comment) return;
  const bool output = tag.kind == TagKind::output;
  const std::string inside = canonical_inside(tag.inside);
  const std::string whole = output ? "{{" + inside + "}}" : "{%" + inside + "%}";
  if (output && !inside.starts_with("raise_exception(")) result.outputs.push_back(whole);
  result.canonical += whole;
}

}  // namespace

TemplateText canonical_template(std::string_view jinja) {
  TemplateText result;
  const auto print = [&](std::string_view text) {
    result.prints_plain_text = result.prints_plain_text || !text.empty();
    result.canonical += text;
  };
  Tag before, tag;
  bool first = true;
  while (take_tag(jinja, tag)) {
    print(printed_text(tag.text_before, first ? nullptr : &before, &tag));
    append_tag(result, tag);
    before = tag;
    first = false;
  }
  print(printed_text(jinja, first ? nullptr : &before, nullptr));
  return result;
}

std::string unescape_literal(std::string_view literal) {
  std::string out;
  for (std::size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out += literal[i];
      continue;
    }
    const char c = literal[++i];
    out += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
  }
  return out;
}

}  // namespace leq

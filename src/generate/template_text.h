// The text of a Jinja chat template in one spelling, so that it can be recognised by substrings:
// no comments, no white space that has no effect, one kind of quotes, one way to write a field.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace leq {

struct TemplateText {
  // All tags one after another, with what lies between them where it is printed:
  //   {%- if message.role == "user" %}\n  {{- "a" + 'b' }}   ->
  //   {%ifmessage['role']=='user'%}{{'ab'}}
  std::string canonical;
  std::vector<std::string> outputs;  // the {{...}} among them, but for raise_exception
  bool prints_plain_text = false;    // something outside of the tags is printed
};

// Never fails: what is no Jinja becomes a text that no format is recognised in. White space between
// tags follows Jinja with trim_blocks and lstrip_blocks, as model repositories use it.
TemplateText canonical_template(std::string_view jinja);

// The text that a canonical string literal stands for, without its quotes: \n, \t, \', \\ resolved.
std::string unescape_literal(std::string_view literal);

}  // namespace leq

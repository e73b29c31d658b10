// Any bytes as a model's chat template: a conversation is rendered, or an Error is thrown.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chat/chat_template.h"
#include "fuzz/seeded.h"

namespace {

std::vector<std::string> examples() {
  return {
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
      "message.content | trim + '<|im_end|>'}}{% endfor %}{%- if add_generation_prompt %}x{% endif "
      "%}",
      "{%- macro show(a, b=2) -%}{{ a ~ b }}{%- endmacro -%}{% set ns = namespace(n=0, l=[1, 2]) %}"
      "{% for m in messages if m.role != 'system' %}{% set ns.n = ns.n + loop.index0 * 2 %}"
      "{{ show(m.content.split('</think>')[-1].lstrip('\\n'), b=loop.last) }}{% endfor %}{{ ns.n "
      "}}",
      "{% if tools is defined and tools %}{% for t in tools %}{{ t | tojson(indent=2) }}"
      "{% endfor %}{% elif not messages %}{{ raise_exception('no') }}{% else %}-{% endif %}",
      "{{ messages[::-1][0].content[1:] | upper | replace('U', 'v') | default('d') | length }}"
      "{{ (messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list)[0] "
      "}}"
      "{{ 'a' in ['a'] and 7 // 2 ** 2 % 3 == 1 if true else none }}",
      "{# note #}{% for k, v in {'a': 1, 'b': [2.5]}.items() %}{{ k }}={{ v }}{% else %}{% endfor "
      "%}"
      "{% set x %}t{% endset %}{{ x | join(',') }}{% filter upper %}f{% endfilter %}"};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const leq::Json conversation = leq::parse_json(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": " u\n"},
          {"role": "assistant", "content": "<think>t</think> a", "tool_calls": [{"id": "1",
           "type": "function", "function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]},
          {"role": "tool", "content": "r", "tool_call_id": "1"}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]})",
      "conversation");
  try {
    const auto chat = leq::ChatTemplate::of_model(
        std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    chat.render({.messages = conversation["messages"], .tools = conversation["tools"]}, {});
  } catch (const leq::Error&) {
    // refusing the input is valid
  }
  return 0;
}

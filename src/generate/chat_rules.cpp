// By what the text of each known template is recognised.
#include "generate/chat_format.h"

namespace leq {
namespace {

constexpr std::string_view kChatMlMessage =
    R"({{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }})";
constexpr std::string_view kChatMlReply =
    R"({% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";
constexpr std::string_view kToolTail =
    R"({{ '\n</tool_response>' }}{% if loop.last or (messages[loop.index0 + 1].role != 'tool') %})"
    R"({{ '<|im_end|>\n' }}{% endif %}{% endif %}{% endfor %}{% if add_generation_prompt %})";
constexpr std::string_view kThinkingReply =
    R"({% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }})"
    R"({% if enable_thinking is defined and enable_thinking is false %})"
    R"({{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %})";
constexpr std::string_view kAlternate =
    R"({% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception()"
    R"('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %})";
constexpr std::string_view kTakeSystem =
    R"({% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %})"
    R"({% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% endif %})";

std::vector<ChatRule> chatml_rules() {
  return {
      {.format = "chatml",
       .required = {kChatMlMessage, kChatMlReply},
       .forbidden = {"system", "{%setmessages", "{%setcontent", "split(", "think"},
       .closed = true},
      {.format = "chatml",
       .required = {R"({% for message in messages %})"
                    R"({% if loop.first and messages[0]['role'] != 'system' %})",
                    kChatMlMessage, kChatMlReply},
       .forbidden = {"{%setmessages", "{%setcontent", "split(", "think"},
       .closed = true,
       .default_from = R"({%ifloop.firstandmessages[0]['role']!='system'%}{{'<|im_start|>system\n)",
       .default_to = R"(<|im_end|>\n'}})"},
      {.format = "qwen2.5",
       .required = {R"({% if messages[0]['role'] == 'system' %}{{ '<|im_start|>system\n' + )"
                    R"(messages[0]['content'] + '<|im_end|>\n' }}{% else %})",
                    R"({% for message in messages %}{% if (message.role == 'user') or )"
                    R"((message.role == 'system' and not loop.first) or )"
                    R"((message.role == 'assistant' and not message.tool_calls) %})",
                    kChatMlMessage, kToolTail, kChatMlReply},
       .forbidden = {"{%setmessages", "{%setcontent", "split(", "think"},
       .default_from = R"({%else%}{{'<|im_start|>system\n)",
       .default_to = R"(<|im_end|>\n'}}{%endif%}{%endif%}{%formessageinmessages%})"},
      {.format = "qwen3-simple",
       .required = {R"({% if '</think>' in content %}{% set content = )"
                    R"(content.split('</think>')[-1].lstrip('\n') %}{% endif %})"
                    R"({{ '<|im_start|>assistant\n' + content + '<|im_end|>\n' }})",
                    kChatMlMessage, kThinkingReply},
       .forbidden = {"system", "{%setmessages", "reasoning"},
       .closed = true},
  };
}

std::vector<ChatRule> qwen3_rules() {
  constexpr std::string_view kSystem =
      R"({% if messages[0].role == 'system' %}{{ '<|im_start|>system\n' + )"
      R"(messages[0].content + '<|im_end|>\n' }}{% endif %}{% endif %})"
      R"({% set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %})";
  constexpr std::string_view kReply =
      R"({% if loop.index0 > ns.last_query_index %})"
      R"({% if loop.last or (not loop.last and reasoning_content) %})"
      R"({{ '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + )"
      R"('\n</think>\n\n' + content.lstrip('\n') }})"
      R"({% else %}{{ '<|im_start|>' + message.role + '\n' + content }}{% endif %})"
      R"({% else %}{{ '<|im_start|>' + message.role + '\n' + content }}{% endif %})"
      R"({% if message.tool_calls %})";
  constexpr std::string_view kScan =
      R"({% for message in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %})";
  constexpr std::string_view kFound =
      R"({% set ns.multi_step_tool = false %}{% set ns.last_query_index = index %}{% endif %}{% endfor %})"
      R"({% for message in messages %})";
  constexpr std::string_view kEnd =
      R"({% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% elif message.role == 'tool' %})";
  return {
      {.format = "qwen3",
       .required = {kSystem,
                    R"({% if ns.multi_step_tool and message.role == 'user' and )"
                    R"(not(message.content.startswith('<tool_response>') and )"
                    R"(message.content.endswith('</tool_response>')) %})",
                    R"({% if '</think>' in message.content %}{% set content = )"
                    R"(message.content.split('</think>')[-1].lstrip('\n') %})"
                    R"({% set reasoning_content = message.content.split('</think>')[0])"
                    R"(.rstrip('\n').split('<think>')[-1].lstrip('\n') %}{% endif %})",
                    kChatMlMessage, kScan, kFound, kReply, kEnd, kToolTail, kThinkingReply},
       .forbidden = {"{%setmessages"}},
      {.format = "qwen3",
       .required =
           {kSystem,
            R"({% if ns.multi_step_tool and message.role == 'user' and )"
            R"(message.content is string and )"
            R"(not(message.content.startswith('<tool_response>') and )"
            R"(message.content.endswith('</tool_response>')) %})",
            R"({% if message.content is string %}{% set content = message.content %}{% else %})"
            R"({% set content = '' %}{% endif %})",
            R"({% if '</think>' in content %}{% set reasoning_content = )"
            R"(content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %})"
            R"({% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %})",
            R"({{ '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }})", kReply,
            kThinkingReply},
       .forbidden = {"{%setmessages"}},
  };
}

constexpr std::string_view kSysBlock =
    R"({% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %})"
    R"({% else %}{% set content = message['content'] %}{% endif %})";
constexpr std::string_view kLlama2Messages =
    R"({% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content | trim + ' [/INST]' }})"
    R"({% elif message['role'] == 'assistant' %}{{ ' ' + content | trim + ' ' + eos_token }})";
constexpr std::string_view kLlama2System =
    R"({% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %})"
    R"({% set system_message = messages[0]['content'] %}{% else %})"
    R"({% set loop_messages = messages %}{% set system_message = false %}{% endif %})";

std::vector<ChatRule> llama2_rules() {
  return {
      {.format = "llama2",
       .required = {kLlama2System, kAlternate,
                    R"({% if loop.index0 == 0 and system_message != false %})", kSysBlock,
                    kLlama2Messages},
       .forbidden = {},
       .closed = true},
      {.format = "llama2-any-order",
       .required = {kLlama2System, R"({% if loop.index0 == 0 and system_message %})", kSysBlock,
                    kLlama2Messages},
       .forbidden = {"raise_exception"},
       .closed = true},
  };
}

std::vector<ChatRule> llama3_rules() {
  ChatRule dated = {
      .format = "llama3.1",
      .required =
          {R"({% if messages[0]['role'] == 'system' %})"
           R"({% set system_message = messages[0]['content'] | trim %})"
           R"({% set messages = messages[1:] %}{% else %}{% set system_message = '' %}{% endif %})"
           R"({{ '<|start_header_id|>system<|end_header_id|>\n\n' }})",
           R"({{ 'Cutting Knowledge Date: December 2023\n' }})"
           R"({{ 'Today Date: ' + date_string + '\n\n' }})",
           R"({{ system_message }}{{ '<|eot_id|>' }})",
           R"({% for message in messages %}{% if not (message.role == 'ipython' or )"
           R"(message.role == 'tool' or 'tool_calls' in message) %})"
           R"({{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + )"
           R"(message['content'] | trim + '<|eot_id|>' }}{% elif 'tool_calls' in message %})",
           R"({% if not tools is defined %}{% set tools = none %}{% endif %})",
           R"({% if tools_in_user_message and not tools is none %})",
           R"({{ '<|eot_id|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %})"
           R"({{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})"},
      .forbidden = {}};
  ChatRule today = dated;
  dated.required.push_back("{% set date_string = '26 Jul 2024' %}");
  dated.forbidden.push_back("strftime_now");
  today.format = "llama3.2";
  today.required.push_back(
      "{% if strftime_now is defined %}{% set date_string = strftime_now('%d %b %Y') %}");
  return {{.format = "llama3",
           .required = {R"({% set content = '<|start_header_id|>' + message['role'] + )"
                        R"('<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' %})"
                        R"({% if loop.index0 == 0 %}{% set content = bos_token + content %})"
                        R"({% endif %}{{ content }}{% endfor %})",
                        R"({{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }})"},
           .forbidden = {"'system'", "{%setmessages"},
           .closed = true},
          dated,
          today};
}

constexpr std::string_view kPlainMistralUser =
    R"({{ bos_token }}{% for message in messages %})"
    R"({% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception()"
    R"('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %})"
    R"({% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }})";
constexpr std::string_view kBosAndMessages =
    R"({{ bos_token }}{% for message in loop_messages %}{% if message['role'] == 'user' %})";
constexpr std::string_view kToolsAlternate =
    R"({% if (message['role'] == 'user') != (ns.index % 2 == 0) %}{{ raise_exception()"
    R"('After the optional system message, conversation roles must alternate )"
    R"(user/assistant/user/assistant/...') }}{% endif %}{% set ns.index = ns.index + 1 %})";
std::vector<ChatRule> mistral_rules() {
  return {
      {.format = "mistral-v0.2",
       .required = {kPlainMistralUser, "{% else %}{{ message['content'] + eos_token }}{% endif %}"},
       .forbidden = {},
       .closed = true},
      {.format = "mistral-v0.2",
       .required = {kPlainMistralUser,
                    "{% elif message['role'] == 'assistant' %}"
                    "{{ message['content'] + eos_token }}{% else %}"},
       .forbidden = {},
       .closed = true},
      {.format = "mistral-v0.1",
       .required = {kPlainMistralUser,
                    "{% elif message['role'] == 'assistant' %}"
                    "{{ message['content'] + eos_token + ' ' }}{% else %}"},
       .forbidden = {},
       .closed = true},
      {.format = "mistral-v1",
       .required =
           {kTakeSystem, "{{ bos_token }}{% for message in loop_messages %}",
            R"({% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %})",
            R"({% if loop.first and system_message is defined %})"
            R"({{ ' [INST] ' + system_message + '\n\n' + message['content'] + ' [/INST]' }})"
            R"({% else %}{{ ' [INST] ' + message['content'] + ' [/INST]' }}{% endif %})",
            R"({% elif message['role'] == 'assistant' %})"
            R"({{ ' ' + message['content'] + eos_token }}{% else %})"},
       .forbidden = {},
       .closed = true},
  };
}

std::vector<ChatRule> mistral_v3_rules() {
  return {
      {.format = "mistral-v3",
       .required = {kTakeSystem, kToolsAlternate, kBosAndMessages,
                    R"({% if loop.last and system_message is defined %})"
                    R"({{ '[INST] ' + system_message + '\n\n' + message['content'] + '[/INST]' }})"
                    R"({% else %}{{ '[INST] ' + message['content'] + '[/INST]' }}{% endif %})",
                    R"({% elif message['role'] == 'assistant' %})"
                    R"({{ ' ' + message['content'] | trim + eos_token }})"},
       .forbidden = {}},
      {.format = "mistral-v3-tekken",
       .required =
           {kTakeSystem, kToolsAlternate, kBosAndMessages,
            R"({% if loop.last and system_message is defined %})"
            R"({{ '[INST]' + system_message + '\n\n' + message['content'] + '[/INST]' }})"
            R"({% else %}{{ '[INST]' + message['content'] + '[/INST]' }}{% endif %})",
            R"({% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }})"},
       .forbidden = {}},
      {.format = "ministral-8b",
       .required = {kTakeSystem, kToolsAlternate, kBosAndMessages,
                    R"({% if loop.last and system_message is defined %})"
                    R"({{ '[INST]' + system_message + '\n\n' + message['content'] + '[/INST]' }})"
                    R"({% else %}{{ '[INST]' + message['content'] + '[/INST]' }}{% endif %})",
                    R"({% elif message['role'] == 'assistant' %})"
                    R"({{ ' ' + message['content'] | trim + eos_token }})"},
       .forbidden = {}},
      {.format = "mistral-v7",
       .required =
           {R"({{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %})"
            R"({{ '[INST] ' + message['content'] + '[/INST]' }})"
            R"({% elif message['role'] == 'system' %})"
            R"({{ '[SYSTEM_PROMPT] ' + message['content'] + '[/SYSTEM_PROMPT]' }})"
            R"({% elif message['role'] == 'assistant' %})"
            R"({{ ' ' + message['content'] + eos_token }}{% else %})"},
       .forbidden = {},
       .closed = true},
  };
}

constexpr std::string_view kGather =
    R"({% set ns_sys.system_parts = ns_sys.system_parts + [message['content']] %})";
constexpr std::string_view kSystem =
    R"({% set system_message = ns_sys.system_parts | join('\n\n') %}{% else %})"
    R"({% set system_message = default_system_message %}{% endif %})"
    R"({% set loop_messages = ns_sys.filtered %})";
constexpr std::string_view kMerge = R"({% set merged_content = ns_c.text_parts | join('\n\n') %})";
constexpr std::string_view kMerged = R"({% set loop_messages = ns_agg.messages %})";
constexpr std::string_view kSystemMessage =
    R"({% elif message['role'] == 'system' %}{{ '[SYSTEM_PROMPT]' }}{{ render_content()"
    R"(content=message['content'], context_name='system message contents') }})"
    R"({{ '[/SYSTEM_PROMPT]' }})";
constexpr std::string_view kDefaultSystem =
    R"({% if messages[0]['role'] != 'system' and default_system_message != '' %})"
    R"({{ '[SYSTEM_PROMPT]' + default_system_message + '[/SYSTEM_PROMPT]' }}{% endif %})";
constexpr std::string_view kTightUser =
    R"({{ '[INST]' }}{{ render_content(content=message['content'], )"
    R"(context_name='user message content') }}{{ '[/INST]' }})";
constexpr std::string_view kTightAssistant =
    R"({{ render_content(content=message['content'], context_name='assistant message contents') }})";
constexpr std::string_view kFrom = "{%setdefault_system_message='";
constexpr std::string_view kTo = "'%}";

// The templates that Mistral's own library writes, one for each version of its tokenizers.
std::vector<ChatRule> mistral_common_rules() {
  const std::vector<std::string_view> others = {"[THINK]", "[IMG]", "strftime_now", "<think>"};
  return {
      {.format = "mistral-v1-common",
       .required =
           {kGather, kSystem, kMerge, kMerged,
            R"({{ '[INST] ' }}{% if loop.index0 == 0 and system_message != '' %})"
            R"({{ system_message + '\n\n' }}{% endif %}{% if message['content'] is string %})"
            R"({{ message['content'] }})",
            R"({{ ' [/INST]' }}{% elif message['role'] == 'assistant' %})", "{{ eos_token }}"},
       .forbidden = others,
       .default_from = kFrom,
       .default_to = kTo},
      {.format = "mistral-v3-common",
       .required =
           {kGather, kSystem, kMerge, kMerged,
            R"({{ '[INST]' }}{% if (ns.index == ns.max_idx_user) and system_message != '' %})"
            R"({{ system_message + '\n\n' }}{% endif %}{% if message['content'] is string %})"
            R"({{ render_content(content=message['content'], )"
            R"(context_name='user message content') }})",
            R"({{ '[/INST]' }}{% elif message['role'] == 'assistant' %})", kTightAssistant,
            "{{ eos_token }}"},
       .forbidden = others,
       .default_from = kFrom,
       .default_to = kTo},
      {.format = "mistral-v7-common",
       .required = {kDefaultSystem, kMerge, kMerged, kTightUser, kTightAssistant, kSystemMessage,
                    "{{ eos_token }}"},
       .forbidden = others,
       .default_from = kFrom,
       .default_to = kTo},
      {.format = "mistral-v7-common",
       .required = {kDefaultSystem, kMerge, kMerged,
                    R"({% set user_content = message['content'] %}{% endif %}{{ '[INST]' }})"
                    R"({{ render_content(content=user_content, )"
                    R"(context_name='user message content') }}{{ '[/INST]' }})",
                    kTightAssistant, kSystemMessage, "{{ eos_token }}"},
       .forbidden = others,
       .default_from = kFrom,
       .default_to = kTo},
  };
}

}  // namespace

std::span<const ChatRule> chat_rules() {
  static const std::vector<ChatRule> rules = [] {
    std::vector<ChatRule> all;
    for (const auto& family : {chatml_rules(), qwen3_rules(), llama2_rules(), llama3_rules(),
                               mistral_rules(), mistral_v3_rules(), mistral_common_rules()}) {
      all.insert(all.end(), family.begin(), family.end());
    }
    return all;
  }();
  return rules;
}

}  // namespace leq

// The table of formats, in the order of docs/chat-templates.md, which documents their output.
#include "chat/chat_format.h"

namespace leq {
namespace {

constexpr MessageMarks kChatMlSystem = {"<|im_start|>system\n", "<|im_end|>\n"};
constexpr MessageMarks kChatMlUser = {"<|im_start|>user\n", "<|im_end|>\n"};
constexpr MessageMarks kChatMlAssistant = {"<|im_start|>assistant\n", "<|im_end|>\n"};
constexpr std::string_view kChatMlReply = "<|im_start|>assistant\n";

constexpr MessageMarks kLlama3System = {"<|start_header_id|>system<|end_header_id|>\n\n",
                                        "<|eot_id|>", true};
constexpr MessageMarks kLlama3DatedSystem = {
    "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
    "Today Date: {date}\n\n",
    "<|eot_id|>", true};
constexpr MessageMarks kLlama3User = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>",
                                      true};
constexpr MessageMarks kLlama3Assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n",
                                           "<|eot_id|>", true};
constexpr std::string_view kLlama3Reply = "<|start_header_id|>assistant<|end_header_id|>\n\n";

constexpr MessageMarks kLlama2System = {"<<SYS>>\n", "\n<</SYS>>\n\n"};
constexpr MessageMarks kLlama2User = {"{bos}[INST] ", " [/INST]", true};
constexpr MessageMarks kLlama2Assistant = {" ", " {eos}", true};

constexpr MessageMarks kMistralSystem = {"", "\n\n"};
constexpr MessageMarks kMistralWideUser = {"[INST] ", " [/INST]"};
constexpr MessageMarks kMistralHalfWideUser = {"[INST] ", "[/INST]"};
constexpr MessageMarks kMistralTightUser = {"[INST]", "[/INST]"};
constexpr MessageMarks kMistralTightAssistant = {"", "{eos}"};

constexpr ChatFormat kFormats[] = {
    {.name = "chatml",
     .system = kChatMlSystem,
     .user = kChatMlUser,
     .assistant = kChatMlAssistant,
     .reply = kChatMlReply,
     .end = "<|im_end|>"},
    {.name = "qwen2.5",
     .system = kChatMlSystem,
     .user = kChatMlUser,
     .assistant = kChatMlAssistant,
     .reply = kChatMlReply,
     .end = "<|im_end|>",
     .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {.name = "qwen3",
     .system = kChatMlSystem,
     .user = kChatMlUser,
     .assistant = kChatMlAssistant,
     .reply = kChatMlReply,
     .end = "<|im_end|>",
     .thinking = Thinking::kept_after_ask},
    {.name = "qwen3-simple",
     .system = kChatMlSystem,
     .user = kChatMlUser,
     .assistant = kChatMlAssistant,
     .reply = kChatMlReply,
     .end = "<|im_end|>",
     .thinking = Thinking::dropped},
    {.name = "llama2",
     .system = kLlama2System,
     .user = kLlama2User,
     .assistant = kLlama2Assistant,
     .end = "{eos}",
     .system_place = SystemPlace::first_user,
     .order = RoleOrder::alternate},
    {.name = "llama2-any-order",
     .system = kLlama2System,
     .user = kLlama2User,
     .assistant = kLlama2Assistant,
     .end = "{eos}",
     .system_place = SystemPlace::first_user,
     .drops_empty_system = true},
    {.name = "llama3",
     .start = "{bos}",
     .system = kLlama3System,
     .user = kLlama3User,
     .assistant = kLlama3Assistant,
     .reply = kLlama3Reply,
     .end = "<|eot_id|>"},
    {.name = "llama3.1",
     .start = "{bos}",
     .system = kLlama3DatedSystem,
     .user = kLlama3User,
     .assistant = kLlama3Assistant,
     .further_system = kLlama3System,
     .reply = kLlama3Reply,
     .end = "<|eot_id|>",
     .system_place = SystemPlace::first_always,
     .default_date = "26 Jul 2024"},
    {.name = "llama3.2",
     .start = "{bos}",
     .system = kLlama3DatedSystem,
     .user = kLlama3User,
     .assistant = kLlama3Assistant,
     .further_system = kLlama3System,
     .reply = kLlama3Reply,
     .end = "<|eot_id|>",
     .system_place = SystemPlace::first_always},
    {.name = "mistral-v0.1",
     .start = "{bos}",
     .user = kMistralWideUser,
     .assistant = {"", "{eos} "},
     .end = "{eos}",
     .system_place = SystemPlace::refused,
     .order = RoleOrder::alternate},
    {.name = "mistral-v0.2",
     .start = "{bos}",
     .user = kMistralWideUser,
     .assistant = kMistralTightAssistant,
     .end = "{eos}",
     .system_place = SystemPlace::refused,
     .order = RoleOrder::alternate},
    {.name = "mistral-v1",
     .start = "{bos}",
     .system = kMistralSystem,
     .user = {" [INST] ", " [/INST]"},
     .assistant = {" ", "{eos}"},
     .end = "{eos}",
     .system_place = SystemPlace::first_user,
     .order = RoleOrder::alternate},
    {.name = "mistral-v1-common",
     .start = "{bos}",
     .system = kMistralSystem,
     .user = kMistralWideUser,
     .assistant = kMistralTightAssistant,
     .end = "{eos}",
     .system_place = SystemPlace::first_user,
     .drops_empty_system = true,
     .order = RoleOrder::mistral_common},
    {.name = "mistral-v3",
     .start = "{bos}",
     .system = kMistralSystem,
     .user = kMistralHalfWideUser,
     .assistant = {" ", "{eos}", true},
     .end = "{eos}",
     .system_place = SystemPlace::last_message,
     .order = RoleOrder::alternate},
    {.name = "mistral-v3-tekken",
     .start = "{bos}",
     .system = kMistralSystem,
     .user = kMistralTightUser,
     .assistant = kMistralTightAssistant,
     .end = "{eos}",
     .system_place = SystemPlace::last_message,
     .order = RoleOrder::alternate},
    {.name = "ministral-8b",
     .start = "{bos}",
     .system = kMistralSystem,
     .user = kMistralTightUser,
     .assistant = {" ", "{eos}", true},
     .end = "{eos}",
     .system_place = SystemPlace::last_message,
     .order = RoleOrder::alternate},
    {.name = "mistral-v3-common",
     .start = "{bos}",
     .system = kMistralSystem,
     .user = kMistralTightUser,
     .assistant = kMistralTightAssistant,
     .end = "{eos}",
     .system_place = SystemPlace::last_user,
     .drops_empty_system = true,
     .order = RoleOrder::mistral_common},
    {.name = "mistral-v7",
     .start = "{bos}",
     .system = {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"},
     .user = kMistralHalfWideUser,
     .assistant = {" ", "{eos}"},
     .end = "{eos}"},
    {.name = "mistral-v7-common",
     .start = "{bos}",
     .system = {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"},
     .user = kMistralTightUser,
     .assistant = kMistralTightAssistant,
     .end = "{eos}",
     .order = RoleOrder::mistral_common},
};

}  // namespace

std::span<const ChatFormat> chat_formats() { return kFormats; }

}  // namespace leq

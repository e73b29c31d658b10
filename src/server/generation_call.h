// A generation request parsed from a client's JSON: a pure function of the JSON and of the server's
// settings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_tree.h"
#include "engine/engine.h"
#include "generate/chat_template.h"
#include "generate/thoughts.h"
#include "generate/tool_calls.h"
#include "model/sampling_settings.h"
#include "server/api_fields.h"
#include "server/grammar_store.h"

namespace leq {

// Text inserted where thoughts are cut off at their limit.
inline constexpr std::string_view kThoughtWords =
    "\n\nThere is no time left to think; I answer now.\n";

// The model's facts and default settings for parsing a request. All references must outlive it.
struct ApiModel {
  const Tokenizer& tokenizer;
  std::size_t vocabulary = 0;
  std::string name;                    // model name shown to clients
  const ChatTemplate* chat = nullptr;  // null: no chats
  GrammarStore* grammars = nullptr;    // cache of compiled schemas; null: none
  ReplyStyle style = {};               // its format of tool calls and thoughts
  ChatOptions rendering = {};
  SamplingSettings sampling = {};  // defaults of a request; the seed is random
  bool has_seed = false;           // ... unless this is set
  StopRules stop = {};             // for all replies; its limit is a default
  // Default limits on thoughts: most tokens, -1: any number; and the text inserted where they are
  // cut off at the limit.
  std::int64_t thought_tokens = -1;
  std::string thought_words = std::string(kThoughtWords);
  std::string chat_error = {};          // why there are no chats, where `chat` is null
  bool template_has_tools = true;       // the template renders tools
  bool template_has_developer = false;  // the template supports the role
  std::int64_t created = 0;             // seconds since 1970
  std::int64_t slots = 1;               // number of slots, for their indices
  std::int64_t most_choices = 16;       // most replies per request
  std::int64_t most_logprobs = 20;
};

enum class CallStyle : std::uint8_t {
  chat,       // /v1/chat/completions
  text,       // /v1/completions
  native,     // /completion of llama-server
  responses,  // /v1/responses: converted to a chat (responses_request.h)
  messages,   // /v1/messages, Anthropic's: converted to a chat
};
constexpr bool is_chat(CallStyle style) {
  return style != CallStyle::text && style != CallStyle::native;
}

// How a reply's text is split into content and tool calls.
enum class ReplyUse : std::uint8_t {
  plain,   // all of it is content
  read,    // split into content, thoughts and calls (tool_calls.h)
  forced,  // it is one call {"name", "arguments"}, which the client required
};

struct GenerationCall {
  CallStyle style = CallStyle::chat;
  std::vector<std::vector<Token>> prompts;  // each gets `choices` replies
  std::vector<std::string> prompt_texts;    // of chats: the end of the rendered conversation
  std::uint32_t choices = 1;
  SamplingSettings sampling;
  bool has_seed = false;
  StopRules stop;
  std::vector<Token> banned, shown;
  std::shared_ptr<const Grammar> grammar;
  ReplyUse use = ReplyUse::plain;
  bool with_tools = false;
  JsonNode tools = {};  // of the body, which must live as long as the call
  JsonNode asked = {};  // the client's original request, where it was converted to a chat
  std::vector<std::string> notes = {};  // requested features that the reply does not have
  std::shared_ptr<const ThoughtBudget> thoughts;
  int top_logprobs = -1;  // negative: none
  bool stream = false;
  bool include_usage = false;
  bool echo = false;
  bool return_tokens = false;
  std::optional<std::size_t> slot;  // stores the text at the end; nullopt: any slot
};

// Throws Error naming the member at fault. `body` must live as long as the call.
GenerationCall read_generation_call(CallStyle style, JsonNode body, const ApiModel& model);

// Renders the conversation of a body as text parts from "messages", "tools" and the template's
// variables. Throws Error, naming the message if one is at fault.
std::vector<TextPart> render_chat(JsonNode body, const ApiModel& model);

// Reads the prompts of "prompt" or "input": a text, ids, texts and ids mixed, or an array of these.
// Special tokens in texts are recognised; `with_bos`: adds the BOS token as the tokenizer does.
std::vector<std::vector<Token>> read_prompts(JsonNode body, std::string_view name,
                                             const ApiModel& model, bool with_bos,
                                             std::size_t most = 256);

}  // namespace leq

// A request to write something, taken from the JSON of a client: a pure function of it and of what
// the server was started with.
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

// Said before thoughts are ended for being too long.
inline constexpr std::string_view kThoughtWords =
    "\n\nThere is no time left to think; I answer now.\n";

// What a client's JSON is read against. Everything must outlive it.
struct ApiModel {
  const Tokenizer& tokenizer;
  std::size_t vocabulary = 0;
  std::string name;                    // as clients see it
  const ChatTemplate* chat = nullptr;  // null: no chats
  GrammarStore* grammars = nullptr;    // where compiled schemas are kept; null: nowhere
  ReplyStyle style = {};               // how its replies call tools
  ChatOptions rendering = {};
  SamplingSettings sampling = {};  // where a request says nothing; the seed is drawn
  bool has_seed = false;           // ... or is this one
  StopRules stop = {};             // for all replies, with the limit where a request has none
  // Of thoughts where a request says nothing: most tokens, -1: any number; and what is said where
  // they end for that.
  std::int64_t thought_tokens = -1;
  std::string thought_words = std::string(kThoughtWords);
  std::string chat_error = {};          // why there are no chats, where `chat` is null
  bool template_has_tools = true;       // it shows tools to the model
  bool template_has_developer = false;  // it knows the role
  std::int64_t created = 0;             // seconds since 1970
  std::int64_t slots = 1;               // that a request may name
  std::int64_t most_choices = 16;       // replies that one request may ask for
  std::int64_t most_logprobs = 20;
};

enum class CallStyle : std::uint8_t {
  chat,       // /v1/chat/completions
  text,       // /v1/completions
  native,     // /completion, as llama-server has it
  responses,  // /v1/responses: read as a chat (responses_request.h)
  messages,   // /v1/messages, Anthropic's: as well
};
constexpr bool is_chat(CallStyle style) {
  return style != CallStyle::text && style != CallStyle::native;
}

// How a reply's text becomes content and calls of tools.
enum class ReplyUse : std::uint8_t {
  plain,   // it is the content
  read,    // content, thoughts and calls are told apart in it (tool_calls.h)
  forced,  // it is one call as {"name", "arguments"}: the client asked for a call
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
  JsonNode asked = {};  // the request as the client wrote it, where it is no chat of its own form
  std::vector<std::string> notes = {};  // what the request asks for and the reply does not hold
  std::shared_ptr<const ThoughtBudget> thoughts;
  int top_logprobs = -1;  // below 0: none are wanted
  bool stream = false;
  bool include_usage = false;
  bool echo = false;
  bool return_tokens = false;
  std::optional<std::size_t> slot;  // that has the text in the end; nullopt: any
};

// Throws Error naming the member at fault. `body` must live as long as the call.
GenerationCall read_generation_call(CallStyle style, JsonNode body, const ApiModel& model);

// The conversation of a body as text parts; "messages", "tools" and what the template asks for.
// Throws Error naming the message at fault, where it is one.
std::vector<TextPart> render_chat(JsonNode body, const ApiModel& model);

// The prompts of "prompt" or "input": a text, ids, texts and ids mixed, or several of these.
// Special tokens in texts are recognised; `with_bos`: as the tokenizer puts it in front.
std::vector<std::vector<Token>> read_prompts(JsonNode body, std::string_view name,
                                             const ApiModel& model, bool with_bos,
                                             std::size_t most = 256);

}  // namespace leq

// A generation request: parsed from a client's JSON, a pure function of the JSON and the server's
// settings, and answered by the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/adapt.h"
#include "chat/chat_template.h"
#include "chat/reply.h"
#include "chat/tool_calls.h"
#include "engine/engine.h"
#include "model/open_model.h"
#include "sampling/settings.h"
#include "server/fields.h"
#include "server/grammar_store.h"

namespace leq {

class EngineThread;

// Text inserted when reasoning is cut off at its limit.
inline constexpr std::string_view kReasoningWords =
    "\n\nThere is no time left to think; I answer now.\n";

// A model's properties and default settings for parsing requests; the tokenizer must outlive it.
struct ApiModel {
  const Tokenizer& tokenizer;
  std::size_t vocabulary = 0;
  std::string name;                               // model name shown to clients
  std::shared_ptr<const ChatTemplate> chat = {};  // null: no chats
  std::shared_ptr<GrammarStore> grammars = {};    // null: no cache of compiled grammars
  ReplyStyle style = {};                          // format of tool calls and reasoning
  ChatOptions rendering = {};
  SamplingSettings sampling = {};  // defaults of a request; the seed is random
  bool has_seed = false;           // true: `sampling` has a seed to use
  StopRules stop = {};             // its token limit and texts are defaults
  std::string system = {};         // of conversations without a system message; empty: none
  std::string modelfile = {}, parameters = {};  // as Ollama's clients are shown them
  // Default limits on reasoning: maximum tokens (-1: no limit), and the text inserted when it is
  // cut off at the limit.
  std::int64_t reasoning_tokens = -1;
  std::string reasoning_words = std::string(kReasoningWords);
  std::string chat_error = {};      // why chats are unavailable, if `chat` is null
  TemplateTakes takes = {};         // what the template shows of a conversation
  std::int64_t created = 0;         // seconds since 1970
  std::int64_t slots = 1;           // number of slots, to check indices
  std::int64_t most_choices = 16;   // maximum replies per prompt
  std::size_t most_replies = 4096;  // maximum replies per request
  std::int64_t most_logprobs = 20;
  EmbeddingRules embedding = {};
};

// The properties that the model's file alone determines. `format`: the name of a chat format;
// empty: the model's own template. A model whose template is unusable can still complete texts. The
// caller sets sampling and slots. Throws Error if the file has no tokenizer or the format is
// unknown.
ApiModel api_model_of(const Model& model, const std::string& format = "");
// Sets what depends on the text of the model's own template and on `chat` and `rendering`.
void set_style(ApiModel& api, std::string_view chat_template);
// The highest limit on the tokens of a reply that a request may give.
inline constexpr std::int64_t kMaxTokensRequested = 0x7fffffff;

enum class CallStyle : std::uint8_t {
  chat,             // /v1/chat/completions
  text,             // /v1/completions
  native,           // /completion of llama-server
  responses,        // /v1/responses: converted to a chat (dialects.h)
  messages,         // /v1/messages, Anthropic's: converted to a chat
  ollama_chat,      // /api/chat, Ollama's: converted to a chat
  ollama_generate,  // /api/generate: converted to a chat, or to a text if it is raw
};
constexpr bool is_chat(CallStyle style) {
  return style != CallStyle::text && style != CallStyle::native;
}

// How a reply's text is split into content and tool calls.
enum class ReplyUse : std::uint8_t {
  plain,  // all of it is content
  read,   // split into content, reasoning and calls (tool_calls.h)
};

// A tool that the model is shown under another name or as another kind than the client's.
struct ToolAlias {
  std::string shown, name;  // the model's and the client's name
  std::string space = {};   // the client's namespace; empty: none
  bool custom = false;      // its input is one text, for the model the argument "input"
};

struct GenerationCall {
  CallStyle style = CallStyle::chat;
  std::vector<std::vector<Token>> prompts;  // each gets `choices` replies
  std::vector<std::string> prompt_texts;    // for chats: the end of the rendered conversation
  std::uint32_t choices = 1;
  SamplingSettings sampling;
  bool has_seed = false;
  StopRules stop;
  std::vector<Token> banned, shown;
  std::shared_ptr<const Grammar> grammar;
  ReplyUse use = ReplyUse::plain;
  ReplyStyle reading = {};  // how the reply is read
  bool with_tools = false;
  JsonNode tools = {};  // from the body, which must outlive the call
  std::vector<ToolAlias> aliases = {};
  JsonNode asked = {};                  // the original request, if it was converted to a chat
  std::vector<std::string> notes = {};  // requested features that the reply lacks
  std::shared_ptr<const ReasoningBudget> reasoning;
  int top_logprobs = -1;  // negative: none
  bool stream = false;
  bool include_usage = false;
  bool echo = false;
  bool return_tokens = false;
  std::optional<std::size_t> slot;  // where the final text is stored; nullopt: any slot
  GrammarStop stopped;              // whether the client has left while the grammar is compiled
};

// The functions that read a body throw Error naming the member at fault.
// `body` must outlive the call. Throws Error (interrupted) once `stopped` is true while a grammar
// is compiled.
GenerationCall read_generation_call(CallStyle style, JsonNode body, const ApiModel& model,
                                    GrammarStop stopped = {});

// Rejects unsupported members that would change a chat's reply, in any API.
void refuse_members(JsonNode body);
// Rejects more tools in a member than a request may have.
void check_tool_count(std::string_view member, std::size_t count);
// Copies the members that read_sampling reads.
void copy_sampling(JsonNode from, Json& body);
SamplingSettings read_sampling(JsonNode body, const ApiModel& model, bool& has_seed);
StopRules read_stop(JsonNode body, const ApiModel& model);

// Renders "messages", "tools" and the template's variables of a body as text parts. Throws Error
// naming the message at fault, if it is known and the messages are the client's.
std::vector<TextPart> render_chat(CallStyle style, JsonNode body, const ApiModel& model);

// Reads the prompts from "prompt" or "input": one text, ids, a mix of texts and ids, or an array of
// these; each must have a token. Special tokens in texts are recognized; BOS is prepended like the
// tokenizer does. `end` follows prompts that are a text, `before` is put in front of texts.
std::vector<std::vector<Token>> read_prompts(JsonNode body, std::string_view name,
                                             const ApiModel& model, std::size_t most,
                                             Token end = kNoToken, const std::string& before = {});
// A text's tokens, with BOS like the tokenizer does and `end` unless it is kNoToken.
std::vector<Token> encode_text(std::string_view text, const ApiModel& model, Token end);

struct ReplyTimes {
  std::optional<double> most_seconds = {};  // time limit of a reply
  double ping_seconds = 15;                 // longest interval without data in a stream
};

// Submits the request to the engine and sends the result as one JSON object or as a stream of
// server-sent events. Returns when the reply is sent, or when the client has disconnected, which
// cancels the requests. Throws Error or Busy only if nothing has been sent yet.
void answer_generation(HttpExchange& exchange, GenerationCall call, const ApiModel& model,
                       EngineThread& engine, const ReplyTimes& times);

// Feeds a text for its embedding or log probabilities, in steps between those of the replies.
// Throws Error, or Busy if the engine's time is over.
void feed_text(EngineThread& engine, EmbeddedText& text);

}  // namespace leq

// Parses a model's reply into reasoning, content and tool calls, incrementally: input and
// output come in pieces. How the input is split only affects how the output is split, never its
// text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace leq {

enum class ToolCallStyle : std::uint8_t {
  none,
  hermes,    // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen
  xml,       // <tool_call><function=NAME><parameter=KEY>...: Qwen3-Coder, Qwen3.5
  llama3,    // {"name": ..., "parameters": {...}}, or <|python_tag|>NAME.call(KEY="...")
  mistral,   // [TOOL_CALLS][{"name": ..., "arguments": {...}}], or [TOOL_CALLS]NAME[ARGS]{...}
  deepseek,  // <｜tool▁calls▁begin｜>...: DeepSeek-V3, R1
  gemma,     // <|tool_call>call:NAME{KEY:VALUE, ...}<tool_call|>: Gemma 4
  harmony,   // <|channel|>commentary to=functions.NAME<|message|>{...}<|call|>: gpt-oss
};

// The literal texts that mark tool calls in these notations.
inline constexpr std::string_view kHermesCall = "<tool_call>", kHermesCallEnd = "</tool_call>";
inline constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
inline constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";
inline constexpr std::string_view kMistralCalls = "[TOOL_CALLS]", kArgs = "[ARGS]",
                                  kCallId = "[CALL_ID]";
inline constexpr std::string_view kPythonCall = "<|python_tag|>";
inline constexpr std::string_view kDeepSeekCalls = "<｜tool▁calls▁begin｜>",
                                  kDeepSeekCallsEnd = "<｜tool▁calls▁end｜>";
inline constexpr std::string_view kDeepSeekCall = "<｜tool▁call▁begin｜>",
                                  kDeepSeekCallEnd = "<｜tool▁call▁end｜>",
                                  kDeepSeekSep = "<｜tool▁sep｜>";
inline constexpr std::string_view kGemmaCall = "<|tool_call>", kGemmaCallEnd = "<tool_call|>",
                                  kGemmaName = "call:", kGemmaQuote = "<|\"|>",
                                  kGemmaChannel = "<|channel>", kGemmaChannelEnd = "<channel|>";
inline constexpr std::string_view kHarmonyStart = "<|start|>", kHarmonyChannel = "<|channel|>",
                                  kHarmonyMessage = "<|message|>", kHarmonyEnd = "<|end|>",
                                  kHarmonyCall = "<|call|>";
inline constexpr std::array kHarmonyMarks = {kHarmonyStart,
                                             kHarmonyChannel,
                                             kHarmonyMessage,
                                             kHarmonyEnd,
                                             kHarmonyCall,
                                             std::string_view("<|constrain|>"),
                                             std::string_view("<|return|>")};
inline constexpr std::string_view kHarmonyRole = "<|start|>assistant";

struct ReplyStyle {
  ToolCallStyle tools = ToolCallStyle::none;
  // The marks around reasoning; empty: none.
  std::string think_begin, think_end;
  bool calls_end_reasoning = true;  // a call in reasoning that was not ended ends it
  bool calls_only = false;          // a grammar forces calls: what is cut off is no content
  // The reply is messages, each with a header that names its channel and its recipient (harmony).
  bool channels = false;
};

// How a model with this template writes calls and reasoning, judging by the template's marks.
ReplyStyle reply_style(std::string_view chat_template);

// The texts that end reasoning because a call begins: its mark and, if it may be mentioned in
// reasoning, the next characters of a call.
std::vector<std::string_view> marks_in_reasoning(const ReplyStyle& style);

// Special tokens that must appear in a reply's text, because calls begin with them
// (EngineRequest::shown).
std::vector<Token> shown_tokens(const ReplyStyle& style, const Tokenizer& tokenizer);

// Whether the end of a rendered conversation has begun the reply's reasoning.
bool begins_with_reasoning(const ReplyStyle& style, std::string_view prompt);

// Tracks the nesting depth within a JSON value that is streamed.
class JsonDepth {
 public:
  // `text` begins at the value's first bracket or later. Returns the number of bytes up to and
  // including the closing bracket, or all bytes if the value is still open.
  std::size_t take(std::string_view text);
  bool closed() const { return closed_; }

 private:
  std::size_t depth_ = 0;
  bool in_string_ = false, escaped_ = false, closed_ = false;
};

struct ToolCallPiece {
  std::size_t index = 0;  // index of the call in its reply, from 0
  std::string name = {};  // set in a call's first piece, empty in all others
  // The next part of a JSON object's text. All parts of a call form one object, unless the reply
  // was cut off within it.
  std::string arguments = {};
  std::size_t after = 0;  // bytes of the piece's content that come before
};

struct ReplyPiece {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallPiece> calls;

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

class ReplyReader {
 public:
  // `prompt`: the end of the rendered conversation (begins_with_reasoning). Without `with_tools`,
  // text that looks like a call is content. `tools`: as in ChatRequest, must outlive the reader;
  // their schemas give the types of arguments in the xml style, which writes all values as text.
  ReplyReader(const ReplyStyle& style, std::string_view prompt, bool with_tools,
              JsonNode tools = {});

  ReplyPiece push(std::string_view text);
  // Returns the withheld text. A call that was cut off is a call if its name is known, and nothing
  // otherwise; an invalid call is content. With calls_only no withheld text is content.
  ReplyPiece finish();

  std::size_t calls() const { return calls_; }  // number of calls begun so far

 private:
  enum class Place : std::uint8_t {
    start,  // only white space so far
    reasoning,
    content,
    head,        // after a mark, before a call's arguments
    arguments,   // within JSON arguments
    parameters,  // within arguments of the styles xml and gemma
    tail,        // after the arguments, up to the end of the call
    between,     // between calls that share one mark
    header,      // in the style with channels: before a message's text
    message,     // ... and within it
  };
  // The text of a message that is a call: an object of JSON, or a program.
  enum class CallBody : std::uint8_t { unknown, json, code, done };
  enum class Channel : std::uint8_t { content, reasoning, call };

  // Each function consumes as much of held_ as it can and returns whether more can be consumed now.
  bool step();
  bool read_start();
  bool read_reasoning();
  bool read_content();
  bool read_head();
  bool read_json_head();
  bool read_mistral_head();
  bool read_deepseek_head();
  bool read_xml_head();
  bool read_gemma_head();
  bool read_python_head();
  bool read_arguments();
  bool read_parameters();
  bool read_text_parameter();
  bool read_gemma_arguments();
  bool read_gemma_text();
  void end_head();
  bool is_tool(std::string_view name) const;
  bool read_tail();
  bool read_between();
  bool read_header();
  bool read_message();
  bool read_call_body();
  void begin_channels(std::string_view prompt);
  void begin_message(std::string_view header, std::size_t drop);
  bool end_message(std::size_t mark);
  void end_header();
  void emit_message(std::string_view text);

  bool waits_for(std::string_view mark) const;
  bool skip(std::string_view mark);
  void skip_space();
  bool treat_as_content();
  void begin_call(std::string_view name, std::size_t drop);
  void add_arguments(std::string_view text);
  void emit(std::string_view text);
  std::string_view mark() const;
  std::string argument_value(std::string_view key, std::string_view text) const;
  // The current call's schema of arguments; nothing: unknown.
  JsonNode schema() const;

  ReplyStyle style_;
  JsonNode tools_;
  Place place_ = Place::start;
  std::string held_;
  std::string opened_;  // the mark read before the head
  std::string space_;   // white space that is content only if more content follows
  std::string name_;    // name of the current call
  bool ended_ = false;
  bool python_ = false;
  JsonDepth depth_, rest_;
  std::set<std::string> keys_;  // xml: of the parameters so far
  bool in_text_ = false;        // within a parameter that is a text
  std::string brackets_;        // gemma: those that are open
  bool at_key_ = false;         // gemma: a key of an object comes next
  bool reasoning_ = false, any_reasoning_ = false;
  CallBody body_ = CallBody::unknown;
  Channel channel_ = Channel::content;
  bool any_content_ = false, joins_ = false;  // joins_: a message follows one of the same channel
  std::size_t calls_ = 0;
  ReplyPiece out_;
};

}  // namespace leq

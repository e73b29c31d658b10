// The dialects of the API: requests of other APIs as bodies of /v1/chat/completions, and replies in
// the JSON of each API, as a whole or as a stream of events.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/request.h"

namespace leq {

// The name of a member in the foreign request, and its name in a chat request.
struct CopiedMember {
  std::string_view name, as;
};

struct ForeignChat {
  Json body = {};
  std::vector<std::string> notes = {};  // what was ignored or rewritten
  std::vector<ToolAlias> aliases = {};
  std::vector<CopiedMember> names = {};  // of members that have other names in the chat

  // Adds a note. A text is kept once, and only the first texts of a request are.
  void note(std::string text);
  // A text whose marked names (marked_field) are those of the chat, with the client's names.
  std::string in_its_names(std::string text) const;
};

// A chat with custom tools as one with functions; without them, the body is null: the request's.
ForeignChat chat_of_chat(JsonNode body);

// OpenAI's /v1/responses, stateless: requests that refer to earlier responses are rejected. Throws
// Error naming the member at fault.
ForeignChat chat_of_responses(JsonNode body);
// Anthropic's /v1/messages.
ForeignChat chat_of_messages(JsonNode body);
// Ollama's /api/chat, and /api/generate, which is a prompt and not a chat if it is "raw".
ForeignChat chat_of_ollama_chat(JsonNode body);
ForeignChat chat_of_ollama_generate(JsonNode body);

// The request as a chat of functions; its body is null if the request is one.
ForeignChat foreign_chat(CallStyle style, JsonNode body);

// Notes that no log probabilities are written, if the request wants some.
void note_logprobs(JsonNode body, ForeignChat& chat);

// Builds the body of a chat request. Adjacent reasoning, texts and calls of the assistant are
// merged into one message, as are adjacent texts of the user, and the system texts at the
// beginning: many templates reject two successive messages of one role.
class ChatBuilder {
 public:
  // Throws Error for members that no chat supports.
  explicit ChatBuilder(JsonNode body);

 protected:
  void system(std::string_view text);
  void user(std::string_view text);
  void tool_result(std::string_view id, std::string_view text);
  void reasoning(std::string_view text);
  void assistant(std::string_view text);
  void call(std::string_view id, std::string_view name, std::string_view arguments);
  bool empty() const { return messages_.empty() && lead_.empty() && !has_turn_ && !has_user_; }
  void finish_messages();

  // Sets a member of the chat unless `value` is null or nothing.
  void set_given(const CopiedMember& member, JsonNode value);
  // Copies each of the members of the request that is present.
  void copy_members(std::span<const CopiedMember> members);
  // Adds a tool with the given members of `tool` if its type (`fallback`: if it has none) is
  // `function`. Custom tools and those of a namespace become functions. Any other tool is left out
  // with a note that only `supported` are supported.
  struct ToolRules {
    std::string_view function, fallback, supported;
    std::span<const CopiedMember> members;
  };
  // Reads "tools"; returns whether any was added.
  bool read_tools(const ToolRules& rules);
  // Sets the tool choice to the tool, or those, that `choice` names.
  void choose_function(JsonNode choice);
  void choose_allowed(JsonNode choice);
  // The text of a content. A part without text is described in words, with a note, unless
  // `must_read`: then it throws Error.
  std::string read_text(JsonNode content, std::string_view member, std::string_view separator,
                        bool must_read);

  JsonNode body_;
  ForeignChat chat_ = {.body = Json::object()};

 private:
  void add_tool(const ToolRules& rules, JsonNode tool, const std::string& space, Json& list);
  void end_turn();
  void add(Json message);
  Json messages_ = Json::array();
  std::string lead_;  // system text before all messages
  bool has_lead_ = false, has_turn_ = false, has_user_ = false;
  std::string reasoning_, said_, user_;
  Json calls_ = Json::array();
};

// A token's log probabilities, its text in the reply, and the characters before it.
struct PlacedLogprobs : TokenLogprobs {
  std::string text;
  std::int64_t offset = 0;
};

// One reply of a call, as far as it has been generated.
struct Choice {
  std::size_t index = 0;
  std::size_t prompt = 0;  // index of its prompt in the call
  std::string reasoning, content;
  struct Call {
    std::string id, name, arguments;   // `arguments` of a custom tool: its input
    const ToolAlias* alias = nullptr;  // null: the client knows the tool as the model does
    std::size_t after = 0;             // bytes of the content before the call

    bool is_custom() const { return alias != nullptr && alias->custom; }
    const std::string& client_name() const { return alias != nullptr ? alias->name : name; }
  };
  std::vector<Call> calls;
  std::vector<PlacedLogprobs> logprobs;
  std::vector<Token> tokens;
  std::int64_t logprob_characters = 0;  // number of characters before the next token
  std::int64_t reasoning_tokens = 0;
  std::int64_t held_tokens = 0;  // the latest ones, without text so far
  EngineReply end;               // set when the reply ends

  // Whether the model ended the reply, by an end token or a stop string.
  bool is_complete() const {
    return end.stopped == StopReason::end_token || end.stopped == StopReason::stop_string;
  }
};

// An addition to a choice.
struct ChoicePiece : ReplyPiece {
  std::vector<PlacedLogprobs> logprobs;
  std::vector<Token> tokens;
};

// Token counts: all prompts (each counted once), their cached tokens, all replies, their reasoning.
struct TokenCounts {
  std::int64_t prompt = 0, cached = 0, reply = 0, reasoning = 0;
};

class ReplyWriter {
 public:
  // Both arguments must outlive it.
  ReplyWriter(const GenerationCall& call, const ApiModel& model);
  virtual ~ReplyWriter() = default;

  // The media type of a stream.
  virtual std::string_view stream_type() const { return "text/event-stream"; }
  // Serialized events of a stream. `choice` already includes the piece.
  virtual std::string begin(const std::vector<Choice>& choices) = 0;
  virtual std::string more(const Choice& choice, const ChoicePiece& piece) = 0;
  virtual std::string end(const Choice& choice) = 0;
  // Called after the end of the last choice.
  virtual std::string finish(const std::vector<Choice>& choices) = 0;
  virtual std::string failed(const Error& error) = 0;
  // A keep-alive event.
  virtual std::string ping() const { return ": ping\n\n"; }

  // A whole reply.
  virtual std::string whole(const std::vector<Choice>& choices) = 0;

  TokenCounts count_tokens(const std::vector<Choice>& choices) const;

 protected:
  // Adds the call's notes on features that the reply lacks, if there are any.
  void add_warnings(Json& json) const;

  const GenerationCall& call_;
  const ApiModel& model_;
  const std::string id_;        // random letters
  const std::int64_t created_;  // seconds since 1970
};

// A writer of one choice as a series of items, each with its events: reasoning, a text, or a call.
class ItemWriter : public ReplyWriter {
 public:
  using ReplyWriter::ReplyWriter;
  std::string more(const Choice& choice, const ChoicePiece& piece) override;

 protected:
  enum class Kind : std::uint8_t { none, reasoning, text, call };
  // Events of the current item, whose kind is kind_. `call`: null unless it is a call.
  virtual std::string open(const Choice::Call* call) = 0;
  virtual std::string extend(const std::string& text) = 0;  // a text, or arguments of a call
  virtual std::string close(bool is_whole) = 0;             // sets kind_ to none
  Kind kind_ = Kind::none;

 private:
  std::string next(Kind kind, const Choice::Call* call);
  std::size_t call_index_ = 0;  // of the current call
};

std::unique_ptr<ReplyWriter> openai_writer(const GenerationCall& call, const ApiModel& model);
std::unique_ptr<ReplyWriter> responses_writer(const GenerationCall& call, const ApiModel& model);
std::unique_ptr<ReplyWriter> messages_writer(const GenerationCall& call, const ApiModel& model);
std::unique_ptr<ReplyWriter> ollama_writer(const GenerationCall& call, const ApiModel& model);

// The name that the model is shown for a tool of a namespace.
std::string shown_name(std::string_view space, std::string_view name);
// Adds the notes as the header X-Leq-Warnings, in one line of ASCII, if there are any.
void add_warning_header(HttpReply& reply, const std::vector<std::string>& notes);
// A server-sent event with its data, and with "event: NAME" unless the name is empty.
std::string sent_event(std::string_view name, std::string_view json);
std::string sent_event(std::string_view json);
// A time in UTC as in "2026-11-28T18:00:00Z" (RFC 3339).
std::string time_text(std::int64_t seconds_since_1970);
// A random id of letters and digits.
std::string random_id();
// The number of UTF-8 characters that begin in these bytes.
std::int64_t characters_begun(std::string_view bytes);

}  // namespace leq

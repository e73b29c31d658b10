// Writes replies in the JSON format of an API, as a whole or as a stream of events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "server/generation_call.h"

namespace leq {

// One reply of a call, as far as it has been generated.
struct Choice {
  std::size_t index = 0;
  std::size_t prompt = 0;  // index of its prompt in the call
  std::string reasoning, content;
  struct Call {
    std::string id, name, arguments;
  };
  std::vector<Call> calls;
  std::vector<TokenLogprobs> logprobs;
  std::vector<Token> tokens;
  std::int64_t logprob_characters = 0;  // number of characters before the next token
  std::int64_t reasoning_tokens = 0;
  EngineReply end;                     // set when the reply ends
  std::string_view interruption = {};  // the cause of an interruption; empty: none
};

// An addition to a choice.
struct ChoicePiece {
  std::string reasoning, content;
  std::vector<ToolCallPiece> calls;
  std::vector<TokenLogprobs> logprobs;
  std::vector<Token> tokens;

  bool empty() const {
    return reasoning.empty() && content.empty() && calls.empty() && logprobs.empty() &&
           tokens.empty();
  }
};

class ReplyWriter {
 public:
  virtual ~ReplyWriter() = default;

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
};

// Selects the writer by the call's style. Both arguments must outlive it.
std::unique_ptr<ReplyWriter> make_reply_writer(const GenerationCall& call, const ApiModel& model);

// A server-sent event with its data, and with "event: NAME" unless the name is empty.
std::string sent_event(std::string_view name, std::string_view json);
std::string sent_event(std::string_view json);
// A random id of letters and digits.
std::string random_id();

// Token counts: all prompts (each counted once), their cached tokens, all replies, their reasoning.
struct TokenCounts {
  std::int64_t prompt = 0, cached = 0, reply = 0, reasoning = 0;
};
TokenCounts count_tokens(const GenerationCall& call, const std::vector<Choice>& choices);
// The call's notes on features that the reply lacks, as a JSON array.
Json warnings_json(const GenerationCall& call);

// The number of UTF-8 characters that begin in these bytes.
std::int64_t characters_begun(std::string_view bytes);

// Times in milliseconds and rates of a reply, under llama-server's names.
Json timings_json(const EngineReply& reply);

}  // namespace leq

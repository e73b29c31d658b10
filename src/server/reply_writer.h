// Replies as the JSON that clients of an API read, whole or as the events of a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/logprobs.h"
#include "server/generation_call.h"

namespace leq {

// One reply of a call, as it has come so far.
struct Choice {
  std::size_t index = 0;
  std::size_t prompt = 0;  // which of the call's
  std::string thoughts, content;
  struct Call {
    std::string id, name, arguments;
  };
  std::vector<Call> calls;
  std::vector<TokenLogprobs> logprobs;
  std::vector<Token> tokens;
  std::int64_t logprob_characters = 0;  // of text, before the next token's
  std::int64_t thought_tokens = 0;
  EngineReply end;                     // once it has ended
  std::string_view interruption = {};  // what ended it before its time; empty: nothing did
};

// What was added to a choice.
struct ChoicePiece {
  std::string thoughts, content;
  std::vector<ToolCallPiece> calls;
  std::vector<TokenLogprobs> logprobs;
  std::vector<Token> tokens;

  bool empty() const {
    return thoughts.empty() && content.empty() && calls.empty() && logprobs.empty() &&
           tokens.empty();
  }
};

class ReplyWriter {
 public:
  virtual ~ReplyWriter() = default;

  // Events of a stream, as bytes. `choice` has what is told in it already.
  virtual std::string begin(const std::vector<Choice>& choices) = 0;
  virtual std::string more(const Choice& choice, const ChoicePiece& piece) = 0;
  virtual std::string end(const Choice& choice) = 0;
  // After the last choice's end.
  virtual std::string finish(const std::vector<Choice>& choices) = 0;
  virtual std::string failed(const Error& error) = 0;
  // Says that the server is still there.
  virtual std::string ping() const { return ": ping\n\n"; }

  // A whole reply.
  virtual std::string whole(const std::vector<Choice>& choices) = 0;
};

// By the call's style. Both must outlive the writer.
std::unique_ptr<ReplyWriter> make_reply_writer(const GenerationCall& call, const ApiModel& model);

// "event: NAME" where it has one, and its data.
std::string sent_event(std::string_view name, std::string_view json);
std::string sent_event(std::string_view json);
// Letters that are not used twice.
std::string random_id();

// Tokens of all prompts, each counted once; of these, found in the KV cache; and of all replies.
struct TokenCounts {
  std::int64_t prompt = 0, cached = 0, reply = 0, thoughts = 0;
};
TokenCounts count_tokens(const GenerationCall& call, const std::vector<Choice>& choices);
// What a reply does not hold of what was asked for, as a JSON array.
Json warnings_json(const GenerationCall& call);

// Characters whose first byte is there.
std::int64_t characters_begun(std::string_view bytes);

// Milliseconds and rates of a reply, under the names of llama-server.
Json timings_json(const EngineReply& reply);

}  // namespace leq

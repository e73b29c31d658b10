// Replies as JSON in the three styles of calls, whole or in the chunks of a stream.
#pragma once

#include <cstdint>
#include <string>
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
  std::int64_t logprob_bytes = 0;  // of text, before the next token's
  EngineReply end;                 // once it has ended
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
  // Both must outlive it. `id`: random letters; `created`: seconds since 1970.
  ReplyWriter(const GenerationCall& call, const ApiModel& model, std::string id,
              std::int64_t created);

  // JSON texts for a stream. All choices of a chat begin with begin().
  std::string begin(const Choice& choice) const;
  // `choice` with the piece in it already.
  std::string more(const Choice& choice, const ChoicePiece& piece) const;
  std::string end(const Choice& choice) const;
  // Whether a stream ends with usage(), and with "[DONE]".
  bool tells_usage() const { return call_.include_usage && call_.style != CallStyle::native; }
  bool tells_done() const { return call_.style != CallStyle::native; }
  std::string usage(const std::vector<Choice>& choices) const;

  // A whole reply.
  std::string whole(const std::vector<Choice>& choices) const;

 private:
  Json frame(bool chunk) const;
  Json chunk_of(const Choice& choice, Json content, Json finish_reason) const;
  Json whole_choice(const Choice& choice) const;
  Json native_end(const Choice& choice) const;
  Json usage_json(const std::vector<Choice>& choices) const;
  Json logprobs_json(const std::vector<TokenLogprobs>& tokens, std::int64_t offset) const;
  Json token_json(const TokenLogprob& token) const;

  const GenerationCall& call_;
  const ApiModel& model_;
  std::string id_;
  std::int64_t created_;
};

// Milliseconds and rates of a reply, under the names of llama-server.
Json timings_json(const EngineReply& reply);

}  // namespace leq

// Writes replies of /v1/chat/completions, /v1/completions and /completion.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/reply_writer.h"

namespace leq {

class OpenAiWriter : public ReplyWriter {
 public:
  // `id`: random letters; `created`: seconds since 1970.
  OpenAiWriter(const GenerationCall& call, const ApiModel& model, std::string id,
               std::int64_t created);

  std::string begin(const std::vector<Choice>& choices) override;
  std::string more(const Choice& choice, const ChoicePiece& piece) override;
  std::string end(const Choice& choice) override;
  std::string finish(const std::vector<Choice>& choices) override;
  std::string failed(const Error& error) override;
  std::string whole(const std::vector<Choice>& choices) override;

 private:
  Json frame(bool chunk) const;
  Json chunk_of(const Choice& choice, Json content, Json finish_reason) const;
  Json whole_choice(const Choice& choice) const;
  Json native_end(const Choice& choice) const;
  Json usage_json(const std::vector<Choice>& choices) const;
  Json logprobs_json(const std::vector<TokenLogprobs>& tokens, std::int64_t offset) const;
  Json text_logprobs(const std::vector<TokenLogprobs>& tokens, std::int64_t offset) const;
  Json token_json(const TokenLogprob& token) const;
  Json tops_json(const std::vector<TokenLogprob>& top) const;

  const GenerationCall& call_;
  const ApiModel& model_;
  std::string id_;
  std::int64_t created_;
};

}  // namespace leq

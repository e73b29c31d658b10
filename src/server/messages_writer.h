// Writes replies of /v1/messages: blocks (thinking, text, tool_use) and their stream events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/reply_writer.h"

namespace leq {

class MessagesWriter : public ReplyWriter {
 public:
  MessagesWriter(const GenerationCall& call, const ApiModel& model, std::string id);

  std::string begin(const std::vector<Choice>& choices) override;
  std::string more(const Choice& choice, const ChoicePiece& piece) override;
  std::string end(const Choice& choice) override;
  std::string finish(const std::vector<Choice>& choices) override;
  std::string failed(const Error& error) override;
  std::string ping() const override;
  std::string whole(const std::vector<Choice>& choices) override;

 private:
  enum class Kind : std::uint8_t { none, reasoning, text, call };

  std::string event(const std::string& type, Json members) const;
  std::string open(Kind kind, Json block);
  std::string close();
  std::string add(Kind kind, const char* type, const char* member, const std::string& text);
  Json message_json(const Choice& choice, Json content) const;
  Json usage_json(const std::vector<Choice>& choices) const;

  const GenerationCall& call_;
  const ApiModel& model_;
  std::string id_;
  Kind kind_ = Kind::none;  // kind of the current block
  std::size_t index_ = 0;   // index of the block
  std::size_t call_index_ = 0;
};

}  // namespace leq

// Writes replies of /v1/responses: items (reasoning, a text, calls) and their stream events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/reply_writer.h"

namespace leq {

class ResponsesWriter : public ReplyWriter {
 public:
  ResponsesWriter(const GenerationCall& call, const ApiModel& model, std::string id,
                  std::int64_t created);

  std::string begin(const std::vector<Choice>& choices) override;
  std::string more(const Choice& choice, const ChoicePiece& piece) override;
  std::string end(const Choice& choice) override;
  std::string finish(const std::vector<Choice>& choices) override;
  std::string failed(const Error& error) override;
  std::string whole(const std::vector<Choice>& choices) override;

 private:
  enum class Kind : std::uint8_t { none, reasoning, text, call };
  // The current item.
  struct Item {
    Kind kind = Kind::none;
    std::string id, text;       // text: includes the arguments of a call
    std::string name, call_id;  // used only for a call
    std::size_t call = 0;       // index among the reply's calls
  };

  std::string event(const std::string& type, Json members);
  std::string item_event(const std::string& type, Json members, bool with_part);
  std::string open(Kind kind, const Choice::Call* call, std::size_t index);
  std::string close(bool is_whole);
  std::string add(Kind kind, const std::string& text);
  Json item_json(bool is_whole) const;
  Json part_json(const std::string& text) const;
  Json response_json(const std::string& status) const;
  void set_end(const std::vector<Choice>& choices);

  const GenerationCall& call_;
  const ApiModel& model_;
  std::string id_;
  std::int64_t created_;
  std::int64_t events_ = 0;
  Item item_;
  Json output_ = Json::array();  // completed items
  std::string status_ = "in_progress";
  Json usage_, incomplete_, error_;
};

}  // namespace leq

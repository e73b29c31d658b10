// The named chat formats as data: one table row describes how a format writes a conversation.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace leq {

// The text before and after a message. {bos}, {eos} and {date} are replaced.
struct MessageMarks {
  std::string_view before;
  std::string_view after;
  bool trim = false;  // remove white space at both ends of the message
};

enum class SystemPlace : std::uint8_t {
  own_message,   // at its position, like any other message
  first_always,  // one at the start, empty if there is none; later ones at their positions
  first_user,    // within the first user message
  last_user,     // within the last user message
  last_message,  // within the last message if it is the user's, otherwise omitted
  refused,
};

enum class RoleOrder : std::uint8_t {
  any,
  alternate,       // user, assistant, user, ... after the system message
  mistral_common,  // adjacent messages of one role are joined; no reply is empty
};

enum class Thinking : std::uint8_t {
  none,
  dropped,         // the reasoning of earlier replies is removed from the history
  kept_after_ask,  // removed as above, but kept after the last question, as in Qwen3's template
};

struct ChatFormat {
  std::string_view name;
  std::string_view start = {};
  MessageMarks system = {};
  MessageMarks user = {};
  MessageMarks assistant = {};
  MessageMarks further_system = {};  // first_always: system messages after the first
  std::string_view reply = {};       // text before the model's next reply
  std::string_view end = {};         // the token that ends a reply
  SystemPlace system_place = SystemPlace::own_message;
  bool drops_empty_system = false;
  RoleOrder order = RoleOrder::any;
  Thinking thinking = Thinking::none;
  std::string_view default_system = {};
  std::string_view default_date = {};  // for {date}; empty: today's date
};

std::span<const ChatFormat> chat_formats();

}  // namespace leq

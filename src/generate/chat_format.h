// How the named formats write a conversation, as data: one row for each of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace leq {

// The text before and after a message. {bos}, {eos} and {date} are replaced.
struct MessageMarks {
  std::string_view before;
  std::string_view after;
  bool trim = false;  // white space at both ends of the message is dropped
};

enum class SystemPlace : std::uint8_t {
  own_message,   // where it stands, like any other message
  first_always,  // one at the start, empty if there is none; further ones where they stand
  first_user,    // within the first user message
  last_user,     // within the last user message
  last_message,  // within the last message if it is the user's; otherwise left out
  refused,
};

enum class RoleOrder : std::uint8_t {
  any,
  alternate,       // user, assistant, user, ... after the system message
  mistral_common,  // neighbours of one role are joined by an empty line; a reply is never empty
};

enum class Thinking : std::uint8_t {
  none,
  dropped,         // what a reply thought is left out when it is history
  kept_after_ask,  // ... but stays after the last question, as Qwen3's template does
};

struct ChatFormat {
  std::string_view name;
  std::string_view start = {};
  MessageMarks system = {};
  MessageMarks user = {};
  MessageMarks assistant = {};
  MessageMarks further_system = {};  // first_always: system messages that are not the first
  std::string_view reply = {};       // in front of the model's next reply
  std::string_view end = {};         // the token that ends a reply
  SystemPlace system_place = SystemPlace::own_message;
  bool drops_empty_system = false;
  RoleOrder order = RoleOrder::any;
  Thinking thinking = Thinking::none;
  std::string_view default_system = {};
  std::string_view default_date = {};  // for {date}; empty: today
};

std::span<const ChatFormat> chat_formats();

}  // namespace leq

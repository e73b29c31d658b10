// A conversation, and its JSON file, which is written atomically and fully validated when it is
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sampling/settings.h"

namespace leq {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;

  bool operator==(const ChatMessage&) const = default;
};

// The state of a conversation, enough to continue it in another process.
struct ChatState {
  std::vector<ChatMessage> messages;  // beginning with the system prompt, if there is one
  std::uint32_t replies = 0;          // number of replies so far, including regenerated ones
  std::size_t left_out =
      0;  // oldest messages after the system prompt that the model no longer gets

  bool has_system() const { return !messages.empty() && messages.front().role == "system"; }
  bool operator==(const ChatState&) const = default;
};

// What a chat is left with beside its messages.
struct ChatSettings {
  SamplingSettings sampling = {};
  std::int64_t max_tokens = -1;        // of a reply; -1: no limit
  std::vector<std::string> stop = {};  // texts that end a reply
  bool thinking = true;                // reasoning before the answer
  bool json = false;                   // replies are JSON objects
  std::int64_t context = 0;            // tokens; 0: the default

  bool operator==(const ChatSettings&) const = default;
};

struct ChatFile {
  std::string model;   // file name of the model, for human readers
  std::string format;  // name of the chat template, for human readers
  ChatState chat;
  ChatSettings settings;

  bool operator==(const ChatFile&) const = default;
};

// Throws Error if the file cannot be written; an existing file then stays unchanged.
void save_chat(const std::filesystem::path& path, const ChatFile& file);

// Throws Error naming the file, the key, the expected value and the one found.
ChatFile load_chat(const std::filesystem::path& path);

}  // namespace leq

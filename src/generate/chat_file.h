// A conversation in a JSON file, written whole or not at all and checked whole when it is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "generate/chat_template.h"
#include "model/sampling_settings.h"

namespace leq {

// The state of a conversation, enough to continue it in another process.
struct ChatState {
  std::vector<ChatMessage> messages;  // the system prompt first, where there is one
  std::uint32_t replies = 0;          // written so far, the ones written again included

  bool operator==(const ChatState&) const = default;
};

struct ChatFile {
  std::string model;   // file name of the model, for people
  std::string format;  // name of the chat template, for people
  ChatState chat;
  SamplingSettings sampling;
};

// Throws Error where the file cannot be written; a file that was there is whole then.
void save_chat(const std::filesystem::path& path, const ChatFile& file);

// Throws Error naming the file, the key, what was expected and what is there.
ChatFile load_chat(const std::filesystem::path& path);

}  // namespace leq

// A conversation in a JSON file, written whole or not at all and checked whole when it is read.
#pragma once

#include <filesystem>
#include <string>

#include "engine/chat_session.h"

namespace leq {

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

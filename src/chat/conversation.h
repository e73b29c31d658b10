// Writes a conversation in a named format: inserts the system prompt, checks the order of roles and
// removes the reasoning of earlier replies.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "chat/chat_format.h"
#include "chat/chat_template.h"

namespace leq {

// `options.date` must be set. Throws Error if the format does not allow the order of roles.
std::vector<TextPart> render_conversation(const ChatFormat& format,
                                          std::span<const ChatMessage> messages,
                                          const ChatOptions& options);

}  // namespace leq

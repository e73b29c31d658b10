// Writes a conversation in a format: places the system prompt, checks the order of roles, leaves
// out what earlier replies thought.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "generate/chat_format.h"
#include "generate/chat_template.h"

namespace leq {

// `options.date` is filled in. Throws Error on an order of roles that the format refuses.
std::vector<TextPart> render_conversation(const ChatFormat& format,
                                          std::span<const ChatMessage> messages,
                                          const ChatOptions& options);

// The text without the white space at its ends, as Python's strip and Jinja's trim see it: all of
// Unicode's.
std::string_view trim_unicode(std::string_view text);

}  // namespace leq

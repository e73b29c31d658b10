// What requests to a model are read against, as its file alone has it.
#pragma once

#include <optional>
#include <string>

#include "generate/chat_template.h"
#include "model/open_model.h"
#include "server/generation_call.h"

namespace leq {

// "folder/story.leq" -> "story"; the same of a GGUF file.
std::string model_name_of(const std::string& path);

// The format of this name, or the model's own template where there is none. A model whose template
// cannot be used still completes texts; `error` says why it does not chat.
std::optional<ChatTemplate> chat_template_of(const Model& model, const std::string& name,
                                             std::string& error);

// Tokenizer, name, replies' style and ends, template. `own_template`: `chat` is the model's, not a
// named format. Sampling, slots and grammars are for the caller to set. Throws Error where the file
// has no tokenizer.
ApiModel api_model_of(const Model& model, const ChatTemplate* chat, const std::string& chat_error,
                      bool own_template);

}  // namespace leq

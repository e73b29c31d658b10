// The properties of a model that are needed to parse its requests, taken from its file alone.
#pragma once

#include <optional>
#include <string>

#include "chat/chat_template.h"
#include "model/open_model.h"
#include "server/generation_call.h"

namespace leq {

// The model's name for its path: "folder/story.leq" or "folder/story.gguf" -> "story".
std::string model_name_of(const std::string& path);

// The format of this name, or the model's own template if there is no name. A model whose template
// is unusable can still complete texts; `error` is the reason why it cannot chat.
std::optional<ChatTemplate> chat_template_of(const Model& model, const std::string& name,
                                             std::string& error);

// Sets tokenizer, name, reply style, end tokens and template. `own_template`: `chat` is the model's
// own, not a named format. The caller sets sampling, slots and grammars. Throws Error if the file
// has no tokenizer.
ApiModel api_model_of(const Model& model, const ChatTemplate* chat, const std::string& chat_error,
                      bool own_template);

}  // namespace leq

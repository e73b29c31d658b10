#include "server/api_model.h"

#include <ctime>
#include <string_view>

#include "base/error.h"

namespace leq {
std::string model_name_of(const std::string& path) {
  const std::string name = path.substr(path.find_last_of('/') + 1);
  for (const std::string_view ending : {".leq", ".gguf"}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return name;
}

std::optional<ChatTemplate> chat_template_of(const Model& model, const std::string& name,
                                             std::string& error) {
  if (!name.empty()) return ChatTemplate::by_name(name);
  if (model.chat_template().empty()) {
    error = "the model has no chat template";
    return std::nullopt;
  }
  try {
    return ChatTemplate::of_model(model.chat_template(), model.file().name());
  } catch (const Error& refused) {
    error = refused.what();
    return std::nullopt;
  }
}

ApiModel api_model_of(const Model& model, const ChatTemplate* chat, const std::string& chat_error,
                      bool own_template) {
  ApiModel api = {.tokenizer = model.tokenizer()};
  api.vocabulary = static_cast<std::size_t>(model.config().vocab);
  api.name = model_name_of(model.file().name());
  api.chat = chat;
  api.chat_error = chat_error;
  api.style = reply_style(model.chat_template());
  api.rendering = chat_options(model.tokenizer());
  // Named formats do not support tools; a model's template does if it uses the variable `tools`.
  const std::string own = own_template ? model.chat_template() : std::string();
  api.template_has_tools = own.find("tools") != std::string::npos;
  api.template_has_developer = own.find("developer") != std::string::npos;
  api.created = std::time(nullptr);
  api.stop.end_tokens = model.end_tokens();
  return api;
}

}  // namespace leq

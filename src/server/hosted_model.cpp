#include "server/hosted_model.h"

#include <ctime>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "engine/prefix_file.h"

namespace leq {
namespace {

// A model whose template cannot be used still completes texts; `error` says why it does not chat.
std::optional<ChatTemplate> chat_template(const Model& model, const std::string& name,
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

std::optional<SlotFiles> files_of_slots(const Model& model, const RunLimits& limits,
                                        const HostOptions& options) {
  if (!options.slot_folder) return std::nullopt;
  return SlotFiles(*options.slot_folder,
                   {model.file().fingerprint(), limits.key_type, limits.value_type});
}

}  // namespace

std::string model_name_of(const std::string& path) {
  const std::string name = path.substr(path.find_last_of('/') + 1);
  for (const std::string_view ending : {".leq", ".gguf"}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return name;
}

std::size_t most_requests(const RunLimits& limits, const HostOptions& options) {
  return static_cast<std::size_t>(limits.sequences) + options.most_waiting;
}

ApiModel HostedModel::api_model(const HostOptions& options) {
  ApiModel api = {.tokenizer = model_.tokenizer()};
  api.slots = limits_.sequences;
  api.vocabulary = static_cast<std::size_t>(model_.config().vocab);
  api.name = options.name.empty() ? model_name_of(model_.file().name()) : options.name;
  api.chat = chat_ ? &*chat_ : nullptr;
  api.grammars = &grammars_;
  api.style = reply_style(model_.chat_template());
  api.rendering = chat_options(model_.tokenizer());
  api.rendering.enable_thinking = options.enable_thinking;
  api.sampling = options.sampling;
  api.sampling.seed = options.seed.value_or(0);
  api.has_seed = options.seed.has_value();
  api.thought_tokens = options.thought_tokens;
  api.thought_words = options.thought_words;
  api.chat_error = chat_error_;
  // Named formats know no tools; a template that shows them names the variable.
  const std::string own = options.chat_template.empty() ? model_.chat_template() : std::string();
  api.template_has_tools = own.find("tools") != std::string::npos;
  api.template_has_developer = own.find("developer") != std::string::npos;
  api.created = std::time(nullptr);
  api.stop.end_tokens = model_.end_tokens();
  api.stop.max_tokens = options.max_tokens;
  return api;
}

HostedModel::HostedModel(const Model& model, Session& session, const HostOptions& options)
    : model_(model),
      limits_(session.limits()),
      say_(options.say),
      slot_files_(files_of_slots(model, limits_, options)),
      keeps_texts_(slot_files_.has_value()),
      template_text_(options.chat_template.empty() ? model.chat_template() : options.chat_template),
      chat_(chat_template(model, options.chat_template, chat_error_)),
      api_(api_model(options)),
      engine_(session, model.tokenizer(), options.engine, most_requests(limits_, options)) {
  require(session.transformer().online().empty() || limits_.sequences == 1, Setting{"sequences"},
          ' ', limits_.sequences, ": this model's activations remember one sequence; use ",
          Setting{"sequences"}, " 1");
  if (!chat_error_.empty()) say_(api_.name + ": no chats, only completions: " + chat_error_);
  read_kept();
}

void HostedModel::end(double seconds) {
  if (!engine_.drain(seconds)) engine_.cancel_all();
  write_kept();
}

// What is kept only saves time: without it the model starts and ends as well.
void HostedModel::read_kept() {
  if (!slot_files_) return;
  const std::filesystem::path path = slot_files_->kept_texts();
  engine_.between_steps([&](Engine& engine) {
    KeptTexts kept;
    try {
      kept = read_kept_texts(path, engine, slot_files_->owner());
    } catch (const Error& error) {
      say_(std::string(error.marked()) + "; its texts are fed as usual");
    }
    if (kept.texts == 0) return;
    say_(path.string() + ": " + with_commas(kept.tokens) + " tokens of " + with_commas(kept.texts) +
         " texts need not be fed again");
  });
}

void HostedModel::write_kept() {
  if (!std::exchange(keeps_texts_, false)) return;
  const SlotFiles& files = *slot_files_;
  try {
    engine_.with_idle_sequence([&](Engine& engine) {
      const KeptTexts kept = write_kept_texts(files.kept_texts(), engine, files.owner());
      if (kept.texts == 0) return;
      say_(files.kept_texts().string() + ": " + with_commas(kept.tokens) + " tokens of " +
           with_commas(kept.texts) + " texts are kept for the next start");
    });
  } catch (const Error& error) {
    say_(std::string(error.marked()) + "; the next start begins without the texts of this run");
  }
}

}  // namespace leq

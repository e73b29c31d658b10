#include "server/hosted_model.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "server/api_model.h"

namespace leq {
namespace {

std::optional<SlotFiles> files_of_slots(const Model& model, Session& session,
                                        const HostOptions& options) {
  if (!options.slot_folder) return std::nullopt;
  return SlotFiles(*options.slot_folder, prefix_owner(model, session));
}

}  // namespace

std::size_t most_requests(const RunLimits& limits, const HostOptions& options) {
  return static_cast<std::size_t>(limits.sequences) + options.most_waiting;
}

ApiModel HostedModel::api_model(const HostOptions& options) {
  ApiModel api =
      api_model_of(model_, chat_ ? &*chat_ : nullptr, chat_error_, options.chat_template.empty());
  if (!options.name.empty()) api.name = options.name;
  api.slots = limits_.sequences;
  api.grammars = &grammars_;
  api.rendering.enable_thinking = options.enable_thinking;
  api.sampling = options.sampling;
  api.sampling.seed = options.seed.value_or(0);
  api.has_seed = options.seed.has_value();
  api.reasoning_tokens = options.reasoning_tokens;
  api.reasoning_words = options.reasoning_words;
  api.stop.max_tokens = options.max_tokens;
  return api;
}

HostedModel::HostedModel(const Model& model, Session& session, const HostOptions& options)
    : model_(model),
      limits_(session.limits()),
      say_(options.say),
      slot_files_(files_of_slots(model, session, options)),
      keeps_texts_(slot_files_.has_value()),
      template_text_(options.chat_template.empty() ? model.chat_template() : options.chat_template),
      chat_(chat_template_of(model, options.chat_template, chat_error_)),
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

// The stored texts only save time: if they cannot be read, the model starts normally.
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

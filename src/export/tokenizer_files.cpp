#include "export/tokenizer_files.h"

#include "base/error.h"

namespace leq {
namespace {

// tokenizer_class: a class that makes the consumer read tokenizer.json.
const char* class_name(const TokenizerSpec& rules, TokenizerUse use) {
  if (use == TokenizerUse::transformers) return "PreTrainedTokenizerFast";
  return rules.kind == TokenizerKind::byte_bpe ? "GPT2Tokenizer" : "LlamaTokenizer";
}

Json tokenizer_config(const Model& model, const TokenizerTables& tables, TokenizerUse use) {
  const TokenizerSpec& rules = tables.rules;
  Json json = {{"tokenizer_class", class_name(rules, use)},
               {"add_bos_token", rules.add_bos},
               {"add_eos_token", rules.add_eos},
               {"clean_up_tokenization_spaces", false},
               {"model_max_length", model.config().context}};
  const auto name = [&](const char* key, Token id) {
    if (id >= 0) json[key] = tables.pieces.text(static_cast<std::size_t>(id));
  };
  name("bos_token", rules.bos);
  name("eos_token", rules.eos);
  name("unk_token", rules.unknown);
  if (!model.chat_template().empty()) json["chat_template"] = model.chat_template();
  return json;
}

}  // namespace

void append_tokenizer_files(const Model& model, TokenizerUse use, std::vector<TextFile>& files,
                            std::vector<std::string>& notes) {
  if (!model.has_tokenizer()) {
    notes.push_back("the file carries no tokenizer: the folder has none");
    return;
  }
  const LeqReader& file = model.file();
  const BlobFinder blobs = [&](std::string_view name) { return file.blob(name); };
  const TokenizerTables tables = open_tokenizer_tables(blobs, file.name());
  const auto merges = file.blob(kMergesBlob).value_or(std::span<const std::byte>());
  const Json tokenizer = tokenizer_json(tables, merges, file.name());
  files.push_back({"tokenizer.json", tokenizer.dump_any(1)});
  files.push_back({"tokenizer_config.json", tokenizer_config(model, tables, use).dump_any(2)});
  if (!model.chat_template().empty()) {
    files.push_back({"chat_template.jinja", model.chat_template()});
  }
}

}  // namespace leq

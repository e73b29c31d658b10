#include "convert/tokenizer_import.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "convert/hf_tokenizer.h"
#include "convert/rank_file.h"
#include "convert/sentencepiece_model.h"
#include "convert/tokenizer_config.h"
#include "convert/tokenizer_files.h"
#include "convert/tokenizer_parts.h"
#include "convert/vocab_merges.h"
#include "tokenizer/pretokenize.h"

namespace leq {
namespace {

// The defaults of a Hugging Face tokenizer class for settings that the files do not specify.
struct TokenizerClass {
  std::string_view name;
  bool add_bos;
  std::string_view pretokenizer;  // for vocab.json + merges.txt; empty: no such class
};
constexpr std::array<TokenizerClass, 9> kClasses = {{
    {"GPT2Tokenizer", false, "gpt-2"},
    {"CodeGenTokenizer", false, "gpt-2"},
    {"GPTNeoXTokenizer", false, "gpt-2"},
    {"Qwen2Tokenizer", false, "qwen2"},
    {"Qwen3_5Tokenizer", false, "qwen35"},
    {"PreTrainedTokenizer", false, "gpt-2"},
    {"LlamaTokenizer", true, ""},
    {"CodeLlamaTokenizer", true, ""},
    {"GemmaTokenizer", true, ""},
}};

const TokenizerClass* find_class(std::string_view name) {
  const auto found = std::find_if(kClasses.begin(), kClasses.end(),
                                  [&](const auto& known) { return known.name == name; });
  return found == kClasses.end() ? nullptr : &*found;
}

bool class_adds_bos(const TokenizerConfig& config, bool otherwise) {
  const TokenizerClass* known = find_class(config.tokenizer_class);
  return known == nullptr ? otherwise : known->add_bos;
}

TokenizerSpec import_json(const TokenizerFile& file, const TokenizerConfig& config) {
  const std::string text = read_file(file.path, kMaxTokenizerFileBytes);
  HfTokenizer read = read_hf_tokenizer(text, file.path.string());
  TokenizerSpec& spec = read.spec;
  spec.bos = read.around.front;
  spec.eos = read.around.back;
  spec.add_bos =
      read.around.present ? read.around.front != kNoToken : class_adds_bos(config, false);
  spec.add_eos = read.around.back != kNoToken;
  return std::move(spec);
}

TokenizerSpec import_sentencepiece(const TokenizerFile& file, const TokenizerConfig& config) {
  const std::string bytes = read_file(file.path, kMaxTokenizerFileBytes);
  TokenizerSpec spec = read_sentencepiece_model(as_bytes(bytes), file.path.string());
  spec.add_bos = class_adds_bos(config, true);
  if (config.add_prefix_space == false) {
    std::erase_if(spec.normalizers,
                  [](const auto& step) { return step.kind == Normalizer::Kind::prepend; });
    spec.strip_leading_space = false;
  }
  return spec;
}

TokenizerSpec import_ranks(const TokenizerFile& file, const TokenizerImportOptions& options) {
  const std::string text = read_file(file.path, kMaxTokenizerFileBytes);
  return read_rank_file(text, file.path.string(), options.pretokenizer);
}

// The default token of GPT-2's and Qwen's classes, used if no file names one; if the vocabulary
// lacks it, it gets the id after the last piece.
void name_end_of_text(const std::string& tokenizer_class, TokenizerConfig& config) {
  const auto name = [](NamedToken& named) {
    if (named.present) return;
    named.present = true;
    named.token.content = "<|endoftext|>";
  };
  if (tokenizer_class == "GPT2Tokenizer") name(config.bos);
  name(config.eos);
}

TokenizerSpec import_vocab_merges(const TokenizerFiles& files, TokenizerConfig& config,
                                  const TokenizerImportOptions& options) {
  TokenizerSpec spec = read_vocab_merges(
      read_file(files.main.path, kMaxTokenizerFileBytes), files.main.path.string(),
      read_file(files.merges, kMaxTokenizerFileBytes), files.merges.string());
  if (config.tokenizer_class.empty()) config.tokenizer_class = "GPT2Tokenizer";
  std::string_view pretokenizer = options.pretokenizer;
  if (pretokenizer.empty()) {
    const TokenizerClass* known = find_class(config.tokenizer_class);
    require(known != nullptr && !known->pretokenizer.empty(), files.main.path.string(),
            ": the pre-tokenizer of tokenizer_class ", printable(config.tokenizer_class),
            " is not known; name one with ", Setting{"pretokenizer"});
    pretokenizer = known->pretokenizer;
  }
  set_pretokenizer(spec, pretokenizer);
  if (config.add_prefix_space == true) {
    PreTokenizer step;
    step.kind = PreTokenizer::Kind::prefix_space;
    spec.pre_tokenizers.insert(spec.pre_tokenizers.begin(), step);
  }
  name_end_of_text(config.tokenizer_class, config);
  return spec;
}

TokenizerSpec import_file(const TokenizerFiles& files, TokenizerConfig& config,
                          const TokenizerImportOptions& options) {
  switch (files.main.format) {
    case TokenizerFormat::tokenizer_json:
      return import_json(files.main, config);
    case TokenizerFormat::sentencepiece:
      return import_sentencepiece(files.main, config);
    case TokenizerFormat::ranks:
      return import_ranks(files.main, options);
    default:
      return import_vocab_merges(files, config, options);
  }
}

}  // namespace

ImportedTokenizer import_tokenizer(const std::filesystem::path& path,
                                   const TokenizerImportOptions& options) {
  const TokenizerFiles files = find_tokenizer_files(path);
  const auto folder = files.main.path.has_parent_path() ? files.main.path.parent_path()
                                                        : std::filesystem::path(".");
  TokenizerConfig config = read_tokenizer_config(folder);
  ImportedTokenizer imported;
  imported.file = files.main.path;
  imported.spec = import_file(files, config, options);
  apply_tokenizer_config(config, imported.spec);
  if (imported.spec.bos == kNoToken) imported.spec.add_bos = false;
  if (imported.spec.eos == kNoToken) imported.spec.add_eos = false;
  // Compiles the patterns immediately, so that errors name the tokenizer's file.
  const PreTokenizerChain checked(imported.spec.pre_tokenizers, files.main.path.string());
  imported.spec.source = files.main.path.filename().string();
  imported.chat_template = config.chat_template;
  return imported;
}

}  // namespace leq

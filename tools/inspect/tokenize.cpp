#include "tools/inspect/tokenize.h"

#include <algorithm>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "convert/tokenizer_import.h"
#include "model/open_model.h"
#include "tools/common/model_path.h"

namespace leq {
namespace {

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{4} << 30;

std::string read_text(const std::string& path) {
  if (path != "-") return read_text_file(path, kMaxTextBytes);
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  require(!std::cin.bad(), "standard input: cannot read");
  return text;
}

std::string encode(const Tokenizer& tokenizer, std::string_view text,
                   const EncodeOptions& options) {
  std::string line = "[";
  for (const Token id : tokenizer.encode(text, options)) {
    if (line.size() > 1) line += ", ";
    line += std::to_string(id);
  }
  return line + "]\n";
}

}  // namespace

std::string tokenize_file(const std::filesystem::path& path, const std::string& text_path,
                          const std::string& pretokenizer, const EncodeOptions& options) {
  const std::string text = read_text(text_path);
  if (const auto offset = first_invalid_utf8(text)) {
    fail(text_path == "-" ? "standard input" : text_path, ": byte ", *offset,
         " is no UTF-8; convert the text first (iconv -t UTF-8)");
  }
  if (path.extension() == ".leq" || begins_as_leq_file(path)) {
    LoadOptions load;
    load.mode = LoadMode::map;
    const Model model(path, load);
    return encode(model.tokenizer(), text, options);
  }
  const ImportedTokenizer imported = import_tokenizer(path, {pretokenizer});
  return encode(Tokenizer(imported.spec), text, options);
}

}  // namespace leq

// Byte-level BPE: every byte is a symbol, and pairs are merged by rank.
#include "tokenizer/models.h"

namespace leq {

void encode_byte_bpe(const Model& model, std::string_view piece, ModelScratch& scratch,
                     std::vector<Token>& out) {
  const TokenizerTables& tables = model.tables;
  if (tables.rules.ignore_merges && append_whole(tables, piece, out)) return;
  auto& symbols = scratch.symbols;
  symbols.clear();
  const Token unknown = tables.rules.unknown;
  for (const char byte : piece) {
    const std::uint32_t id = model.alphabet.bytes[static_cast<unsigned char>(byte)];
    if (id != kEmptySlot) {
      symbols.push_back(id);
    } else if (unknown != kNoToken) {
      const auto symbol = static_cast<std::uint32_t>(unknown);
      if (!tables.rules.fuse_unknown || symbols.empty() || symbols.back() != symbol) {
        symbols.push_back(symbol);
      }
    }
  }
  scratch.merger.merge(tables.merges, symbols);
  // Damaged tables may result in a symbol that is not a token; it is dropped.
  for (const std::uint32_t id : symbols) {
    if (id < tables.size()) out.push_back(static_cast<Token>(id));
  }
}

}  // namespace leq

// Walks through the tokens that a grammar allows, and the validation of their texts by Python's
// jsonschema, which shares no code with the grammars.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/random.h"
#include "convert/tokenizer_import.h"
#include "grammar/matcher.h"
#include "temporary_folder.h"

namespace leq {

struct Words {
  Tokenizer tokenizer;
  std::shared_ptr<const TokenTrie> trie = make_token_trie(tokenizer, tokenizer.size() + 5);
};

inline std::unique_ptr<Words> words_of(const std::filesystem::path& folder) {
  return std::make_unique<Words>(Tokenizer(import_tokenizer(folder).spec));
}

inline bool bit(const std::vector<std::uint64_t>& mask, Token id) {
  return (mask[static_cast<std::size_t>(id) / 64] >> id % 64 & 1) != 0;
}

// Generates random allowed tokens; the sequence sometimes ends where the text may end.
inline std::string random_walk(GrammarMatcher& matcher, const Words& words, Random& random,
                               std::size_t most, bool check) {
  std::string text;
  GrammarState state = matcher.start();
  std::vector<std::uint64_t> mask(matcher.words());
  for (std::size_t step = 0; step < most; ++step) {
    if (matcher.must_end(state) || (matcher.may_end(state) && random.bits() % 8 == 0)) return text;
    matcher.allow(state, mask);
    std::vector<Token> allowed;
    for (Token id = 0; id < static_cast<Token>(words.tokenizer.size() + 5); ++id) {
      if (bit(mask, id)) allowed.push_back(id);
      if (!check) continue;
      EXPECT_EQ(bit(mask, id), matcher.after(state, id) != kOutOfGrammar)
          << text << " then token " << id;
    }
    EXPECT_FALSE(allowed.empty()) << text;
    if (allowed.empty()) return "";
    // Short tokens are preferred, so that texts end.
    Token next = allowed[random.bits() % allowed.size()];
    for (int i = 0; i < 3; ++i) {
      const Token other = allowed[random.bits() % allowed.size()];
      if (words.tokenizer.token_bytes(other).size() < words.tokenizer.token_bytes(next).size())
        next = other;
    }
    text += words.tokenizer.token_bytes(next);
    state = matcher.after(state, next);
  }
  return "";
}

struct Validation {
  bool all_valid = false;
  std::string said, skipped;  // skipped: why nothing was validated
};

// `cases`: [{"schema": ..., "documents": [text, ...]}, ...].
inline Validation validated(const Json& cases) {
  const test::TemporaryFolder temporary;
  const auto file = temporary.path() / "cases.json";
  std::ofstream(file) << cases.dump();
  const std::string command = LEQ_PYTHON " " + std::string(LEQ_SOURCE_DIR) +
                              "/tests/grammar/validate.py " + file.string() + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  Validation found;
  std::array<char, 4096> buffer;
  while (const std::size_t got = fread(buffer.data(), 1, buffer.size(), pipe)) {
    found.said.append(buffer.data(), got);
  }
  const int status = pclose(pipe);
  if (found.said.starts_with("needs ")) found.skipped = found.said;
  found.all_valid = status == 0 && found.said.starts_with("all valid: ");
  return found;
}

}  // namespace leq

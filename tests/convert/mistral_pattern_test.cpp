// Mistral folders whose split pattern is not Mistral's: the note about this, and how the correct
// pattern splits texts. The expected pieces are those of the tokenizers library's Split with the
// pattern of transformers (fix_mistral_regex).
#include "convert/hf_tokenizer.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "convert/tokenizer_parts.h"
#include "tokenizer/pretokenize.h"

namespace leq::mistral_pattern {
namespace {

using Pieces = std::vector<std::string>;

TokenizerSpec splits_as(std::string_view name) {
  TokenizerSpec spec;
  set_pretokenizer(spec, name);
  return spec;
}

Pieces pieces_of(const TokenizerSpec& spec, std::string_view text) {
  const PreTokenizerChain chain(spec.pre_tokenizers, "test");
  PatternMatcher matcher;
  Pieces pieces;
  chain.cut(text, {}, matcher, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

TEST(MistralPattern, CutsAsTransformersWithItsFix) {
  TokenizerSpec spec = splits_as("llama-3");
  const std::string text = "HTTPServer isReady, don't 2024!\n";
  EXPECT_EQ(pieces_of(spec, text)[0], "HTTPServer");
  EXPECT_EQ(pieces_of(spec, text)[1], " isReady");
  fix_mistral_pattern(spec);
  EXPECT_EQ(pieces_of(spec, text), (Pieces{"HTTPServer", " is", "Ready", ",", " don", "'t", " ",
                                           "2", "0", "2", "4", "!\n"}));
  EXPECT_EQ(pieces_of(spec, "camelCase\u00c9cole a/b//\n  x"),
            (Pieces{"camel", "Case", "\u00c9cole", " a", "/b", "//\n", " ", " x"}));
  EXPECT_EQ(pieces_of(spec, "'quoted' XML\u00e9\u0301Ab"),
            (Pieces{"'quoted", "'", " XML\u00e9\u0301", "Ab"}));
}

TEST(MistralPattern, IsSaidOfFoldersThatMayCarryAnother) {
  const auto note = [](const char* type, const char* version, const TokenizerSpec& spec) {
    return mistral_pattern_note({{"model_type", type}, {"transformers_version", version}}, spec);
  };
  TokenizerSpec spec = splits_as("llama-3");
  EXPECT_NE(note("mistral", "4.57.1", spec).find("fix_mistral_regex"), std::string::npos);
  EXPECT_NE(note("pixtral", "4.46.0", spec), "");
  EXPECT_EQ(note("mistral", "5.0.0", spec), "");
  EXPECT_EQ(note("llama", "4.57.1", spec), "");
  EXPECT_NE(mistral_pattern_note(Json::object({{"model_type", "mistral"}}), spec), "");
  // These patterns are already correct, or belong to sentencepiece, which has no pattern.
  fix_mistral_pattern(spec);
  EXPECT_EQ(note("mistral", "4.57.1", spec), "");
  EXPECT_EQ(note("mistral", "4.57.1", TokenizerSpec()), "");
}

TEST(MistralPattern, OfATokenizerWithoutPatternIsRefused) {
  TokenizerSpec spec;
  EXPECT_THROW(fix_mistral_pattern(spec), Error);
}

}  // namespace
}  // namespace leq::mistral_pattern

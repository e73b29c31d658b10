// Tests streaming of bytes: characters that are split, invalid or incomplete.
#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "small_specs.h"
#include "tokenizer_support.h"

namespace leq::test {
namespace {

// Pushes bytes one by one (in small_byte_spec the id of a byte is the byte) and finishes.
std::string stream(std::string_view bytes) {
  const Tokenizer tokenizer(small_byte_spec());
  StreamDecoder decoder(tokenizer, true);
  std::string out;
  for (const char byte : bytes) {
    const std::string part = decoder.push(static_cast<unsigned char>(byte));
    EXPECT_EQ(first_invalid_utf8(part), std::nullopt);
    out += part;
  }
  return out + decoder.finish();
}

// The examples of "U+FFFD Substitution of Maximal Subparts" in the Unicode Standard, 3.9.
TEST(StreamDecoder, BrokenBytesAreReplacedAsUnicodeRecommends) {
  const std::string sign = "\xef\xbf\xbd";
  EXPECT_EQ(stream("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"),
            replace_all("########", "#", sign) + "A");
  EXPECT_EQ(stream("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"),
            replace_all("########", "#", sign) + "A");
  EXPECT_EQ(stream("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"),
            replace_all("#####", "#", sign) + "A" + sign + sign + "B");
  EXPECT_EQ(stream("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), replace_all("####", "#", sign) + "A");
}

TEST(StreamDecoder, UnfinishedBytesEndAsOneSign) {
  for (const char* bytes : {"\xc3", "\xe2\x82", "\xf0\x9f\x98"}) {
    EXPECT_EQ(stream(std::string("a") + bytes), "a\xef\xbf\xbd");
  }
}

TEST(StreamDecoder, HoldsBackOnlyUnfinishedCharacters) {
  const Tokenizer tokenizer(small_byte_spec());
  StreamDecoder decoder(tokenizer, true);
  EXPECT_EQ(decoder.push('h'), "h");
  EXPECT_EQ(decoder.push(0xe2), "");
  EXPECT_EQ(decoder.push(tokenizer.eos()), "");  // special tokens add nothing
  EXPECT_EQ(decoder.push(0x82), "");
  EXPECT_EQ(decoder.push(0xac), "\xe2\x82\xac");
  EXPECT_EQ(decoder.push(-1), "");
  EXPECT_EQ(decoder.push(1 << 20), "");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, DropsOneSpaceAtTheStartOfAText) {
  const Tokenizer tokenizer(small_sentencepiece_spec(TokenizerKind::sentencepiece_bpe));
  const auto ids = encode(tokenizer, " the");
  for (const bool at_start : {true, false}) {
    StreamDecoder decoder(tokenizer, at_start);
    std::string text;
    for (const Token id : ids) text += decoder.push(id);
    EXPECT_EQ(text, at_start ? " the" : "  the");
  }
}

TEST(StreamDecoder, WellFormedTextIsUnchangedHoweverItIsCut) {
  Random random(2);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) {
      const char32_t c = random.below(0x110000);
      if (c < 0xd800 || c >= 0xe000) append_utf8(text, c);
    }
    EXPECT_EQ(stream(text), text);
  }
}

}  // namespace
}  // namespace leq::test

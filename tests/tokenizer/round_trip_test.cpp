// decode(encode(x)) must be x without a normalizer, otherwise NFC(x); any bytes can be encoded.
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <thread>

#include "base/random.h"
#include "small_specs.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer_support.h"

namespace leq::test {
namespace {

char32_t random_character(Random& random) {
  switch (random.below(8)) {
    case 0:
      return random.below(0x80);
    case 1:
      return random.below(0x800);
    case 2:
      return 0x300 + random.below(0x70);  // combining marks
    case 3:
      return 0x1100 + random.below(0x100);  // Hangul jamo
    case 4:
      return 0x10000 + random.below(0x20000);
    case 5:
      return " \n\t.'1"[random.below(6)];
    default:
      return U'a' + random.below(26);
  }
}

std::string random_unicode(Random& random, std::size_t characters) {
  std::string text;
  for (std::size_t i = 0; i < characters; ++i) {
    char32_t c = random.below(4) == 0 ? random.below(0x10000) : random_character(random);
    if ((c >= 0xd800 && c < 0xe000) || c == 0x2581) c = U'?';  // U+2581 is read as a space
    append_utf8(text, c);
  }
  return text;
}

std::string random_bytes(Random& random, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += static_cast<char>(random.below(256));
  return replace_all(text, kSpaceMark, "");
}

// Computes NFC with utf8proc's own function.
std::string nfc_oracle(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &out,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  EXPECT_GE(size, 0);
  const std::string result(reinterpret_cast<const char*>(out), static_cast<std::size_t>(size));
  std::free(out);
  return result;
}

TEST(Normalize, NfcEqualsUtf8proc) {
  Random random(3);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_unicode(random, random.below(40));
    EXPECT_EQ(nfc(text), nfc_oracle(text));
  }
  // Tests every character after others that it might compose with; none beyond plane 2 decomposes.
  constexpr char32_t kLastDecomposed = 0x30000;
  for (char32_t c = 0; c < kLastDecomposed; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    for (const char* base : {"", "a", "\xea\xb0\x80", "\xe3\x81\x8b", "\xd0\xb8"}) {
      std::string text = base;
      append_utf8(text, c);
      if (c >= 0x300 && c < 0x3100) append_utf8(text, 0x301);
      ASSERT_EQ(nfc(text), nfc_oracle(text)) << static_cast<unsigned>(c);
    }
  }
}

TEST(RoundTrip, RandomUnicodeAndBytes) {
  for (const char* path :
       {"models/gpt2-tiny", "models/qwen2-tiny", "models/qwen3-tiny", "models/storyteller",
        "models/mistral-tiny/tokenizer.model", "data/tokenizers/llama3/tokenizer.model",
        "data/tokenizers/llama2/tokenizer.json"}) {
    LEQ_SHARED_OR_SKIP(file, path);
    const auto spec = import_tokenizer(file).spec;
    const bool has_nfc =
        !spec.normalizers.empty() && spec.normalizers[0].kind == Normalizer::Kind::nfc;
    const Tokenizer tokenizer(spec);
    Random random(5);
    for (int round = 0; round < 400; ++round) {
      const std::string text = random_unicode(random, random.below(60));
      const auto ids = encode(tokenizer, text);
      EXPECT_EQ(tokenizer.decode(ids, true), has_nfc ? nfc_oracle(text) : text) << path;
      if (has_nfc) continue;
      const std::string bytes = random_bytes(random, random.below(60));
      EXPECT_EQ(tokenizer.decode(encode(tokenizer, bytes), true), bytes) << path;
    }
  }
}

TEST(RoundTrip, SmallTokenizersTakeAnyBytes) {
  Random random(9);
  for (const TokenizerSpec& spec : small_specs()) {
    const Tokenizer tokenizer(spec);
    for (int round = 0; round < 300; ++round) {
      const std::string bytes = random_bytes(random, random.below(60));
      EXPECT_EQ(tokenizer.decode(encode(tokenizer, bytes), true), bytes) << spec.source;
    }
  }
}

// Only long texts use the word cache; splitting a text at a line end must not change its ids.
TEST(RoundTrip, LongTextsEqualTheirParts) {
  LEQ_SHARED_OR_SKIP(data, "data");
  const Tokenizer tokenizer = open_tokenizer(data / "tokenizers/gpt2");
  const std::string text = read_file(data / "wikitext-2/wiki.valid.raw", 1 << 24);
  std::vector<Token> parts;
  std::string rest;
  for (const auto line : split(text, "\n =")) {
    const auto ids = encode(tokenizer, rest + std::string(line));
    parts.insert(parts.end(), ids.begin(), ids.end());
    rest = "\n =";
  }
  EXPECT_EQ(encode(tokenizer, text), parts);
}

TEST(RoundTrip, ThreadsShareATokenizer) {
  const Tokenizer tokenizer(small_byte_spec());
  const std::string text = replace_all(std::string(2000, '.'), ".", " hello h\xc3\xa9ll");
  const auto want = encode(tokenizer, text);
  std::vector<std::vector<Token>> got(4);
  std::vector<std::thread> threads;
  for (auto& ids : got) threads.emplace_back([&] { ids = encode(tokenizer, text); });
  for (auto& thread : threads) thread.join();
  for (const auto& ids : got) EXPECT_EQ(ids, want);
}

}  // namespace
}  // namespace leq::test

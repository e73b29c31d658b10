// Tokenizer rules that would expand a letter to gigabytes, or need hours for a page of text, are
// refused with an error that names them; what is accepted takes no quadratic time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "errors.h"
#include "small_specs.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/tables.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer_support.h"

namespace leq::test {
namespace {

using test::error_of;

std::vector<Normalizer> doubling(int steps) {
  return std::vector<Normalizer>(static_cast<std::size_t>(steps),
                                 {Normalizer::Kind::replace, "e", "ee"});
}

std::string normalize_error(const std::vector<Normalizer>& steps, const std::string& text) {
  std::string buffer;
  return error_of([&] {
    normalize(steps, text,
              {.prepend = true, .max_bytes = longest_normalized(text.size()), .source = "t.json"},
              buffer);
  });
}

TEST(NormalizerLimits, GrowthIsBoundedByTheText) {
  EXPECT_EQ(normalize_error(doubling(4), std::string(1'000'000, 'e')), "");
  EXPECT_NE(normalize_error(doubling(5), std::string(1'000'000, 'e')), "");
  EXPECT_EQ(normalize_error(doubling(16), "e"), "");  // 64 KB are allowed
  const std::string message = normalize_error(doubling(30), "e");
  EXPECT_NE(message.find("t.json: normalizer 17 of 30, replace \"e\" by \"ee\""), std::string::npos)
      << message;
  EXPECT_NE(normalize_error({{Normalizer::Kind::replace, "e", std::string(16384, 'x')}},
                            std::string(1000, 'e')),
            "");
  EXPECT_NE(normalize_error({{Normalizer::Kind::prepend, "", std::string(16384, 'x')},
                             {Normalizer::Kind::replace, "x", std::string(100, 'y')}},
                            "e"),
            "");
}

TEST(NormalizerLimits, AFileIsJudgedByItsOwnPatterns) {
  EXPECT_EQ(error_of([] { check_normalizers(doubling(4), "t.json"); }), "");
  test::expect_error([] { check_normalizers(doubling(6), "t.json"); }, {"t.json: normalizer"});
  // The normalizers form a chain over several letters.
  std::vector<Normalizer> chain;
  for (char c = 'a'; c < 'z'; ++c) {
    const std::string next(1, static_cast<char>(c + 1));
    chain.push_back({Normalizer::Kind::replace, std::string(1, c), next + next});
  }
  EXPECT_NE(error_of([&] { check_normalizers(chain, "t.json"); }), "");
  // Real tokenizers also replace a space of one byte by a mark of three bytes.
  EXPECT_EQ(
      error_of([] {
        check_normalizers(
            std::vector<Normalizer>{{Normalizer::Kind::prepend, "", std::string(kSpaceMark)},
                                    {Normalizer::Kind::replace, " ", std::string(kSpaceMark)}},
            "t.json");
      }),
      "");
}

// Stretches between invalid UTF-8 bytes are normalized separately, but share one limit.
TEST(NormalizerLimits, ManyStretchesShareOneBound) {
  TokenizerSpec spec = small_byte_spec();
  spec.normalizers = doubling(15);  // 32 KB for each letter
  const Tokenizer tokenizer(spec);
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "e\xff";
  test::expect_error([&] { (void)tokenizer.encode(text, {}); }, {"replace \"e\""});
  EXPECT_EQ(tokenizer.encode("e", {}).size(), 32768u);
}

TEST(PatternLimits, RepeatsAreCountedWrittenOut) {
  const auto error = [](const std::string& pattern) {
    return error_of([&] { pcre2_pattern(pattern, "t.json"); });
  };
  for (const char* good : {"a{1000}", "(a{100}){100}", "\\p{N}{1,3}", "[^\\]}]{3}x{2,}", "a{,b}",
                           "({)", "\\x{ffff}\\x{10ffff}", "(?:'s|'t)?", "(a{3}|b{4}){5}(c{10}){10}",
                           "[a{1000}]{1000}", "\\({10000}"}) {
    EXPECT_EQ(error(good), "") << good;
  }
  for (const char* bad :
       {"(a{1000}){1000}", "(a{1000}){1000,}", "(\\d{1000}){1000}", "((a{50}){50}){50}",
        "(?:(?:a|b{200})c{1}){200,300}", "a{20001}", "([ab]{150}\\d){150}", "(a{65535}){65535}",
        "(a{60000}b{60000}){9223372036854775807}"}) {
    const std::string message = error(bad);
    EXPECT_NE(message.find("t.json: pattern \""), std::string::npos) << bad;
    EXPECT_NE(message.find("repeats too much"), std::string::npos) << bad;
  }
  EXPECT_EQ(error(std::string(kMaxPatternBytes, 'a')), "");
}

// Texts of letters, the hashes of which begin with six zeros, or any texts.
std::vector<std::string> texts_of_a_slot(std::size_t count, bool collide) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; texts.size() < count; ++i) {
    std::string text;
    for (std::size_t rest = i; text.size() < 5; rest /= 26) {
      text += static_cast<char>('a' + rest % 26);
    }
    if (!collide || hash_slot(hash_piece(text), 6) == 0) texts.push_back(std::move(text));
  }
  return texts;
}

TEST(TableLimits, PiecesThatCollideAreRefused) {
  for (const bool collide : {false, true}) {
    TokenizerSpec spec = small_byte_spec();
    for (const std::string& text : texts_of_a_slot(6000, collide)) {
      add_piece(spec, text, TokenType::normal);
    }
    spec.scores.clear();
    const std::string error = error_of([&] { (void)tokenizer_tables(spec); });
    EXPECT_EQ(
        error.find("small bytes: table tokenizer.lookup has more than 4096 slots in use") == 0,
        collide)
        << error;
  }
}

TEST(TableLimits, MergesThatCollideAreRefused) {
  for (const bool collide : {false, true}) {
    TokenizerSpec spec = small_byte_spec();
    const std::size_t before = spec.merges.size();
    for (std::uint64_t i = 0; spec.merges.size() - before < 6000; ++i) {
      const std::uint64_t left = i / 512, right = i % 512;
      if (collide && hash_slot(left << 32 | right, 6) != 0) continue;
      spec.merges.push_back({static_cast<Token>(left), static_cast<Token>(right), 0});
    }
    spec.scores.clear();
    while (spec.pieces.size() < 1024) add_piece(spec, "x", TokenType::user_defined);
    spec.scores.clear();
    const std::string error = error_of([&] { (void)tokenizer_tables(spec); });
    EXPECT_EQ(
        error.find("small bytes: table tokenizer.merges has more than 4096 slots in use") == 0,
        collide)
        << error;
  }
}

// Also for a run that wraps around the end of the table.
TEST(TableLimits, TablesWithLongRunsAreNotOpened) {
  constexpr std::size_t kSlots = 1 << 14;
  for (const std::size_t first : {std::size_t{0}, kSlots - 100}) {
    for (const std::size_t used : {4096u, 4097u}) {
      auto blobs = tokenizer_tables(small_byte_spec());
      std::vector<std::uint32_t> slots(kSlots, kEmptySlot);
      for (std::size_t i = 0; i < used; ++i) slots[(first + i) % kSlots] = 0;
      for (NamedBlob& blob : blobs) {
        if (blob.name != "tokenizer.lookup") continue;
        blob.bytes.resize(kSlots * sizeof slots[0]);
        std::memcpy(blob.bytes.data(), slots.data(), blob.bytes.size());
      }
      const std::string error = error_of([&] { Tokenizer(finder(blobs), "m.leq"); });
      EXPECT_EQ(error.find("m.leq: table tokenizer.lookup has more than 4096") == 0, used > 4096)
          << error;
    }
  }
}

template <class Call>
double processor_time(Call&& call) {
  const std::clock_t start = std::clock();
  call();
  return static_cast<double>(std::clock() - start);
}

// Where special tokens are matched in normalized text, each message is normalized by itself.
TEST(TimeLimits, ManyMessagesTakeNoQuadraticTime) {
  std::vector<TextPart> parts;
  for (int i = 0; i < 50'000; ++i) {
    parts.push_back({"<end>", true});
    parts.push_back({"hello", false});
  }
  TokenizerSpec spec = small_byte_spec();
  const Tokenizer raw(spec);
  spec.added[0].normalized = true;
  const Tokenizer normalized(spec);
  std::vector<Token> want, got;
  const double of_raw = processor_time([&] { want = raw.encode_parts(parts); });
  const double of_normalized = processor_time([&] { got = normalized.encode_parts(parts); });
  EXPECT_EQ(got, want);
  EXPECT_LT(of_normalized, 20 * of_raw);
}

// Each line end within the white space that another one absorbed is a token, too.
TEST(TimeLimits, WhiteSpaceIsAbsorbedInLinearTime) {
  TokenizerSpec spec = small_byte_spec();
  add_special(spec, "\n");
  spec.scores.clear();
  const std::string text(200'000, '\n');
  const Tokenizer plain(spec);
  spec.added.back().rstrip = true;
  const Tokenizer absorbing(spec);
  std::vector<Token> want, got;
  const double of_plain = processor_time([&] { want = encode(plain, text); });
  const double of_absorbing = processor_time([&] { got = encode(absorbing, text); });
  EXPECT_EQ(got, want);
  EXPECT_LT(of_absorbing, 20 * of_plain);
}

// A folder with a vocabulary of some pieces and many added tokens.
double import_time(const std::vector<std::string>& pieces, const std::vector<std::string>& added,
                   const std::vector<std::string>& special) {
  Json json = parse_json(R"({"pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type":
      "ByteLevel"}, "model": {"type": "BPE", "merges": []}, "added_tokens": []})",
                         "json");
  Json vocabulary = Json::object(), tokens = Json::array();
  Token id = 0;
  for (const std::string& piece : pieces) vocabulary[piece] = id++;
  for (const std::string& content : added) {
    tokens.push_back({{"id", id++}, {"content", content}, {"special", true}});
  }
  json["model"]["vocab"] = std::move(vocabulary);
  json["added_tokens"] = std::move(tokens);
  const FolderOf folder;
  folder.write("tokenizer.json", json.dump());
  folder.write("tokenizer_config.json", Json({{"additional_special_tokens", special}}).dump());
  ImportedTokenizer imported;
  const double time = processor_time([&] { imported = import_tokenizer(folder.path()); });
  EXPECT_EQ(imported.spec.added.size(), added.size());
  return time;
}

TEST(TimeLimits, ManyAddedTokensTakeNoQuadraticTime) {
  const std::vector<std::string> pieces = texts_of_a_slot(20'000, false);
  std::vector<std::string> absent, alike;
  for (int i = 0; i < 20'000; ++i) absent.push_back("~" + std::to_string(i));
  for (int i = 0; i < 20'000; ++i) alike.push_back(std::string(500, '#') + std::to_string(i));
  EXPECT_LT(import_time(pieces, {}, absent), 10 * import_time(pieces, {}, {}));
  EXPECT_LT(import_time({"a"}, alike, {}), 3 * import_time(alike, {}, {}));
}

// 16 bytes of ASCII each, which libstdc++'s std::hash (MurmurHash64A) gives one number.
std::vector<std::string> murmur_collisions(std::size_t count) {
  constexpr std::uint64_t kFactor = 0xc6a4a7935bd1e995ull;
  std::uint64_t inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kFactor * inverse;
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; texts.size() < count; ++i) {
    std::string text(16, ' ');
    for (std::size_t k = 0; k < 8; ++k) text[k] = static_cast<char>('a' + (i >> (4 * k) & 15));
    std::uint64_t first = 0;
    std::memcpy(&first, text.data(), 8);
    first *= kFactor;
    first = (first ^ first >> 47) * kFactor;
    const std::uint64_t after_first = ((0xc70f6907ull ^ 16 * kFactor) ^ first) * kFactor;
    std::uint64_t second = after_first * inverse;
    second = (second ^ second >> 47) * inverse;
    std::memcpy(text.data() + 8, &second, 8);
    const auto is_ascii = [](char c) { return c > 0 && c < 0x7f; };
    if (std::ranges::all_of(text, is_ascii)) texts.push_back(std::move(text));
  }
  return texts;
}

TEST(TimeLimits, PiecesThatCollideInAStandardHashTakeNoQuadraticTime) {
  const std::vector<std::string> alike = murmur_collisions(20'000);
  EXPECT_EQ(std::hash<std::string>()(alike[0]), std::hash<std::string>()(alike[1]));
  std::vector<std::string> other;
  for (std::size_t i = 0; i < alike.size(); ++i) other.push_back(std::to_string(100'000 + i));
  EXPECT_LT(import_time(alike, {}, {}), 10 * import_time(other, {}, {}));
}

}  // namespace
}  // namespace leq::test

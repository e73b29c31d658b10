// Reading tokenizer files: precedence of files, effects of the config, and files that are refused.
#include <gtest/gtest.h>

#include "base/error.h"
#include "convert/sentencepiece_model.h"
#include "convert/tokenizer_import.h"
#include "errors.h"
#include "protobuf_writer.h"
#include "tokenizer_support.h"

namespace leq::test {
namespace {

// A byte-level tokenizer.json with a few letters.
Json small_json() {
  Json json = parse_json(R"({
    "version": "1.0", "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "decoder": {"type": "ByteLevel"}, "post_processor": null,
    "added_tokens": [{"id": 8, "content": "<s>", "special": true, "normalized": false},
                     {"id": 9, "content": "</s>", "special": true, "normalized": false}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4, "abc": 5, "Ġab": 6,
              "d": 7}, "merges": ["a b", "ab c", "Ġ ab"]}})",
                         "tokenizer.json");
  return json;
}

// Creates a sentencepiece-like tokenizer.json with byte fallback for only two bytes.
Json metaspace_json(const char* scheme, bool split) {
  Json json = small_json();
  json["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", split}};
  json["decoder"] = json["pre_tokenizer"];
  json["model"]["vocab"] = {{"<unk>", 0}, {"▁", 1},  {"a", 2},  {"b", 3},
                            {"▁a", 4},    {"ab", 5}, {"b▁", 6}, {"<0xC3>", 7}};
  json["model"]["merges"] =
      Json::array({Json::array({"b", "▁"}), Json::array({"▁", "a"}), Json::array({"a", "b"})});
  json["model"]["unk_token"] = "<unk>";
  json["model"]["byte_fallback"] = true;
  json["model"]["fuse_unk"] = true;
  return json;
}

Tokenizer open_json(const Json& json, const Json& config = nullptr) {
  const FolderOf folder;
  folder.write("tokenizer.json", json.dump());
  if (!config.is_null()) folder.write("tokenizer_config.json", config.dump());
  return open_tokenizer(folder.path());
}

void expect_refused(const FolderOf& folder, std::string_view what) {
  test::expect_error([&] { (void)import_tokenizer(folder.path()); }, {what});
}

void expect_json_refused(const Json& json, std::string_view what) {
  const FolderOf folder;
  folder.write("tokenizer.json", json.dump());
  expect_refused(folder, what);
}

using Ids = std::vector<Token>;

TEST(HfTokenizer, MergesAsStringsAndPairs) {
  Json json = small_json();
  const Tokenizer strings = open_json(json);
  json["model"]["merges"] =
      Json::array({Json::array({"a", "b"}), Json::array({"ab", "c"}), Json::array({"Ġ", "ab"})});
  const Tokenizer pairs = open_json(json);
  EXPECT_EQ(encode(strings, "abc ab"), (Ids{5, 6}));
  EXPECT_EQ(encode(pairs, "abc ab"), (Ids{5, 6}));
}

TEST(HfTokenizer, IgnoreMergesTakesAWholePiece) {
  Json json = small_json();
  json["model"]["merges"] = Json::array();
  EXPECT_EQ(encode(open_json(json), "abc"), (Ids{0, 1, 2}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(encode(open_json(json), "abc"), (Ids{5}));
}

// A text outside GPT-2's alphabet is printed, but never found, as in tokenizers.
TEST(HfTokenizer, PiecesOutsideTheAlphabetMatchNothing) {
  Json json = small_json();
  json["model"]["ignore_merges"] = true;
  json["model"]["vocab"][" "] = 10;
  json["model"]["vocab"]["日本"] = 11;
  const Tokenizer tokenizer = open_json(json);
  EXPECT_EQ(encode(tokenizer, " ab a"), (Ids{6, 3, 0}));
  EXPECT_EQ(encode(tokenizer, "a日本b"), (Ids{4}));
  EXPECT_EQ(tokenizer.decode(Ids{0, 10, 11}, false), "a 日本");
  json["added_tokens"].push_back({{"id", 11}, {"content", "日本"}, {"special", false}});
  EXPECT_EQ(encode(open_json(json), "a日本b"), (Ids{0, 11, 1}));
  const FolderOf folder;
  folder.write("vocab.json", R"({"Ġ": 1, " ": 0, "a": 2})");
  folder.write("merges.txt", "#version: 0.2\n");
  EXPECT_EQ(encode(open_tokenizer(folder.path()), " a"), (Ids{1, 2}));
}

TEST(HfTokenizer, BytesWithoutATokenAreShownInTheSummary) {
  const Tokenizer tokenizer = open_json(small_json());
  EXPECT_EQ(encode(tokenizer, "axb"), (Ids{4}));  // as in transformers: x is dropped before merging
  EXPECT_NE(tokenizer.summary().find("251 byte values have no token"), std::string::npos)
      << tokenizer.summary();
}

TEST(HfTokenizer, Metaspace) {
  EXPECT_EQ(encode(open_json(metaspace_json("always", true)), "a a"), (Ids{4, 4}));
  EXPECT_EQ(encode(open_json(metaspace_json("always", true)), "a<s>a"), (Ids{4, 8, 4}));
  EXPECT_EQ(encode(open_json(metaspace_json("first", true)), "a<s>a"), (Ids{4, 8, 2}));
  EXPECT_EQ(encode(open_json(metaspace_json("never", true)), "a a"), (Ids{2, 4}));
  // Text is not split at the space, so the merge across the space takes place.
  EXPECT_EQ(encode(open_json(metaspace_json("always", true)), "b a"), (Ids{1, 3, 4}));
  EXPECT_EQ(encode(open_json(metaspace_json("always", false)), "b a"), (Ids{1, 6, 2}));
  const Tokenizer tokenizer = open_json(metaspace_json("always", true));
  EXPECT_TRUE(tokenizer.strips_leading_space());
  EXPECT_EQ(tokenizer.decode(Ids{4, 4}, false), "a a");
}

TEST(HfTokenizer, UnknownCharacters) {
  const Tokenizer tokenizer = open_json(metaspace_json("never", true));
  EXPECT_EQ(encode(tokenizer, "axyb"), (Ids{2, 0, 3}));    // fused
  EXPECT_EQ(encode(tokenizer, "a\xc3\xa9"), (Ids{2, 0}));  // one of its bytes has no token
  EXPECT_EQ(encode(tokenizer, "a\xc3"), (Ids{2, 7}));      // an invalid byte that has a token
  Json json = metaspace_json("never", true);
  json["model"]["fuse_unk"] = false;
  EXPECT_EQ(encode(open_json(json), "axyb"), (Ids{2, 0, 0, 3}));
}

// Expected: what Hugging Face's tokenizers makes of them.
TEST(HfTokenizer, WordsAndStartsAreThoseOfTokenizers) {
  struct Case {
    const char *vocab, *merges, *pre_tokenizer;
    std::string text;
    Ids expected;
  };
  const Case cases[] = {
      // A character without a token does not separate its neighbours.
      {R"({"a":0,"b":1,"ab":2})", R"(["a b"])", "null", "a\U0001f600b", {2}},
      // Marks and joiners belong to words, a superscript does not.
      {R"({"e":0,"\u0301":1,"e\u0301":2,"\u00b2":3,"e\u00b2":4,"\u200d":5,"e\u200d":6})",
       R"([["e","\u0301"],["e","\u00b2"],["e","\u200d"]])",
       R"({"type":"Whitespace"})",
       "e\u0301 e\u00b2 e\u200d",
       {2, 0, 3, 6}},
      // The first word of a text is the one at its first byte.
      {R"({"\u2581":0,"x":1,"\t":2})",
       "[]",
       R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\s+"},)"
       R"("behavior":"Isolated"},{"type":"Metaspace","prepend_scheme":"first","split":false}]})",
       "x\tx",
       {0, 1, 2, 1}},
      {R"({"\u2581":0,"x":1,"\t":2})",
       "[]",
       R"({"type":"Sequence","pretokenizers":[{"type":"Whitespace"},)"
       R"({"type":"Metaspace","prepend_scheme":"first","split":false}]})",
       "\tx",
       {1}}};
  for (const Case& c : cases) {
    const std::string json = std::string(R"({"pre_tokenizer":)") + c.pre_tokenizer +
                             R"(,"decoder":{"type":"Replace","pattern":{"String":"\u2581"},)" +
                             R"("content":" "},"model":{"type":"BPE","vocab":)" + c.vocab +
                             R"(,"merges":)" + c.merges + "}}";
    EXPECT_EQ(encode(open_json(parse_json(json, "t")), c.text), c.expected) << c.text;
  }
}

TEST(AddedTokens, StripAndSingleWord) {
  Json json = small_json();
  json["added_tokens"][0]["lstrip"] = true;
  json["added_tokens"][1]["rstrip"] = true;
  json["added_tokens"].push_back({{"id", 10},
                                  {"content", "dd"},
                                  {"special", false},
                                  {"normalized", false},
                                  {"single_word", true}});
  const Tokenizer tokenizer = open_json(json);
  EXPECT_EQ(encode(tokenizer, "a \xe2\x80\x83<s> a"), (Ids{0, 8, 3, 0}));
  EXPECT_EQ(encode(tokenizer, "a </s> \n a"), (Ids{0, 3, 9, 0}));
  EXPECT_EQ(encode(tokenizer, "dd a"), (Ids{10, 3, 0}));
  EXPECT_EQ(encode(tokenizer, "add"), (Ids{0, 7, 7}));
  EXPECT_EQ(encode(tokenizer, "dda"), (Ids{7, 7, 0}));
  EXPECT_EQ(encode(tokenizer, "dd<s>dd"), (Ids{10, 8, 10}));
  EXPECT_EQ(tokenizer.type(10), TokenType::user_defined);
  EXPECT_EQ(tokenizer.decode(Ids{10, 8}, false), "dd");
}

// Expected: what Hugging Face's tokenizers makes of them.
TEST(AddedTokens, TokensWithinAbsorbedSpacesAreThoseOfTokenizers) {
  Json json = metaspace_json("always", false);
  json["model"]["vocab"] = {{"<unk>", 0}, {"a", 1}, {"b", 2}, {"▁", 3}};
  json["model"]["merges"] = Json::array();
  json["added_tokens"] = parse_json(R"([
      {"id": 0, "content": "<unk>", "special": true},
      {"id": 4, "content": "<e>", "special": true, "rstrip": true},
      {"id": 5, "content": "\n", "special": false, "normalized": false}])",
                                    "added");
  const Tokenizer tokenizer = open_json(json);
  EXPECT_EQ(encode(tokenizer, "a<e>\nb"), (Ids{3, 1, 4, 5, 3, 2}));
  EXPECT_EQ(encode(tokenizer, "a<e> \n\nb"), (Ids{3, 1, 4, 5, 5, 3, 2}));
  json["added_tokens"][2]["rstrip"] = true;
  EXPECT_EQ(encode(open_json(json), "a<e>\n\n b"), (Ids{3, 1, 4, 5, 5, 3, 2}));
  json["added_tokens"][2]["lstrip"] = true;
  json["added_tokens"][2]["rstrip"] = false;
  EXPECT_EQ(encode(open_json(json), "a<e>\nb"), (Ids{3, 1, 4, 3, 2}));
}

// Expected: what Hugging Face's tokenizers makes of them.
TEST(AddedTokens, APieceOfTheModelRemainsOneWithinAWord) {
  Json json = metaspace_json("always", false);
  json["model"]["vocab"] = {{"<unk>", 0}, {"a", 1}, {"b", 2}, {"▁", 3}, {"ab", 4}};
  json["model"]["merges"] = Json::array({"a b"});
  json["added_tokens"] = parse_json(R"([
      {"id": 0, "content": "<unk>", "special": true},
      {"id": 1, "content": "a", "special": false, "normalized": false, "single_word": true}])",
                                    "added");
  const Tokenizer tokenizer = open_json(json);
  EXPECT_EQ(encode(tokenizer, "ab"), (Ids{3, 4}));
  EXPECT_EQ(encode(tokenizer, "ba"), (Ids{3, 2, 1}));
  EXPECT_EQ(encode(tokenizer, "a b"), (Ids{1, 3, 2}));
}

TEST(AddedTokens, TheLongestOfTheLeftmostWins) {
  Json json = small_json();
  for (const auto& [id, content] : {std::pair{10, "<a"}, {11, "<a>"}, {12, "a>b"}}) {
    json["added_tokens"].push_back({{"id", id}, {"content", content}, {"special", true}});
  }
  const Tokenizer tokenizer = open_json(json);
  EXPECT_EQ(encode(tokenizer, "<a>b"), (Ids{11, 1}));
  EXPECT_EQ(encode(tokenizer, "<ab"), (Ids{10, 1}));
  EXPECT_EQ(encode(tokenizer, "ca>b"), (Ids{2, 12}));
}

TEST(AddedTokens, NormalizedOnesAreMatchedBehindTheNormalizer) {
  Json json = small_json();
  json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "c"}}}, {"content", "a"}};
  json["added_tokens"][0] = {
      {"id", 8}, {"content", "dc"}, {"special", false}, {"normalized", true}};
  const Tokenizer tokenizer = open_json(json);
  EXPECT_EQ(encode(tokenizer, "bdcb"), (Ids{1, 8, 1}));
  EXPECT_EQ(encode(tokenizer, "bdab"), (Ids{1, 8, 1}));
  EXPECT_EQ(tokenizer.decode(Ids{8}, false), "dc");
  json["added_tokens"][0]["normalized"] = false;
  EXPECT_EQ(encode(open_json(json), "bdab"), (Ids{1, 7, 4}));
}

Json bos_template() {
  return parse_json(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [8], "tokens": ["<s>"]}}})",
                    "template");
}

// add_bos_token decides if it is present, otherwise the post_processor, otherwise the class.
TEST(TokenizerConfig, BosRules) {
  struct Case {
    Json add_bos, post_processor, tokenizer_class;
    bool want;
  };
  const Json none;
  const Json byte_level = {{"type", "ByteLevel"}};
  const std::vector<Case> cases = {
      {true, none, "GPT2Tokenizer", true},
      {false, bos_template(), "LlamaTokenizer", false},
      {none, bos_template(), "GPT2Tokenizer", true},
      {none, byte_level, "LlamaTokenizerFast", false},
      {none, none, "LlamaTokenizerFast", true},
      {none, none, "GPT2Tokenizer", false},
      {none, none, none, false},
      {none, bos_template(), none, true},
  };
  for (const Case& one : cases) {
    Json json = small_json();
    json["post_processor"] = one.post_processor;
    Json config = {{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}};
    if (!one.add_bos.is_null()) config["add_bos_token"] = one.add_bos;
    if (!one.tokenizer_class.is_null()) config["tokenizer_class"] = one.tokenizer_class;
    const Tokenizer tokenizer = open_json(json, config);
    EXPECT_EQ(tokenizer.add_bos(), one.want) << config.dump() << one.post_processor.dump();
    EXPECT_EQ(tokenizer.bos(), 8);
    EXPECT_EQ(tokenizer.eos(), 9);
  }
  // The tokenizer has no bos token to add.
  EXPECT_FALSE(
      open_json(small_json(), {{"add_bos_token", true}, {"bos_token", nullptr}}).add_bos());
}

TEST(TokenizerConfig, NamesTokens) {
  const Json config = parse_json(R"({"added_tokens_decoder": {
      "9": {"content": "</s>", "special": true}, "12": {"content": "<x>", "special": false}},
      "eos_token": "</s>", "bos_token": "<new>", "additional_special_tokens": ["d", "<absent>"]})",
                                 "config");
  const Tokenizer tokenizer = open_json(small_json(), config);
  EXPECT_EQ(tokenizer.size(), 14u);
  EXPECT_EQ(tokenizer.type(10), TokenType::unused);
  EXPECT_EQ(tokenizer.type(12), TokenType::user_defined);
  EXPECT_EQ(tokenizer.bos(), 13);  // as in transformers: after the last one
  EXPECT_EQ(tokenizer.type(7), TokenType::control);
  EXPECT_EQ(encode(tokenizer, "a<x>"), (Ids{0, 12}));
  EXPECT_FALSE(tokenizer.special_id("<absent>").has_value());
}

TEST(TokenizerConfig, ChatTemplates) {
  const auto template_of = [](const FolderOf& folder) {
    return import_tokenizer(folder.path()).chat_template;
  };
  const FolderOf folder;
  folder.write("tokenizer.json", small_json().dump());
  EXPECT_EQ(template_of(folder), "");
  folder.write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(template_of(folder), "one");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "two"},
                                     {"name": "default", "template": "three"}]})");
  EXPECT_EQ(template_of(folder), "three");
  folder.write("chat_template.json", R"({"chat_template": "four"})");
  EXPECT_EQ(template_of(folder), "four");
  folder.write("chat_template.jinja", "five\n");
  EXPECT_EQ(template_of(folder), "five\n");
}

TEST(HfTokenizer, WhatIsNotSupportedIsRefusedByName) {
  const auto with = [](const char* pointer, const char* value) {
    Json json = small_json();
    Json* at = &json;
    for (const auto name : split(std::string_view(pointer).substr(1), "/")) at = &(*at)[name];
    *at = parse_json(value, "value");
    return json;
  };
  const std::vector<std::array<const char*, 3>> cases = {
      {"/pre_tokenizer", R"({"type": "BertPreTokenizer"})", "pre_tokenizer type BertPreTokenizer"},
      {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"},
        {"type": "Digits"}]})",
       "Digits after ByteLevel"},
      {"/normalizer", R"({"type": "NFKC"})", "normalizer type NFKC"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": " +"}, "content": ""})",
       "Replace with a Regex"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": "b"})",
       "normalizer Replace of an empty text"},
      {"/decoder", R"({"type": "WordPiece"})", "decoder type WordPiece"},
      {"/post_processor", R"({"type": "BertProcessing"})", "post_processor type BertProcessing"},
      {"/model/type", R"("WordPiece")", "model type WordPiece"},
      {"/model/type", R"("Unigram")", "tokenizer.model"},
      {"/model/end_of_word_suffix", R"("</w>")", "end_of_word_suffix"},
      {"/model/dropout", "0.1", "dropout"},
      {"/model/merges", R"(["a z"])", "merge 0 uses \"z\""},
      {"/model/merges", R"(["ab"])", "merge 0"},
      {"/model/merges", "[7]", "merge 0"},
      {"/model/vocab", R"({"a": -1})", "the id of \"a\""},
      {"/model/vocab", R"({"a": 4000000000})", "the id of \"a\""},
      {"/model/vocab", R"({"a": 1, "b": 1})", "which is already"},
      {"/model/unk_token", R"("<none>")", "unk_token"},
      {"/added_tokens", R"([{"id": 0, "content": "q"}])", "which is already \"a\""},
      {"/added_tokens", R"([{"id": 1e9, "content": "q"}])", "id"},
      {"/added_tokens", R"([{"id": 20, "content": ""}])", "0 bytes"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})",
       ""},
  };
  for (const auto& [pointer, value, what] : cases) {
    SCOPED_TRACE(value);
    if (*what == '\0')
      EXPECT_THROW(open_json(with(pointer, value)), Error);
    else
      expect_json_refused(with(pointer, value), what);
  }
}

TEST(TokenizerFiles, AreKnownByContent) {
  EXPECT_EQ(tokenizer_format(small_json().dump()), TokenizerFormat::tokenizer_json);
  EXPECT_EQ(tokenizer_format(R"({"a": 0, "b": 1})"), TokenizerFormat::vocabulary);
  EXPECT_EQ(tokenizer_format(R"({"a": 0, "b": "x"})"), TokenizerFormat::none);
  EXPECT_EQ(tokenizer_format("#version: 0.2\na b\n"), TokenizerFormat::merges);
  EXPECT_EQ(tokenizer_format("a b\nab c\n"), TokenizerFormat::merges);
  EXPECT_EQ(tokenizer_format("IQ== 0\nIg== 1\n"), TokenizerFormat::ranks);
  EXPECT_EQ(tokenizer_format(start_sp_model(2).out), TokenizerFormat::sentencepiece);
  for (const char* other : {"", "{", "{}", "[1]", "hello\nworld\n", "\x0a", "{\"a\"", "\xff\xfe"}) {
    EXPECT_EQ(tokenizer_format(other), TokenizerFormat::none) << other;
  }
}

TEST(TokenizerFiles, JsonWinsOverModelOverVocabulary) {
  const FolderOf folder;
  expect_refused(folder, "no tokenizer found");
  folder.write("config.json", R"({"model_type": "llama", "vocab_size": 8})");
  folder.write("generation_config.json", R"({"bos_token_id": 1, "eos_token_id": [2], "a": 1})");
  folder.write("words.json", R"({"a": 0, "b": 1, "ab": 2})");
  expect_refused(folder, "a vocabulary without merges");
  folder.write("pairs.txt", "#version: 0.2\na b\n");
  EXPECT_EQ(import_tokenizer(folder.path()).spec.source, "words.json");
  EXPECT_EQ(import_tokenizer(folder.path() / "pairs.txt").spec.source, "words.json");
  folder.write("some.model", start_sp_model(2).out);
  EXPECT_EQ(import_tokenizer(folder.path()).spec.source, "some.model");
  folder.write("other.model", start_sp_model(1).out);
  expect_refused(folder, "several tokenizers");
  folder.write("tokenizer.model", start_sp_model(1).out);
  EXPECT_EQ(import_tokenizer(folder.path()).spec.source, "tokenizer.model");
  folder.write("renamed", small_json().dump());
  EXPECT_EQ(import_tokenizer(folder.path()).spec.source, "renamed");
  EXPECT_EQ(import_tokenizer(folder.path() / "some.model").spec.source, "some.model");
  EXPECT_THROW((void)import_tokenizer(folder.path() / "config.json"), Error);
  EXPECT_THROW((void)import_tokenizer(folder.path() / "absent"), Error);
}

// A broken tokenizer.json is an error, because the other files might be of another tokenizer.
TEST(TokenizerFiles, ABrokenTokenizerJsonIsNotPassedOver) {
  const FolderOf folder;
  folder.write("tokenizer.model", start_sp_model(1).out);
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  folder.write("merges.txt", "#version: 0.2\na b\n");
  const std::string good = small_json().dump();
  for (const std::string& bad : {good.substr(0, good.size() / 2), std::string(), std::string("{}"),
                                 std::string("<html>"), good.substr(1)}) {
    folder.write("tokenizer.json", bad);
    expect_refused(folder, "tokenizer.json: ");
  }
  folder.write("tokenizer.json", good);
  EXPECT_EQ(import_tokenizer(folder.path()).spec.source, "tokenizer.json");
}

TEST(TokenizerFiles, ATemplateThatIsNoUtf8IsRefusedByItsName) {
  const FolderOf folder;
  folder.write("tokenizer.json", small_json().dump());
  folder.write("chat_template.jinja", "{{ messages }}\xff");
  expect_refused(folder, "chat_template.jinja: no valid UTF-8 at byte 14");
}

TEST(TokenizerFiles, NormalizersThatLengthenWithoutBoundAreRefused) {
  const FolderOf folder;
  Json json = small_json();
  Json step = {{"type", "Replace"}, {"pattern", {{"String", "e"}}}, {"content", "ee"}};
  Json steps = Json::array();
  for (int i = 0; i < 30; ++i) steps.push_back(step);
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  folder.write("tokenizer.json", json.dump());
  expect_refused(folder, "of 30, replace \"e\" by \"ee\", makes the text longer");
}

TEST(TokenizerFiles, PatternsThatRepeatTooMuchAreRefused) {
  const FolderOf folder;
  Json json = small_json();
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       Json::array({{{"type", "Split"},
                     {"pattern", {{"Regex", "(a{1000}){1000}"}}},
                     {"behavior", "Isolated"},
                     {"invert", false}},
                    {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}})}};
  folder.write("tokenizer.json", json.dump());
  expect_refused(folder, "tokenizer.json: pattern \"(a{1000}){1000}\" repeats too much");
}

TEST(VocabMerges, ClassesAndLines) {
  const FolderOf folder;
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "1": 3})");
  folder.write("merges.txt", "#version: 0.2\r\na b\r\n\r\n");
  EXPECT_EQ(encode(open_tokenizer(folder.path()), "ab11<|endoftext|>"), (Ids{2, 3, 3, 4}));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
  expect_refused(folder, "tokenizer_class BertTokenizer");
  EXPECT_EQ(import_tokenizer(folder.path(), {"qwen2"}).spec.normalizers.size(), 1u);
  EXPECT_THROW((void)import_tokenizer(folder.path(), {"nonsense"}), Error);
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "Qwen2TokenizerFast"})");
  EXPECT_EQ(import_tokenizer(folder.path()).spec.normalizers.size(), 1u);
  folder.write("merges.txt", "#version: 0.2\na c\n");
  expect_refused(folder, "line 2 uses \"c\"");
  folder.write("merges.txt", "#version: 0.2\na b a\n");
  expect_refused(folder, "line 2");
}

TEST(RankFiles, OtherVocabulariesNeedAPreTokenizer) {
  const FolderOf folder;
  folder.write("a.tiktoken", "YQ== 0\nYg== 1\nYWI= 2\nIA== 3\n");
  expect_refused(folder, "4 ranks");
  const Tokenizer tokenizer(import_tokenizer(folder.path(), {"gpt-2"}).spec);
  EXPECT_EQ(encode(tokenizer, "ab ab"), (Ids{2, 3, 2}));
  folder.write("a.tiktoken", "YQ== 0\nYg== 0\nYg== 0\n");
  expect_refused(folder, "which is already");
}

TEST(SentencepieceModel, RefusesByName) {
  const auto expect = [](const ProtobufWriter& model, std::string_view what) {
    test::expect_error([&] { (void)read_sentencepiece_model(as_bytes(model.out), "x.model"); },
                       {what});
  };
  expect(start_sp_model(3), "WORD");
  expect(start_sp_model(4), "CHAR");
  expect(ProtobufWriter(), "no pieces");
  auto model = start_sp_model(2);
  add_sp_piece(model, "x", -1, SpType::unused);
  expect(model, "UNUSED");
  model = start_sp_model(2);
  model.text(3, ProtobufWriter().text(2, "map").out);
  expect(model, "precompiled_charsmap");
  model = start_sp_model(2);
  add_sp_piece(model, "x", std::numeric_limits<float>::quiet_NaN(), SpType::normal);
  expect(model, "score");
  model = start_sp_model(2);
  add_sp_piece(model, "\xff", -1, SpType::normal);
  expect(model, "UTF-8");
  model = start_sp_model(2);
  model.text(2, ProtobufWriter().varint(3, 2).varint(24, 1).out);
  expect(model, "treat_whitespace_as_suffix");
}

TEST(SentencepieceModel, EveryTruncatedPrefixIsAnErrorOrAModel) {
  auto model = start_sp_model(2);
  add_sp_piece(model, "ab", -1, SpType::normal);
  add_sp_piece(model, "<0x41>", 0, SpType::byte);
  std::size_t refused = 0;
  for (std::size_t keep = 0; keep < model.out.size(); ++keep) {
    try {
      const auto spec = read_sentencepiece_model(
          as_bytes(std::string_view(model.out).substr(0, keep)), "x.model");
      (void)encode(Tokenizer(spec), "ab");
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("x.model"), std::string::npos);
      ++refused;
    }
  }
  EXPECT_GT(refused, model.out.size() / 2);
}

}  // namespace
}  // namespace leq::test

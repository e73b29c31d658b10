#include "convert/hf_text_rules.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/oniguruma.h"
#include "convert/tokenizer_parts.h"
#include "tokenizer/pattern.h"

namespace leq {
namespace {

using Behavior = PreTokenizer::Behavior;

std::string type_of(const Json& json, std::string_view source) {
  return json_get<std::string>(json, "type", source);
}

[[noreturn]] void unsupported(std::string_view source, std::string_view member,
                              std::string_view what) {
  fail(source, ": ", member, " ", printable(what), " is not supported");
}

// Calls `visit` for each step of a Sequence, which may be nested.
template <class Visit>
void each_step(const Json& json, const char* list, std::string_view source, Visit&& visit) {
  if (json.is_null()) return;
  if (type_of(json, source) != "Sequence") return visit(json);
  const auto found = json.find(list);
  require(found != json.end() && found->is_array(), source, ": a Sequence without \"", list, "\"");
  for (const Json& step : *found) each_step(step, list, source, visit);
}

const Json& member(const Json& json, const char* key, std::string_view source) {
  const auto found = json.find(key);
  require(found != json.end(), source, ": key \"", key, "\" is missing");
  return *found;
}

// Converts {"String": s} or {"Regex": s} to a regular expression.
std::string read_pattern(const Json& pattern, std::string_view source) {
  if (pattern.is_string()) return quoted_pattern(pattern.get<std::string>());
  if (pattern.contains("String")) {
    return quoted_pattern(json_get<std::string>(pattern, "String", source));
  }
  return translated_oniguruma(json_get<std::string>(pattern, "Regex", source), source);
}

// The literal of {"String": s}; a regular expression is refused.
std::string read_literal(const Json& pattern, std::string_view source, std::string_view where) {
  if (pattern.is_string()) return pattern.get<std::string>();
  if (!pattern.contains("String")) unsupported(source, where, "type Replace with a Regex pattern");
  return json_get<std::string>(pattern, "String", source);
}

Behavior read_behavior(const Json& json, std::string_view source) {
  constexpr std::array<std::pair<std::string_view, Behavior>, 5> kNames = {{
      {"Isolated", Behavior::isolated},
      {"Removed", Behavior::removed},
      {"Contiguous", Behavior::contiguous},
      {"MergedWithPrevious", Behavior::merged_with_previous},
      {"MergedWithNext", Behavior::merged_with_next},
  }};
  const auto name = json_get<std::string>(json, "behavior", source);
  for (const auto& [known, behavior] : kNames) {
    if (known == name) return behavior;
  }
  unsupported(source, "pre_tokenizer behavior", name);
}

PreTokenizer split_step(std::string_view pattern, Behavior behavior) {
  PreTokenizer step;
  step.pattern = pattern;
  step.behavior = behavior;
  return step;
}

// The prepend scheme of a Metaspace pre-tokenizer or decoder.
PrependScheme metaspace_prepend(const Json& json, std::string_view source) {
  const auto mark = json_get_or<std::string>(json, "replacement", std::string(kSpaceMark), source);
  if (mark != kSpaceMark) unsupported(source, "Metaspace replacement", mark);
  const bool prefix = json_get_or<bool>(json, "add_prefix_space", true, source);
  const auto scheme = json_get_or<std::string>(json, "prepend_scheme", "always", source);
  if (scheme == "never" || !prefix) return PrependScheme::never;
  if (scheme == "first") return PrependScheme::first;
  if (scheme == "always") return PrependScheme::always;
  unsupported(source, "Metaspace prepend_scheme", scheme);
}

void add_byte_level(const Json& json, std::string_view source, TokenizerSpec& spec) {
  spec.kind = TokenizerKind::byte_bpe;
  if (json_get_or<bool>(json, "add_prefix_space", true, source)) {
    PreTokenizer step;
    step.kind = PreTokenizer::Kind::prefix_space;
    spec.pre_tokenizers.push_back(step);
  }
  if (json_get_or<bool>(json, "use_regex", true, source)) {
    spec.pre_tokenizers.push_back(split_step(kGpt2Pattern, Behavior::isolated));
  }
}

void add_split(const Json& json, std::string_view source, TokenizerSpec& spec) {
  PreTokenizer step = split_step(read_pattern(member(json, "pattern", source), source),
                                 read_behavior(json, source));
  step.invert = json_get_or<bool>(json, "invert", false, source);
  spec.pre_tokenizers.push_back(step);
}

void add_metaspace(const Json& json, std::string_view source, TokenizerSpec& spec) {
  PreTokenizer step;
  step.kind = PreTokenizer::Kind::metaspace;
  step.prepend = metaspace_prepend(json, source);
  step.cut_words = json_get_or<bool>(json, "split", true, source);
  spec.pre_tokenizers.push_back(step);
}

void add_digits(const Json& json, std::string_view source, TokenizerSpec& spec) {
  const bool individual = json_get_or<bool>(json, "individual_digits", false, source);
  spec.pre_tokenizers.push_back(
      split_step("\\p{N}", individual ? Behavior::isolated : Behavior::contiguous));
}

void add_punctuation(const Json& json, std::string_view source, TokenizerSpec& spec) {
  const auto behavior =
      json.contains("behavior") ? read_behavior(json, source) : Behavior::isolated;
  spec.pre_tokenizers.push_back(split_step("[!-\\/:-@\\[-`{-~\\p{P}]", behavior));
}

void add_whitespace(const Json&, std::string_view, TokenizerSpec& spec) {
  PreTokenizer step = split_step("\\w+|[^\\w\\s]+", Behavior::removed);
  step.invert = true;
  spec.pre_tokenizers.push_back(step);
}

void add_whitespace_split(const Json&, std::string_view, TokenizerSpec& spec) {
  spec.pre_tokenizers.push_back(split_step("\\s", Behavior::removed));
}

struct PreTokenizerReader {
  std::string_view type;
  void (*add)(const Json& json, std::string_view source, TokenizerSpec& spec);
};
constexpr std::array<PreTokenizerReader, 7> kPreTokenizerReaders = {{
    {"ByteLevel", add_byte_level},
    {"Split", add_split},
    {"Metaspace", add_metaspace},
    {"Digits", add_digits},
    {"Punctuation", add_punctuation},
    {"Whitespace", add_whitespace},
    {"WhitespaceSplit", add_whitespace_split},
}};

}  // namespace

void read_normalizer(const Json& json, std::string_view source, TokenizerSpec& spec) {
  each_step(json, "normalizers", source, [&](const Json& step) {
    const std::string type = type_of(step, source);
    if (type == "NFC") {
      spec.normalizers.push_back({Normalizer::Kind::nfc, "", ""});
    } else if (type == "Prepend") {
      spec.normalizers.push_back(
          {Normalizer::Kind::prepend, "", json_get<std::string>(step, "prepend", source)});
    } else if (type == "Replace") {
      spec.normalizers.push_back(
          {Normalizer::Kind::replace,
           read_literal(member(step, "pattern", source), source, "normalizer"),
           json_get<std::string>(step, "content", source)});
    } else {
      unsupported(source, "normalizer type", type);
    }
  });
}

void read_pre_tokenizer(const Json& json, std::string_view source, TokenizerSpec& spec) {
  spec.kind = TokenizerKind::sentencepiece_bpe;
  each_step(json, "pretokenizers", source, [&](const Json& step) {
    const std::string type = type_of(step, source);
    require(spec.kind != TokenizerKind::byte_bpe, source, ": pre_tokenizer type ", printable(type),
            " after ByteLevel is not supported");
    for (const auto& reader : kPreTokenizerReaders) {
      if (reader.type == type) return reader.add(step, source, spec);
    }
    unsupported(source, "pre_tokenizer type", type);
  });
}

void read_decoder(const Json& json, std::string_view source, TokenizerSpec& spec) {
  const bool by_bytes = spec.kind == TokenizerKind::byte_bpe;
  bool replaces_mark = false;
  each_step(json, "decoders", source, [&](const Json& step) {
    const std::string type = type_of(step, source);
    if (type == "ByteLevel" && by_bytes) return;
    if (by_bytes) unsupported(source, "decoder type", type + " of a byte-level tokenizer");
    if (type == "Fuse" || type == "ByteFallback") return;
    if (type == "Replace") {
      const bool mark =
          read_literal(member(step, "pattern", source), source, "decoder") == kSpaceMark &&
          json_get<std::string>(step, "content", source) == " ";
      if (!mark) unsupported(source, "decoder", "Replace of anything but U+2581 by a space");
      replaces_mark = true;
    } else if (type == "Strip") {
      const auto start = json_get_or<int>(step, "start", 0, source);
      const bool usual = json_get<std::string>(step, "content", source) == " " && start >= 0 &&
                         start <= 1 && json_get_or<int>(step, "stop", 0, source) == 0;
      if (!usual) unsupported(source, "decoder", "Strip of anything but one leading space");
      spec.strip_leading_space = start == 1;
    } else if (type == "Metaspace") {
      spec.strip_leading_space = metaspace_prepend(step, source) != PrependScheme::never;
      replaces_mark = true;
    } else {
      unsupported(source, "decoder type", type);
    }
  });
  if (!by_bytes && !replaces_mark) {
    unsupported(source, "decoder", "that does not turn U+2581 into spaces");
  }
}

namespace {

Token template_token(const Json& part, const Json& json, std::string_view source) {
  const auto name = json_get<std::string>(member(part, "SpecialToken", source), "id", source);
  const Json& tokens = member(json, "special_tokens", source);
  const auto found = tokens.is_object() ? tokens.find(name) : tokens.end();
  require(tokens.is_object() && found != tokens.end(), source, ": post_processor token \"",
          printable(name), "\" is not among its special_tokens");
  const Json& ids = member(*found, "ids", source);
  require(ids.is_array() && ids.size() == 1 && ids[0].is_number_unsigned() &&
              ids[0].get<std::uint64_t>() < kMaxPieces,
          source, ": post_processor token \"", printable(name), "\" must have one id below ",
          kMaxPieces);
  return ids[0].get<Token>();
}

void read_template(const Json& json, std::string_view source, AroundText& around) {
  const Json& single = member(json, "single", source);
  require(single.is_array(), source, ": post_processor: expected a list \"single\", found ",
          single.type_name());
  bool behind_text = false;
  for (const Json& part : single) {
    if (part.contains("Sequence")) {
      behind_text = true;
      continue;
    }
    Token& place = behind_text ? around.back : around.front;
    if (place != kNoToken) {
      unsupported(source, "post_processor", "with several special tokens at one end");
    }
    place = template_token(part, json, source);
  }
}

}  // namespace

AroundText read_post_processor(const Json& json, std::string_view source) {
  AroundText around;
  around.present = !json.is_null();
  each_step(json, "processors", source, [&](const Json& step) {
    const std::string type = type_of(step, source);
    if (type == "TemplateProcessing")
      read_template(step, source, around);
    else if (type != "ByteLevel")
      unsupported(source, "post_processor type", type);
  });
  return around;
}

}  // namespace leq

#include "convert/hf_tokenizer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/tokenizer_parts.h"
#include "tokenizer/pattern.h"
#include "tokenizer/pretokenize.h"

namespace leq {
namespace {

// Of the other numbers (No), Oniguruma's \w has those of Latin-1 alone.
constexpr std::string_view kWordClass =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
constexpr std::string_view kHexClass = "0-9a-fA-F";

class Translation {
 public:
  Translation(std::string_view pattern, std::string_view source)
      : pattern_(pattern), source_(source) {}

  std::string run() {
    while (at_ < pattern_.size()) step();
    return std::move(out_);
  }

 private:
  std::string_view rest() const { return pattern_.substr(at_); }
  void put(std::string_view text, std::size_t taken) {
    out_ += text;
    at_ += taken;
  }
  [[noreturn]] void refuse(std::string_view what) const {
    fail(source_, ": pattern \"", printable(pattern_), "\" has ", what, " at offset ", at_,
         ", which is not supported");
  }

  void step() {
    const char c = pattern_[at_];
    if (c == '\\' && rest().size() > 1) return escape(pattern_[at_ + 1]);
    if (in_class_) {
      in_class_ = c != ']' || at_ == class_start_;
      return put(rest().substr(0, 1), 1);
    }
    if (c == '[') {
      in_class_ = true;
      class_start_ = at_ + (rest().starts_with("[^") ? 2 : 1);
      return put(rest().substr(0, class_start_ - at_), class_start_ - at_);
    }
    if (c == '^') return put("(?m:^)", 1);
    if (c == '$') return put("(?m:$)", 1);
    if (c == '{') return braces();
    if (rest().starts_with("(?")) group();
    put(rest().substr(0, 1), 1);
  }

  void escape(char letter) {
    const std::string inner = std::string(letter == 'h' ? kHexClass : kWordClass);
    switch (letter) {
      case 'h':
      case 'w':
        return put(in_class_ ? inner : "[" + inner + "]", 2);
      case 'H':
      case 'W':
        if (in_class_) refuse(letter == 'H' ? "\\H in a class" : "\\W in a class");
        return put("[^" + std::string(letter == 'H' ? kHexClass : kWordClass) + "]", 2);
      case 'b':
      case 'B': {
        if (in_class_) return put(rest().substr(0, 2), 2);
        const std::string word = "[" + std::string(kWordClass) + "]";
        const std::string same =
            "(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + ")";
        const std::string other =
            "(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + ")";
        return put("(?:" + (letter == 'b' ? other : same) + ")", 2);
      }
      case 'v':
        return put("\\x{b}", 2);
      case 'u': {
        const std::string_view digits = rest().substr(2, 4);
        const auto is_hex = [](char c) {
          return std::isxdigit(static_cast<unsigned char>(c)) != 0;
        };
        if (digits.size() < 4 || !std::ranges::all_of(digits, is_hex))
          refuse("a \\u without 4 digits");
        return put("\\x{" + std::string(digits) + "}", 6);
      }
      case 'p':
      case 'P':
      case 'x': {  // the braces are part of the escape
        const std::size_t end = rest().find('}');
        const bool named = rest().substr(2).starts_with('{') && end != std::string_view::npos;
        const std::size_t taken = named ? end + 1 : 2;
        return put(rest().substr(0, taken), taken);
      }
      default:
        return put(rest().substr(0, 2), 2);
    }
  }

  // Only {n}, {n,}, {n,m} and {,m} are quantifiers. In Ruby, a + after one is not possessive.
  void braces() {
    const std::size_t end = rest().find('}');
    const std::string_view inner = end == std::string_view::npos ? "" : rest().substr(1, end - 1);
    const std::size_t comma = inner.find(',');
    const bool digits = inner.find_first_not_of("0123456789,") == std::string_view::npos;
    const bool counts = digits && inner.size() > (comma == std::string_view::npos ? 0 : 1);
    if (!counts) return put("{", 1);
    if (rest().substr(end + 1).starts_with('+')) refuse("a counted repeat with + behind it");
    put("{" + std::string(comma == 0 ? "0" : "") + std::string(inner) + "}", end + 1);
  }

  // In Ruby's syntax, (?m) makes a dot match line ends.
  void group() const {
    std::size_t at = 2;
    while (at < rest().size() &&
           (std::isalpha(static_cast<unsigned char>(rest()[at])) != 0 || rest()[at] == '-')) {
      if (rest()[at] == 'm') refuse("the option m");
      ++at;
    }
  }

  std::string_view pattern_, source_;
  std::size_t at_ = 0, class_start_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

std::string translated_oniguruma(std::string_view pattern, std::string_view source) {
  return Translation(pattern, source).run();
}

namespace {

constexpr std::array<std::string_view, 5> kMistralTypes = {"mistral", "mistral3", "voxtral",
                                                           "ministral", "pixtral"};
constexpr std::int64_t kRightSinceMajor = 5;

// The first split step with a pattern; end() if there is none, as in sentencepiece tokenizers.
auto split_step(TokenizerSpec& spec) {
  return std::ranges::find_if(spec.pre_tokenizers, [](const PreTokenizer& step) {
    return step.kind == PreTokenizer::Kind::split && !step.pattern.empty();
  });
}

std::int64_t major_version(const Json& config) {
  const std::string version = config.value("transformers_version", "");
  return parse_int(version.substr(0, version.find('.'))).value_or(0);
}

}  // namespace

std::string mistral_pattern_note(const Json& config, const TokenizerSpec& spec) {
  TokenizerSpec looked_at;
  looked_at.pre_tokenizers = spec.pre_tokenizers;
  const auto step = split_step(looked_at);
  if (step == looked_at.pre_tokenizers.end() || step->pattern == kTekkenPattern) return "";
  const std::string type = config.value("model_type", "");
  if (std::ranges::find(kMistralTypes, type) == kMistralTypes.end()) return "";
  if (major_version(config) >= kRightSinceMajor) return "";
  return "the tokenizer splits texts by a pattern that is not Mistral's, as folders that "
         "transformers before 5.0 wrote do; if it should be Mistral's, give " +
         Setting{"fix_mistral_regex"}.marked();
}

void fix_mistral_pattern(TokenizerSpec& spec) {
  const auto step = split_step(spec);
  require(step != spec.pre_tokenizers.end(), Setting{"fix_mistral_regex"},
          ": this tokenizer splits texts by no pattern; leave it out");
  *step = PreTokenizer();
  step->pattern = kTekkenPattern;
}

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

// Cuts at \w+|[^\w\s]+ with the \w of Rust (Unicode's UTS 18): letters and the circled ones, marks,
// digits, connectors, and the two joiners.
void add_whitespace(const Json&, std::string_view, TokenizerSpec& spec) {
  const std::string word =
      "\\p{L}\\p{M}\\p{Nl}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"
      "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}";
  PreTokenizer step = split_step("[" + word + "]+|[^" + word + "\\s]+", Behavior::removed);
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
      std::string pattern = read_literal(member(step, "pattern", source), source, "normalizer");
      if (pattern.empty()) unsupported(source, "normalizer", "Replace of an empty text");
      spec.normalizers.push_back({Normalizer::Kind::replace, std::move(pattern),
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
  bool after_text = false;
  for (const Json& part : single) {
    if (part.contains("Sequence")) {
      after_text = true;
      continue;
    }
    Token& place = after_text ? around.back : around.front;
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

namespace {

using Ids = TextIds<std::string_view>;

const Json& member_or_null(const Json& json, const char* key) {
  static const Json null;
  const auto found = json.find(key);
  return found == json.end() ? null : *found;
}

void check_model(const Json& model, std::string_view source) {
  require(model.is_object(), source, ": key \"model\" must be an object");
  const auto type = json_get_or<std::string>(model, "type", "BPE", source);
  require(type == "BPE", source, ": model type ", printable(type), " is not supported, only BPE is",
          type == "Unigram" ? "; if the folder has a tokenizer.model, give that file" : "");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    require(json_get_or<std::string>(model, key, "", source).empty(), source, ": model ", key,
            " is not supported");
  }
  require(json_get_or<double>(model, "dropout", 0.0, source) == 0.0, source,
          ": model dropout is not supported");
}

// Maps each piece, as it is spelled in the vocabulary and the merges, to its id.
Ids read_vocabulary(const Json& vocabulary, std::string_view source, TokenizerSpec& spec) {
  require(vocabulary.is_object() && !vocabulary.empty(), source,
          ": model vocab must be a non-empty object");
  require(vocabulary.size() <= kMaxPieces, source, ": model vocab has ", vocabulary.size(),
          " pieces, at most ", kMaxPieces, " are accepted");
  Ids ids;
  ids.reserve(vocabulary.size());
  for (const auto& [piece, value] : vocabulary.items()) {
    require(value.is_number_unsigned() && value.get<std::uint64_t>() < kMaxPieces, source,
            ": model vocab: the id of \"", printable(piece), "\" must be a whole number below ",
            kMaxPieces);
    const auto id = value.get<Token>();
    if (spec.kind == TokenizerKind::byte_bpe) {
      place_printable(spec, id, piece);
    } else {
      place_piece(spec, id, piece, TokenType::normal);
    }
    ids.emplace(piece, id);
  }
  return ids;
}

Token id_of(const Ids& ids, std::string_view piece, std::string_view source, std::size_t merge) {
  const auto found = ids.find(piece);
  require(found != ids.end(), source, ": merge ", merge, " uses \"", printable(piece),
          "\", which is not in the vocab");
  return found->second;
}

// A merge is either "left right" or ["left", "right"].
void read_merges(const Json& merges, const Ids& ids, std::string_view source, TokenizerSpec& spec) {
  require(merges.is_array(), source, ": model merges must be a list");
  spec.merges.reserve(merges.size());
  std::string left;
  std::string right;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const Json& merge = merges[i];
    const bool is_pair =
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    require(is_pair || merge.is_string(), source, ": merge ", i,
            " must be a string or a pair of strings");
    if (is_pair) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      const auto& line = merge.text();
      const std::size_t space = line.find(' ');
      require(space != std::string::npos && line.find(' ', space + 1) == std::string::npos, source,
              ": merge ", i, " \"", printable(line), "\" must be two pieces with a space between");
      left = line.substr(0, space);
      right = line.substr(space + 1);
    }
    const Token left_id = id_of(ids, left, source, i);
    const Token right_id = id_of(ids, right, source, i);
    spec.merges.push_back({left_id, right_id, id_of(ids, left + right, source, i)});
  }
}

void mark_byte_pieces(TokenizerSpec& spec) {
  for (std::size_t id = 0; id < spec.pieces.size(); ++id) {
    const std::string_view piece = spec.pieces[id];
    const bool is_byte = piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
    if (is_byte && spec.types[id] == TokenType::normal) spec.types[id] = TokenType::byte;
  }
}

void read_added_tokens(const Json& list, std::string_view source, TokenizerSpec& spec) {
  if (list.is_null()) return;
  require(list.is_array(), source, ": added_tokens must be a list");
  TokenAdder adder(spec);
  for (const Json& entry : list) {
    const Token id = checked_token_id(json_get<std::int64_t>(entry, "id", source), source);
    AddedToken token = read_token_flags(entry, false, std::nullopt, source);
    token.id = id;
    adder.add(token, token.content);
  }
}

}  // namespace

HfTokenizer read_hf_tokenizer(std::string_view text, std::string_view source) {
  const Json json = parse_json(text, source);
  require(json.is_object(), source, ": expected a JSON object, found ", json.type_name());
  HfTokenizer out;
  TokenizerSpec& spec = out.spec;
  spec.source = source;
  const Json& model = member_or_null(json, "model");
  check_model(model, source);
  read_normalizer(member_or_null(json, "normalizer"), source, spec);
  check_normalizers(spec.normalizers, source);
  read_pre_tokenizer(member_or_null(json, "pre_tokenizer"), source, spec);
  const Ids ids = read_vocabulary(member_or_null(model, "vocab"), source, spec);
  read_merges(member_or_null(model, "merges"), ids, source, spec);
  spec.ignore_merges = json_get_or<bool>(model, "ignore_merges", false, source);
  spec.fuse_unknown = json_get_or<bool>(model, "fuse_unk", false, source);
  spec.byte_fallback = json_get_or<bool>(model, "byte_fallback", false, source);
  if (spec.byte_fallback && spec.kind != TokenizerKind::byte_bpe) mark_byte_pieces(spec);
  const auto unknown = json_get_or<std::string>(model, "unk_token", "", source);
  if (!unknown.empty()) {
    const auto found = ids.find(unknown);
    require(found != ids.end(), source, ": model unk_token \"", printable(unknown),
            "\" is not in the vocab");
    spec.unknown = found->second;
    spec.types[static_cast<std::size_t>(spec.unknown)] = TokenType::unknown;
  }
  read_decoder(member_or_null(json, "decoder"), source, spec);
  read_added_tokens(member_or_null(json, "added_tokens"), source, spec);
  out.around = read_post_processor(member_or_null(json, "post_processor"), source);
  return out;
}

}  // namespace leq

#include "convert/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/tokenizer_parts.h"

namespace leq {
namespace {

// Values of tokenizer.ggml.token_type.
enum GgufTokenType : std::int64_t {
  kGgufNormal = 1,
  kGgufUnknown = 2,
  kGgufControl = 3,
  kGgufUserDefined = 4,
  kGgufUnused = 5,
  kGgufByte = 6
};

// A value of tokenizer.ggml.pre for byte BPE, and the pre-tokenizer that it denotes.
struct GgufPreTokenizer {
  std::string_view name;
  std::string_view like;  // argument of set_pretokenizer; empty: use `pattern`
  std::string_view pattern = {};
  bool single_digits = false;  // split digits before applying the pattern
  bool ignore_merges = false;
  bool add_bos = false;  // default if the key is absent
};
constexpr std::array<GgufPreTokenizer, 27> kGgufPreTokenizers = {{
    {"gpt-2", "gpt-2"},
    {"phi-2", "gpt-2"},
    {"mpt", "gpt-2"},
    {"olmo", "gpt-2"},
    {"smollm", "gpt-2", {}, true},
    {"starcoder", "gpt-2", {}, true},
    {"refact", "gpt-2", {}, true},
    {"command-r", "gpt-2", {}, true},
    {"codeshell", "gpt-2", {}, true},
    {"llama-bpe", "llama-3", {}, false, true, true},
    {"llama3", "llama-3", {}, false, true, true},
    {"llama-v3", "llama-3", {}, false, true, true},
    {"falcon3", "llama-3", {}, false, true, true},
    {"pixtral", "llama-3", {}, false, true, true},
    {"midm-2.0", "llama-3", {}, false, true, true},
    {"lfm2", "llama-3", {}, false, true, true},
    {"smaug-bpe", "llama-3"},
    {"dbrx", "llama-3"},  // Phi-4, Granite 4
    {"qwen2", "qwen2"},
    {"qwen35", "qwen35"},
    {"deepseek-r1-qwen", "qwen2"},
    {"megrez", "qwen2"},
    {"gpt-4o", "gpt-4o"},
    {"llama4", "gpt-4o"},
    {"seed-coder", "seed-coder"},
    {"deepseek-coder", "deepseek-coder"},
    {"tekken", "", kTekkenPattern, false, true, true},
}};

// Reads one tokenizer; its errors name the metadata key.
class GgufTokenizerReader {
 public:
  explicit GgufTokenizerReader(const GgufMetadata& metadata)
      : metadata_(metadata),
        tokens_(metadata.texts("tokenizer.ggml.tokens")),
        types_(metadata.integers("tokenizer.ggml.token_type")) {
    spec_.source = metadata.source();
  }

  TokenizerSpec read() {
    const auto model = metadata_.text("tokenizer.ggml.model");
    require(model.has_value(), place(), ": key tokenizer.ggml.model is missing");
    require(*model == "gpt2" || *model == "llama" || *model == "gemma4", place(),
            ": tokenizer.ggml.model ", printable(*model), " is not supported; supported are gpt2 ",
            "(byte BPE), llama and gemma4 (sentencepiece BPE by scores, and by merges)");
    require(!tokens_.empty() && tokens_.size() <= kMaxPieces, place(),
            ": tokenizer.ggml.tokens has ", tokens_.size(), " tokens, expected 1 to ", kMaxPieces);
    require(types_.empty() || types_.size() == tokens_.size(), place(), ": tokenizer.ggml has ",
            tokens_.size(), " tokens and ", types_.size(), " token types");
    if (*model == "gpt2") {
      read_bpe();
    } else {
      read_sentencepiece(*model == "llama");
    }
    return std::move(spec_);
  }

 private:
  const std::string& place() const { return metadata_.source(); }

  std::int64_t type_of(std::size_t id) const {
    return types_.empty() ? std::int64_t{kGgufNormal} : types_[id];
  }

  static bool is_added(std::int64_t type) {
    return type == kGgufControl || type == kGgufUserDefined || type == kGgufUnknown;
  }

  std::optional<Token> id_of(std::string_view key) const {
    const auto id = metadata_.integer("tokenizer.ggml." + std::string(key));
    // Some writers store the largest number for an absent id.
    if (!id || *id == -1 || *id == UINT32_MAX) return std::nullopt;
    require(*id >= 0 && *id < std::ssize(tokens_), place(), ": tokenizer.ggml.", key, " is ", *id,
            ", the tokenizer has ", tokens_.size(), " tokens");
    return static_cast<Token>(*id);
  }

  // If the file names no end token, llama.cpp uses a default, which may be another model's id.
  void read_ends(bool adds_bos) {
    spec_.bos = id_of("bos_token_id").value_or(kNoToken);
    spec_.eos = id_of("eos_token_id").value_or(kNoToken);
    require(spec_.eos != kNoToken, place(),
            ": key tokenizer.ggml.eos_token_id is missing, so that nothing says where a text ends");
    spec_.add_bos = metadata_.flag("tokenizer.ggml.add_bos_token").value_or(adds_bos);
    spec_.add_eos = metadata_.flag("tokenizer.ggml.add_eos_token").value_or(false);
    if (spec_.bos == kNoToken) spec_.add_bos = false;
  }

  void add(std::size_t id, bool normalized) {
    AddedToken token;
    token.id = static_cast<Token>(id);
    token.special = type_of(id) != kGgufUserDefined;
    token.normalized = normalized;
    if (type_of(id) == kGgufUnknown && spec_.unknown == kNoToken) spec_.unknown = token.id;
    adder_.add(token, tokens_[id]);
  }

  void check_token(std::size_t id) const {
    const std::string_view token = tokens_[id];
    require(!token.empty() && token.size() <= kMaxPieceBytes && !first_invalid_utf8(token), place(),
            ": token ", id, " must be 1 to ", kMaxPieceBytes, " bytes of UTF-8");
  }

  // --- byte BPE

  void read_bpe() {
    spec_.kind = TokenizerKind::byte_bpe;
    const auto name = metadata_.text("tokenizer.ggml.pre");
    require(name.has_value(), place(), ": key tokenizer.ggml.pre is missing, so that nothing says ",
            "how texts are cut into words; get a newer file");
    const auto pre = std::ranges::find(kGgufPreTokenizers, *name, &GgufPreTokenizer::name);
    std::vector<std::string> names;
    for (const auto& known : kGgufPreTokenizers) names.emplace_back(known.name);
    require(pre != kGgufPreTokenizers.end(), place(), ": pre-tokenizer ", printable(*name),
            " (tokenizer.ggml.pre) is not supported; supported are ", join(names));
    cut_words(*pre);
    spec_.ignore_merges = pre->ignore_merges;
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (type_of(id) == kGgufUnused) continue;  // never sampled
      check_token(id);
      if (is_added(type_of(id))) {
        add(id, false);
        continue;
      }
      place_printable(spec_, static_cast<Token>(id), tokens_[id]);
    }
    read_merges();
    read_ends(pre->add_bos);
  }

  void cut_words(const GgufPreTokenizer& pre) {
    if (!pre.like.empty()) {
      set_pretokenizer(spec_, pre.like);
    } else {
      PreTokenizer step;
      step.pattern = pre.pattern;
      spec_.pre_tokenizers = {step};
    }
    if (pre.single_digits) {
      PreTokenizer digits;
      digits.pattern = "\\p{N}";
      spec_.pre_tokenizers.insert(spec_.pre_tokenizers.begin(), digits);
    }
    if (metadata_.flag("tokenizer.ggml.add_space_prefix").value_or(false)) {
      PreTokenizer space;
      space.kind = PreTokenizer::Kind::prefix_space;
      spec_.pre_tokenizers.insert(spec_.pre_tokenizers.begin(), space);
    }
  }

  void read_merges() {
    const auto merges = metadata_.texts("tokenizer.ggml.merges");
    require(metadata_.has("tokenizer.ggml.merges"), place(),
            ": key tokenizer.ggml.merges is missing");
    TextIds<std::string_view> ids;
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const std::int64_t type = type_of(id);
      if (type == kGgufNormal || type == kGgufUserDefined) {
        ids.emplace(tokens_[id], static_cast<Token>(id));
      }
    }
    std::string joined;
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const auto id_of_piece = [&](std::string_view piece) {
        const auto found = ids.find(piece);
        require(found != ids.end(), place(), ": merge ", i, " of tokenizer.ggml.merges uses ",
                printable(piece), ", which is no token");
        return found->second;
      };
      // The search starts at 1, because the left part of a merge may begin with a space.
      const std::size_t space = merges[i].find(' ', 1);
      require(space != std::string_view::npos, place(), ": merge ", i,
              " of tokenizer.ggml.merges is ", printable(merges[i]),
              ", expected two tokens with a space between");
      const std::string_view left = merges[i].substr(0, space);
      const std::string_view right = merges[i].substr(space + 1);
      joined.assign(left).append(right);
      const Token left_id = id_of_piece(left);
      const Token right_id = id_of_piece(right);
      spec_.merges.push_back({left_id, right_id, id_of_piece(joined)});
    }
  }

  // --- sentencepiece BPE

  void read_sentencepiece(bool by_score) {
    spec_.kind = TokenizerKind::sentencepiece_bpe;
    if (by_score) spec_.merge_order = MergeOrder::by_score;
    spec_.byte_fallback = true;
    spec_.fuse_unknown = true;
    const auto scores = by_score ? metadata_.floats("tokenizer.ggml.scores") : std::vector<float>();
    require(!by_score || scores.size() == tokens_.size(), place(), ": tokenizer.ggml has ",
            tokens_.size(), " tokens and ", scores.size(), " scores");
    if (by_score) spec_.scores.assign(1, 0.0f);  // resized with the pieces
    spec_.pieces.resize(1);
    spec_.types.resize(1, TokenType::unused);
    const bool prefix = metadata_.flag("tokenizer.ggml.add_space_prefix").value_or(true);
    spec_.strip_leading_space = prefix;
    const std::string mark(kSpaceMark);
    if (prefix) spec_.normalizers.push_back({Normalizer::Kind::prepend, "", mark});
    spec_.normalizers.push_back({Normalizer::Kind::replace, " ", mark});
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (type_of(id) == kGgufUnused) continue;
      check_token(id);
      require(!by_score || std::isfinite(scores[id]), place(), ": the score of token ", id, " is ",
              by_score ? scores[id] : 0);
      if (is_added(type_of(id))) {
        add(id, type_of(id) == kGgufUserDefined);
      } else {
        place_piece(spec_, static_cast<Token>(id), tokens_[id],
                    type_of(id) == kGgufByte ? TokenType::byte : TokenType::normal);
      }
      // A control token whose text an earlier one has is left out.
      if (id < spec_.scores.size()) spec_.scores[id] = scores[id];
    }
    if (!by_score) read_merges();
    read_ends(true);
    if (spec_.unknown == kNoToken) {
      spec_.unknown = id_of("unknown_token_id").value_or(kNoToken);
    }
  }

  const GgufMetadata& metadata_;
  std::vector<std::string_view> tokens_;
  std::vector<std::int64_t> types_;
  TokenizerSpec spec_;
  TokenAdder adder_{spec_};
};

// Control tokens that are recognized as end tokens by their text, regardless of the metadata.
constexpr std::array<std::string_view, 10> kEndTexts = {
    "<turn|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_turn|>",
    "<\xef\xbd\x9c"
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"};

struct GgufSampling {
  std::string_view key;
  const char* setting;
};
constexpr std::array<GgufSampling, 11> kGgufSampling = {{
    {"temp", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"penalty_repeat", "repeat_penalty"},
    {"penalty_last_n", "repeat_last_n"},
    {"xtc_probability", "xtc_probability"},
    {"xtc_threshold", "xtc_threshold"},
    {"mirostat", "mirostat"},
    {"mirostat_tau", "mirostat_ent"},
    {"mirostat_eta", "mirostat_lr"},
}};

}  // namespace

TokenizerSpec read_gguf_tokenizer(const GgufMetadata& metadata) {
  return GgufTokenizerReader(metadata).read();
}

std::string read_gguf_template(const GgufMetadata& metadata) {
  for (const char* key : {"tokenizer.chat_template", "tokenizer.chat_template.default"}) {
    const auto text = metadata.text(key);
    if (!text) continue;
    const auto bad = first_invalid_utf8(*text);
    require(!bad, metadata.source(), ": key ", key, ": no valid UTF-8 at byte ", bad.value_or(0));
    return std::string(*text);
  }
  return "";
}

GenerationDefaults read_gguf_generation(const GgufMetadata& metadata, const TokenizerSpec& spec) {
  GenerationDefaults defaults;
  const auto add = [&](std::int64_t id) {
    auto& ends = defaults.end_tokens;
    if (id < 0 || id >= std::ssize(spec.pieces)) return;
    if (std::ranges::find(ends, id) == ends.end()) ends.push_back(static_cast<Token>(id));
  };
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    if (const auto id = metadata.integer(std::string("tokenizer.ggml.") + key)) add(*id);
  }
  for (const AddedToken& token : spec.added) {
    const std::string& text = spec.pieces[static_cast<std::size_t>(token.id)];
    if (token.special && std::ranges::find(kEndTexts, text) != kEndTexts.end()) add(token.id);
  }
  Json sampling = Json::object();
  for (const GgufSampling& row : kGgufSampling) {
    const std::string key = "general.sampling." + std::string(row.key);
    if (!metadata.has(key)) continue;
    const double number = *metadata.number(key);
    if (number == std::floor(number) && std::fabs(number) < 1e15) {
      sampling[row.setting] = static_cast<std::int64_t>(number);
    } else {
      sampling[row.setting] = number;
    }
  }
  defaults.sampling = sampling_from_json(sampling, &SamplingParameter::name,
                                         metadata.source() + ": general.sampling");
  return defaults;
}

}  // namespace leq

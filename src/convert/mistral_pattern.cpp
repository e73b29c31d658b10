#include "convert/mistral_pattern.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "convert/tokenizer_parts.h"

namespace leq {
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

}  // namespace leq

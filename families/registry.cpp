// The list of families.
#include <array>

#include "families/family.h"

namespace leq {

extern const Family kGemma3;
extern const Family kGemma4;
extern const Family kGemma4Unified;
extern const Family kGpt2;
extern const Family kGptOss;
extern const Family kGranite;
extern const Family kGranite4;
extern const Family kLfm2;
extern const Family kLfm2Moe;
extern const Family kLlama;
extern const Family kMinistral3;
extern const Family kMistral;
extern const Family kMixtral;
extern const Family kMuseGlimmer;
extern const Family kPhi3;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kQwen3Moe;
extern const Family kQwen3Next;
extern const Family kQwen3_5;
extern const Family kQwen3_5Moe;
extern const Family kSmolLm3;

std::span<const Family* const> families() {
  static constexpr std::array kFamilies = {
      &kGemma3,    &kGemma4,      &kGemma4Unified, &kGptOss, &kGranite,    &kGranite4,
      &kGpt2,      &kLfm2,        &kLfm2Moe,       &kLlama,  &kMinistral3, &kMistral,
      &kMixtral,   &kMuseGlimmer, &kPhi3,          &kQwen2,  &kQwen3,      &kQwen3Moe,
      &kQwen3Next, &kQwen3_5,     &kQwen3_5Moe,    &kSmolLm3};
  return kFamilies;
}

const Family* find_family(std::string_view model_type) {
  for (const Family* family : families()) {
    if (family->model_type == model_type) return family;
  }
  return nullptr;
}

}  // namespace leq

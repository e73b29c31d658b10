#include "convert/checkpoint_names.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"

namespace leq {
namespace {

// Name prefixes in checkpoints with several models, as saved by transformers 5, 4 and users.
constexpr std::array<std::string_view, 3> kWrapperPrefixes = {
    "model.language_model.", "language_model.model.", "language_model."};
constexpr std::array<std::string_view, 2> kWrapperHeads = {"language_model.",
                                                           "model.language_model."};

struct OtherModel {
  std::string_view prefix, what;
};
constexpr std::string_view kVision = "a vision tower", kAudio = "an audio tower",
                           kProjector = "its projector",
                           kAhead = "a head of multi-token prediction";
constexpr std::array<std::string_view, 4> kMtpPrefixes = {
    "mtp.", "model.mtp.", "language_model.mtp.", "model.language_model.mtp."};
constexpr std::array<OtherModel, 29> kOtherModels = {{
    {"model.visual.", kVision},
    {"visual.", kVision},
    {"model.vision_tower.", kVision},
    {"vision_tower.", kVision},
    {"model.vision_model.", kVision},
    {"vision_model.", kVision},
    {"vision_encoder.", kVision},
    {"model.vision_encoder.", kVision},
    {"model.audio_tower.", kAudio},
    {"audio_tower.", kAudio},
    {"model.vision_embedder.", kVision},
    {"model.embed_vision.", kProjector},
    {"model.embed_audio.", kProjector},
    {"model.multi_modal_projector.", kProjector},
    {"multi_modal_projector.", kProjector},
    {"model.vision_adapter.", kProjector},
    {"vision_adapter.", kProjector},
    {"model.vision_projection.", kProjector},
    {"vision_projection.", kProjector},
    {"vision_language_adapter.", kProjector},
    {"patch_merger.", kProjector},
    {"v.", kVision},  // GGUF's names
    {"a.", kAudio},
    {"mm.", kProjector},
    {"resampler.", kProjector},
    {"model.mtp.", kAhead},
    {"mtp.", kAhead},
    {"language_model.mtp.", kAhead},
    {"model.language_model.mtp.", kAhead},
}};

// The prefix of a one-layer MTP head, if the family has rules for its tensors; otherwise empty.
std::string mtp_prefix(const TensorSource& source, const Family& family) {
  const auto rule = std::ranges::find(family.tensors, "fc_hidden", &TensorRule::leq);
  if (rule == family.tensors.end()) return "";
  for (const std::string_view prefix : kMtpPrefixes) {
    const std::string at(prefix);
    if (source.find(at + std::string(rule->source)) == nullptr) continue;
    const bool several = std::ranges::any_of(source.tensors(), [&](const SourceTensor& tensor) {
      return tensor.name.starts_with(at + "layers.1.");
    });
    return several ? "" : at;
  }
  return "";
}

}  // namespace

std::optional<TextNames> find_text_names(const TensorSource& source, const Family& family) {
  const std::string first(family.tensors.front().source);
  std::vector<std::string_view> prefixes = family.prefixes;
  prefixes.insert(prefixes.end(), kWrapperPrefixes.begin(), kWrapperPrefixes.end());
  const auto found = std::ranges::find_if(prefixes, [&](std::string_view prefix) {
    return source.find(std::string(prefix) + first) != nullptr;
  });
  if (found == prefixes.end()) return std::nullopt;
  TextNames names = {std::string(*found), std::string(family.head), mtp_prefix(source, family)};
  if (source.find(names.head) != nullptr) return names;
  for (const std::string_view prefix : kWrapperHeads) {
    const std::string head = std::string(prefix) + std::string(family.head);
    if (source.find(head) == nullptr) continue;
    names.head = head;
    break;
  }
  return names;
}

std::string_view other_model_of(std::string_view tensor) {
  const auto* found = std::ranges::find_if(
      kOtherModels, [&](const OtherModel& other) { return tensor.starts_with(other.prefix); });
  return found == kOtherModels.end() ? std::string_view() : found->what;
}

std::string left_out_note(const TensorSource& source, bool with_mtp) {
  std::map<std::string_view, std::int64_t> counts;
  for (const SourceTensor& tensor : source.tensors()) {
    const std::string_view other = other_model_of(tensor.name);
    if (!other.empty() && !(with_mtp && other == kAhead)) ++counts[other];
  }
  std::vector<std::string> parts;
  for (const auto& [what, count] : counts) {
    parts.push_back(std::to_string(count) + (count == 1 ? " tensor of " : " tensors of ") +
                    std::string(what));
  }
  return parts.empty() ? "" : "left out: " + join(parts) + "; the text model alone is run";
}

}  // namespace leq

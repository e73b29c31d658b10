#include "runtime/run_limits.h"

#include <algorithm>

#include "base/text.h"
#include "cache/kv_cache.h"
#include "engine/request.h"

namespace leq {
namespace {

constexpr int kDraftedTogether = 4;  // sequences that a draft model drafts for at once

}  // namespace

void choose_kv_types(const std::optional<KvType>& keys, const std::optional<KvType>& values,
                     const Model& model, RunLimits& limits) {
  KvEvidence made_for;
  made_for.key_type = made_for.value_type = default_kv_type(model.type());
  made_for = model.kv_evidence().value_or(made_for);
  limits.key_type = keys.value_or(made_for.key_type);
  limits.value_type = values.value_or(made_for.value_type);
}

std::string kv_text(const RunLimits& limits) {
  std::string text = "keys " + std::string(kv_type_name(limits.key_type)) + ", values " +
                     std::string(kv_type_name(limits.value_type));
  if (!limits.kv_layers.empty()) text += ", layers " + kv_layers_text(limits.kv_layers);
  const KvResidual residual = kv_residual(limits);
  if (!residual.copies()) return text;
  return text + " (f16: the first " + std::to_string(residual.sinks) + " and the newest " +
         std::to_string(residual.recent) + "; blocks of " + std::to_string(residual.block) + ")";
}

std::string beyond_evidence(const Model& model, const RunLimits& limits) {
  if (!model.kv_evidence()) return "";
  const KvEvidence& evidence = *model.kv_evidence();
  RunLimits measured;
  measured.key_type = evidence.key_type;
  measured.value_type = evidence.value_type;
  const bool same = kv_text(limits) == kv_text(measured);
  if (same && limits.context <= evidence.context) return "";
  const std::string what =
      same ? "a context of " + with_commas(limits.context) + " positions" : kv_text(limits);
  return what + ": not what this file was made for (" + kv_text(measured) + ", " +
         with_commas(evidence.context) + " positions, KL " + fixed(evidence.kl, 5) + ")";
}

std::int64_t reply_rows(int sequences, Drafting drafting) {
  const int drafted = drafting == Drafting::off         ? 0
                      : drafting == Drafting::from_text ? 1
                                                        : std::min(sequences, kDraftedTogether);
  return sequences + drafted * kMaxDraftTokens;
}

}  // namespace leq

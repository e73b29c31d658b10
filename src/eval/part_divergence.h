// Quality loss of each part of a quantized model, with only that part in the unquantized model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "model/open_model.h"
#include "model/session.h"

namespace leq {

enum class PartSide : std::uint8_t { weights, inputs, both };

struct ModelPart {
  std::int64_t layer = 0;
  std::optional<std::size_t> site;  // index in linear_sites; nullopt: the whole layer
  std::string name;                 // "layers.3", "layers.3.down"
};
// All layers, or all sites, whose weights or inputs are quantized in `model`.
std::vector<ModelPart> layer_parts(const Model& model);
std::vector<ModelPart> site_parts(const Model& model);

// Calls `use` with a session of `base` in which one layer is that of `other`, with its weights,
// folds and inputs. `limits` are the session's; its cache may have other types for the layer.
using SessionUse = std::function<void(Session& session)>;
void with_layer_of(const Model& base, const Model& other, std::int64_t layer, Backend& backend,
                   const RunLimits& limits, const SessionUse& use);

// Like with_layer_of, but with the embeddings and the head of `other`, which change the logits
// directly: either as `other` runs them (PartSide::both), or only with its weights.
bool has_quantized_tables(const Model& model);
void with_tables_of(const Model& base, const Model& other, PartSide side, Backend& backend,
                    const RunLimits& limits, const SessionUse& use);

// Like with_layer_of, but weights, inputs or both of a part are rounded as in `other`, computed in
// f32. Scales that `other` has folded into neighbours are divided out: scales in a norm by the
// gains in both files, scales in v and up by a least-squares fit of the columns of o and down. CPU
// only. Throws Error naming the tensor or site if the files are not of one checkpoint, for inputs
// with a moving scale, and for inputs of experts.
void with_rounded_part(const Model& base, const Model& other, const ModelPart& part, PartSide side,
                       Backend& backend, const RunLimits& limits, const SessionUse& use);

// Rounds a row of inputs [K] in place: row times `factors` [K] to codes of `act` and back.
// `act_scale` is for act tensor. See docs/numerics.md.
void round_inputs(std::span<float> row, std::span<const float> factors, ActKind act,
                  float act_scale);

}  // namespace leq

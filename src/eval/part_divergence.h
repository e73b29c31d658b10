// Which parts of a quantized model lose most: the unquantized model with one part of the other.
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
  std::optional<std::size_t> site;  // of linear_sites; none: all of the layer
  std::string name;                 // "layers.3", "layers.3.down"
};
// All layers, or all sites whose weights or inputs `model` has quantized.
std::vector<ModelPart> layer_parts(const Model& model);
std::vector<ModelPart> site_parts(const Model& model);

// Runs `use` with a session of `base` whose layer is that of `other`, as it runs there: weights,
// folds, inputs. `limits`: of the session; its cache may have other types for the layer.
using SessionUse = std::function<void(Session& session)>;
void with_layer_of(const Model& base, const Model& other, std::int64_t layer, Backend& backend,
                   const RunLimits& limits, const SessionUse& use);

// The same with the embeddings and the head of `other`, whose numbers the logits are made of: as it
// runs there (both), or their weights alone.
bool has_quantized_tables(const Model& model);
void with_tables_of(const Model& base, const Model& other, PartSide side, Backend& backend,
                    const RunLimits& limits, const SessionUse& use);

// The same with weights, inputs or both of a part rounded as in `other` and computed with floats.
// Scales that `other` has folded between neighbours are taken out again: those of a norm by its
// gain in both files, those of v and up by the columns of o and down in both, by least squares. On
// the CPU. Throws Error naming the place where the two are not of one checkpoint, for inputs with a
// moving scale, for a rotated residual stream or rotated inputs, and for inputs of experts.
void with_rounded_part(const Model& base, const Model& other, const ModelPart& part, PartSide side,
                       Backend& backend, const RunLimits& limits, const SessionUse& use);

// Rounds a row of inputs [K] in place, as codes of `act` hold the row times `factors` [K].
// `act_scale`: of act tensor. docs/numerics.md.
void round_inputs(std::span<float> row, std::span<const float> factors, ActKind act,
                  float act_scale);

}  // namespace leq

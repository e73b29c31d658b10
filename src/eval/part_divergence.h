// Quality loss of each part of a quantized model: that part alone within the unquantized model.
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
  std::optional<std::size_t> site;  // index in linear_sites; none: the whole layer
  std::string name;                 // "layers.3", "layers.3.down"
};
// All layers, or all sites, with weights or inputs that `model` has quantized.
std::vector<ModelPart> layer_parts(const Model& model);
std::vector<ModelPart> site_parts(const Model& model);

// Runs `use` with a session of `base` with one layer replaced by that of `other`, unchanged:
// weights, folds, inputs. `limits`: of the session; its cache may have other types for the layer.
using SessionUse = std::function<void(Session& session)>;
void with_layer_of(const Model& base, const Model& other, std::int64_t layer, Backend& backend,
                   const RunLimits& limits, const SessionUse& use);

// The same for the embeddings and the head of `other`, which determine the logits directly: as they
// run there (both), or their weights alone.
bool has_quantized_tables(const Model& model);
void with_tables_of(const Model& base, const Model& other, PartSide side, Backend& backend,
                    const RunLimits& limits, const SessionUse& use);

// The same with weights, inputs or both of a part rounded as in `other` and computed in f32. Scales
// that `other` has folded into neighbours are divided out: those of a norm by its gain in both
// files, those of v and up by the columns of o and down in both, by least squares. CPU only. Throws
// Error naming the tensor or site where the two are not of one checkpoint, for inputs with a moving
// scale, for a rotated residual stream or rotated inputs, and for inputs of experts.
void with_rounded_part(const Model& base, const Model& other, const ModelPart& part, PartSide side,
                       Backend& backend, const RunLimits& limits, const SessionUse& use);

// Rounds a row of inputs [K] in place, through codes of `act` of the row times `factors` [K].
// `act_scale`: for act tensor. docs/numerics.md.
void round_inputs(std::span<float> row, std::span<const float> factors, ActKind act,
                  float act_scale);

}  // namespace leq

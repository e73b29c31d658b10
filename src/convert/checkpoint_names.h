// The name prefixes of a text model's tensors in a checkpoint, which may also contain other models.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "families/family.h"
#include "format/tensor_source.h"

namespace leq {

struct TextNames {
  std::string prefix;  // prefix of all tensors except the head: "model.language_model."
  std::string head;    // full name of the head's tensor; the family's name if there is none
  std::string mtp;     // prefix of a multi-token prediction head: "mtp."; empty: none
};
// Returns nullopt if the family's first tensor, the embedding, has none of the known prefixes.
std::optional<TextNames> find_text_names(const TensorSource& source, const Family& family);

// The kind of other model that a tensor belongs to: vision or audio tower, projector, or
// multi-token prediction head. Empty for tensors of the text model.
std::string_view other_model_of(std::string_view tensor);

// One line that lists the tensors that were not imported; empty if there are none. `with_mtp`:
// whether a multi-token prediction head was imported.
std::string left_out_note(const TensorSource& source, bool with_mtp);

}  // namespace leq

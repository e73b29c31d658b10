// The name prefixes of a text model's tensors in a checkpoint that may hold other models beside it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/tensor_source.h"
#include "models/family.h"

namespace leq {

struct TextNames {
  std::string prefix;  // of all tensors except the head: "model.language_model."
  std::string head;    // the tensor's full name; the family's name if the checkpoint has no head
  std::string mtp;     // of the tensors of a head of multi-token prediction: "mtp."; empty: none
};
// nullopt where the family's first tensor, the embedding, is found under no known prefix.
std::optional<TextNames> find_text_names(const TensorSource& source, const Family& family);

// The kind of other model that a tensor belongs to: vision or audio tower, projector, or head of
// multi-token prediction. Empty for tensors of the text model.
std::string_view other_model_of(std::string_view tensor);

// One line listing the tensors that were left out; empty where there are none. `with_mtp`: a head
// of multi-token prediction was imported.
std::string left_out_note(const TensorSource& source, bool with_mtp);

}  // namespace leq

// Where the tensors of a text model lie in a checkpoint that may hold other models beside it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/tensor_source.h"
#include "models/family.h"

namespace leq {

struct TextNames {
  std::string prefix;  // of every tensor but the head: "model.language_model."
  std::string head;    // the tensor's whole name; the family's own where there is none
  std::string mtp;     // of the tensors of a head of multi-token prediction: "mtp."; empty: none
};
// nullopt where the family's first tensor, the embedding, lies under no prefix that is known.
std::optional<TextNames> find_text_names(const TensorSource& source, const Family& family);

// Tensors of vision and audio towers, of their projectors, and of heads of multi-token prediction:
// they are no part of the text model. Empty for all others.
std::string_view other_model_of(std::string_view tensor);

// One line that says what was left out; empty where nothing was. `with_mtp`: a head of multi-token
// prediction was not.
std::string left_out_note(const TensorSource& source, bool with_mtp);

}  // namespace leq

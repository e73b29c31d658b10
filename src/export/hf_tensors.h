// The tensors of a .leq file under their names in a transformers family.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "export/safetensors_writer.h"
#include "families/family.h"
#include "model/linear_sites.h"
#include "model/open_model.h"

namespace leq {

// Converts "layers.3.q" to "model.layers.3.self_attn.q_proj.weight"; joined parts share a name.
std::string hf_name(const Family& family, const std::string& tensor);

// The selected tensors as f32 in the layout of the family's class: parts joined, rows in its order,
// transposed if it stores [K][N]; a multi-token prediction head is not exported. Smoothing vectors
// are multiplied into the weights. `model` must outlive the tensors.
std::vector<SafeTensor> hf_float_tensors(
    const Model& model, const Family& family,
    const std::function<bool(const TensorSpec& spec)>& wanted = [](const auto&) { return true; });

}  // namespace leq

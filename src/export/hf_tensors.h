// The tensors of a .leq file under their names in a transformers family.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "export/safetensors_writer.h"
#include "model/open_model.h"
#include "model/tensor_list.h"
#include "models/family.h"

namespace leq {

// "layers.3.q" -> "model.layers.3.self_attn.q_proj.weight". Joined parts share their name.
std::string hf_name(const Family& family, const std::string& tensor);

// The wanted tensors as f32, laid out as in the family's class: parts joined, rows in its order,
// transposed where it stores [K][N]; without a head of multi-token prediction. Smoothing vectors
// are multiplied into the weights. `model` must outlive them.
std::vector<SafeTensor> hf_float_tensors(
    const Model& model, const Family& family,
    const std::function<bool(const TensorSpec& spec)>& wanted = [](const auto&) { return true; });

}  // namespace leq

// The parts of one quantized weight, identified by name suffixes, and the matrix that they
// form.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "format/packed_matrix.h"
#include "format/packed_source.h"

namespace leq {

enum class PackedRole : std::uint8_t {
  weight,  // floats, I8 or F8 codes
  packed,  // codes in words or bytes
  scale,
  zeros,
  column_groups,  // group index of each column, in any order
  shape,
  common_scale,  // multiplies all scales
  activations,   // scales of inputs, keys and values; ignored, since leq computes its own
};

// The result for "layers.0.q_proj.weight_scale" is {"layers.0.q_proj", scale}; it is nullopt for
// tensors that are not part of a weight.
struct PackedName {
  std::string module;
  PackedRole role;
};
std::optional<PackedName> packed_name(std::string_view tensor);

struct PackedParts {
  std::string module;
  const SourceTensor* weight = nullptr;
  const SourceTensor* packed = nullptr;
  const SourceTensor* scale = nullptr;
  const SourceTensor* zeros = nullptr;
  const SourceTensor* column_groups = nullptr;
  const SourceTensor* shape = nullptr;
  const SourceTensor* common_scale = nullptr;

  // Throws Error naming the second of two tensors with the same role.
  void add(PackedRole role, const SourceTensor& tensor);
  // Whether the parts are codes with scales; false for a floating-point weight.
  bool is_packed() const;
};

// Throws Error naming a tensor of the weight and its location.
PackedMatrix make_packed_matrix(const PackedParts& parts, const PackedOptions& options);

}  // namespace leq

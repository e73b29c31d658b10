// Padding of columns that a file leaves out. Kernels read 128 columns at a time, and weights in
// memory are padded to that; in narrow models a tenth of a file would be padding. Such a tensor is
// stored with its columns rounded up to 32 and without sums of codes, and completed when the file
// is opened (docs/leq-format.md, "Tensors without padding").
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/pack.h"
#include "tensor/weight_layout.h"

namespace leq {

// Whether a writer leaves out the padding: it must be a twentieth of the columns, because a
// completed weight is a private copy, while all others are used in the mapped file.
bool leaves_out_padding(const QuantScheme& scheme, std::int64_t columns);
// Whether the planes of a scheme can be stored without padding.
bool can_leave_out_padding(const QuantScheme& scheme);

// Bytes of each plane without padding, as plane_bytes for those with it.
PlaneBytes unpadded_bytes(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns);
// Bytes that the tensor takes in a file.
std::uint64_t file_bytes_of(const QuantScheme& scheme, ActKind act, std::int64_t rows,
                            std::int64_t columns);

// The planes without padding; sums are empty.
PackedWeight without_padding(const WeightView& weight);

// Bytes of memory that with_padding fills.
std::uint64_t padded_bytes(const WeightView& weight);
// Copies planes without padding to zeroed, 64-byte aligned memory, completes them, and returns the
// view of the copy.
WeightView with_padding(const WeightView& unpadded, std::byte* to);

}  // namespace leq

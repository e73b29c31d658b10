// The element types that tensors are stored in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace leq {

enum class DType : std::uint8_t { f32, f16, bf16, i8, u8, i16, i32 };

std::string_view dtype_name(DType dtype);  // "bf16"
std::size_t dtype_bytes(DType dtype);

}  // namespace leq

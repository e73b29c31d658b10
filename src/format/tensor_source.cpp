#include "format/tensor_source.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::size_t kChunk = 256;  // a constant count lets the compiler vectorize the loops

using Halves = std::array<std::uint16_t, kChunk>;
using Floats = std::array<float, kChunk>;

void widen_bf16(const Halves& in, Floats& out) {
  for (std::size_t i = 0; i < kChunk; ++i) {
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(in[i]) << 16);
  }
}

// Branch-free equivalent of half.h's f16_to_f32: exponent and mantissa form a number that is too
// small by 2^112, which an exact product corrects; an exponent of all ones is restored separately.
void widen_f16(const Halves& in, Floats& out) {
  for (std::size_t i = 0; i < kChunk; ++i) {
    const std::uint32_t sign = static_cast<std::uint32_t>(in[i] & 0x8000u) << 16;
    const std::uint32_t small = static_cast<std::uint32_t>(in[i] & 0x7fffu) << 13;
    const std::uint32_t large = small >= 0x0f800000u ? 0x7f800000u : 0u;
    const auto value = std::bit_cast<std::uint32_t>(std::bit_cast<float>(small) * 0x1p112f);
    out[i] = std::bit_cast<float>(value | sign | large);
  }
}

template <class Widen>
void widen(const std::byte* bytes, std::span<float> out, Widen chunk) {
  Halves halves = {};
  Floats floats;
  for (std::size_t i = 0; i < out.size(); i += kChunk) {
    const std::size_t count = std::min(kChunk, out.size() - i);
    std::memcpy(halves.data(), bytes + i * 2, count * 2);
    chunk(halves, floats);
    std::memcpy(out.data() + i, floats.data(), count * sizeof(float));
  }
}

}  // namespace

std::string shape_text(const Shape& shape) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + join(sizes) + "]";
}

void TensorSource::read(const SourceTensor& tensor, std::int64_t first,
                        std::span<float> out) const {
  read_floats(tensor, first, out);
}

std::optional<QuantScheme> TensorSource::own_scheme(const SourceTensor&) const {
  return std::nullopt;
}

bool TensorSource::read_codes(const SourceTensor&, const QuantScheme&, std::int64_t, std::int64_t,
                              ChosenCodes&) const {
  return false;
}

void read_floats(const SourceTensor& tensor, std::int64_t first, std::span<float> out) {
  const bool is_float =
      tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16;
  require(is_float, tensor.place, ": tensor ", printable(tensor.name), " has type ",
          tensor.file_dtype.empty() ? std::string(dtype_name(tensor.dtype))
                                    : printable(tensor.file_dtype),
          ", expected F32, F16 or BF16; convert the checkpoint to one of them");
  const std::size_t size = dtype_bytes(tensor.dtype);
  const std::size_t elements = tensor.bytes.size() / size;
  const auto start = static_cast<std::size_t>(first);
  ensure(first >= 0 && start <= elements && out.size() <= elements - start, tensor.place,
         ": tensor ", printable(tensor.name), " has ", elements, " values, ", out.size(),
         " were asked for from ", first);
  if (out.empty()) return;
  const std::byte* bytes = tensor.bytes.data() + start * size;
  if (tensor.dtype == DType::f32) {
    std::memcpy(out.data(), bytes, out.size_bytes());
  } else if (tensor.dtype == DType::f16) {
    widen(bytes, out, widen_f16);
  } else {
    widen(bytes, out, widen_bf16);
  }
}

}  // namespace leq

#include "cuda/host/kv_portable.h"

#include <array>
#include <cstring>

#include "base/error.h"
#include "cuda/host/memory.h"
#include "cuda/kernels/layout.h"

namespace leq::LEQ_GPU {
namespace {

constexpr std::size_t kEndBytes = kPageTokens * sizeof(std::uint16_t);  // scales or minima
constexpr std::array<int, 3> kNumberBytes = {4, 2, 1};

std::size_t row_bytes(KvType type, int head_dim) {
  return static_cast<std::size_t>(
      kv_row_bytes(head_dim, kNumberBytes[static_cast<std::size_t>(type)]));
}

// Where a head's parts lie on the device, and their sizes there and in portable order.
struct HeadParts {
  std::byte* numbers;
  std::byte* scales;
  std::byte* minima;
  std::size_t row, portable_row;
  bool coded;
};

HeadParts parts_of(const KvHead& head, std::size_t given) {
  const bool keys = head.part == KvPart::keys;
  std::byte* page = (keys ? head.layer.keys : head.layer.values) +
                    static_cast<std::size_t>(head.page) *
                        (keys ? head.layer.key_page_bytes : head.layer.value_page_bytes);
  HeadParts parts = {};
  parts.row = row_bytes(head.type(), head.head_dim);
  parts.portable_row =
      static_cast<std::size_t>(head.head_dim) *
      static_cast<std::size_t>(kNumberBytes[static_cast<std::size_t>(head.type())]);
  parts.coded = head.type() == KvType::int8;
  const auto heads = static_cast<std::size_t>(head.kv_heads);
  const auto index = static_cast<std::size_t>(head.head);
  parts.numbers = page + index * kPageTokens * parts.row;
  parts.scales = page + heads * kPageTokens * parts.row + index * kEndBytes;
  parts.minima = parts.scales + heads * kEndBytes;
  const std::size_t want = kPageTokens * parts.portable_row + (parts.coded ? 2 * kEndBytes : 0);
  ensure(given == want, "KV cache: a page's head holds ", want, " bytes, ", given, " given");
  return parts;
}

}  // namespace

std::size_t kv_page_bytes(KvType type, int kv_heads, int head_dim) {
  const std::size_t ends = type == KvType::int8 ? 2 * kEndBytes : 0;
  return static_cast<std::size_t>(kv_heads) * (kPageTokens * row_bytes(type, head_dim) + ends);
}

void read_kv_head(const KvHead& head, std::span<std::byte> out, rt::Stream& stream) {
  const HeadParts parts = parts_of(head, out.size());
  const Pinned there(kPageTokens * parts.row + 2 * kEndBytes);
  std::byte* const ends = there.data() + kPageTokens * parts.row;
  rt::copy_to_host(there.data(), parts.numbers, kPageTokens * parts.row, stream);
  if (parts.coded) {
    rt::copy_to_host(ends, parts.scales, kEndBytes, stream);
    rt::copy_to_host(ends + kEndBytes, parts.minima, kEndBytes, stream);
  }
  rt::synchronize(stream);
  for (std::size_t j = 0; j < kPageTokens; ++j) {
    std::memcpy(out.data() + j * parts.portable_row, there.data() + j * parts.row,
                parts.portable_row);
  }
  if (parts.coded) {
    std::memcpy(out.data() + kPageTokens * parts.portable_row, ends, 2 * kEndBytes);
  }
}

void write_kv_head(const KvHead& head, std::span<const std::byte> in, rt::Stream& stream) {
  const HeadParts parts = parts_of(head, in.size());
  const Pinned there(kPageTokens * parts.row + 2 * kEndBytes);
  std::byte* const ends = there.data() + kPageTokens * parts.row;
  std::memset(there.data(), 0, there.size());
  for (std::size_t j = 0; j < kPageTokens; ++j) {
    std::memcpy(there.data() + j * parts.row, in.data() + j * parts.portable_row,
                parts.portable_row);
  }
  rt::copy_to_device(parts.numbers, there.data(), kPageTokens * parts.row, stream);
  if (parts.coded) {
    std::memcpy(ends, in.data() + kPageTokens * parts.portable_row, 2 * kEndBytes);
    rt::copy_to_device(parts.scales, ends, kEndBytes, stream);
    rt::copy_to_device(parts.minima, ends + kEndBytes, kEndBytes, stream);
  }
  rt::synchronize(stream);
}

}  // namespace leq::LEQ_GPU

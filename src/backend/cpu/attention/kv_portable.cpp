#include "backend/cpu/attention/kv_portable.h"

#include <cstdint>
#include <cstring>

#include "backend/cpu/attention/attention_kernels.h"
#include "backend/cpu/attention/kv_layout.h"
#include "base/error.h"

namespace leq::cpu {
namespace {

constexpr std::size_t kEndBytes = kPageTokens * sizeof(std::uint16_t);  // scales or minima

HeadPage page_of(const KvHead& head) {
  const auto find = head.part == KvPart::keys ? key_head : value_head;
  return find(head.layer, head.page, head.kv_heads, head.head_dim, head.head);
}

std::size_t number_count(const KvHead& head) {
  return static_cast<std::size_t>(kPageTokens) * static_cast<std::size_t>(head.head_dim);
}

void require_size(const KvHead& head, std::size_t bytes) {
  const std::size_t ends = head.type() == KvType::int8 ? 2 * kEndBytes : 0;
  const std::size_t want = number_count(head) * number_bytes(head.type()) + ends;
  ensure(bytes == want, "KV cache: a page's head holds ", want, " bytes, ", bytes, " given");
}

// Where dimension c of position j lies, in numbers from the head's start.
std::size_t place(const KvHead& head, int j, int c) {
  const int d = head.head_dim, block = j / kKeyBlock, lane = j % kKeyBlock;
  int at = j * d + c;
  if (head.part == KvPart::keys) {
    at = (block * d + c) * kKeyBlock + lane;
    if (head.type() == KvType::int8) {
      at = ((block * ((d + 3) / 4) + c / 4) * kKeyBlock + lane) * 4 + c % 4;
    }
  }
  return static_cast<std::size_t>(at);
}

// copy(number in the page, number in portable order), both in bytes from their start.
template <class Copy>
void each_number(const KvHead& head, Copy copy) {
  const std::size_t size = number_bytes(head.type());
  std::size_t portable = 0;
  for (int j = 0; j < kPageTokens; ++j) {
    for (int c = 0; c < head.head_dim; ++c, portable += size) {
      copy(place(head, j, c) * size, portable, size);
    }
  }
}

}  // namespace

void read_kv(const KvHead& head, std::span<std::byte> out) {
  require_size(head, out.size());
  const HeadPage page = page_of(head);
  each_number(head, [&](std::size_t in_page, std::size_t portable, std::size_t size) {
    std::memcpy(out.data() + portable, page.numbers + in_page, size);
  });
  if (head.type() != KvType::int8) return;
  std::memcpy(out.data() + number_count(head), page.scales, kEndBytes);
  std::memcpy(out.data() + number_count(head) + kEndBytes, page.minima, kEndBytes);
}

void write_kv(const KvHead& head, std::span<const std::byte> in) {
  require_size(head, in.size());
  const HeadPage page = page_of(head);
  each_number(head, [&](std::size_t in_page, std::size_t portable, std::size_t size) {
    std::memcpy(page.numbers + in_page, in.data() + portable, size);
  });
  if (head.type() != KvType::int8) return;
  std::memcpy(page.scales, in.data() + number_count(head), kEndBytes);
  std::memcpy(page.minima, in.data() + number_count(head) + kEndBytes, kEndBytes);
}

}  // namespace leq::cpu

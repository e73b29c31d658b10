// Converts pages of keys and values, in host memory, between the device's layout and the portable
// order of saved sequences (Layout::read_kv).
#pragma once

#include <cstddef>
#include <span>

#include "backend/kv_types.h"

namespace leq::gpu {

// Returns the page's bytes. Keys and values have the same layout unless packed (kv_codes.h).
std::size_t kv_page_bytes(KvPart part, KvType type, int kv_heads, int head_dim);

// Both functions throw Error if a span does not have the size of the page or of the head.
void read_kv_head(const KvHead& head, std::span<const std::byte> page, std::span<std::byte> out);
void write_kv_head(const KvHead& head, std::span<std::byte> page, std::span<const std::byte> in);

}  // namespace leq::gpu

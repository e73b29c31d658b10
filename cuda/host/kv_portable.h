// Pages of keys and values between the device's layout and the portable order of saved sequences
// (backend.h, read_kv).
#pragma once

#include <cstddef>
#include <span>

#include "backend/backend.h"
#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

// Keys and values lie alike.
std::size_t kv_page_bytes(KvType type, int kv_heads, int head_dim);

// Both wait for the stream. Throw Error where the span's size is not that of the head.
void read_kv_head(const KvHead& head, std::span<std::byte> out, rt::Stream& stream);
void write_kv_head(const KvHead& head, std::span<const std::byte> in, rt::Stream& stream);

}  // namespace leq::LEQ_GPU

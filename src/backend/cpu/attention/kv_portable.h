// Converts between the CPU's pages and the portable order of saved sequences (Layout::read_kv).
#pragma once

#include <cstddef>
#include <span>

#include "backend/kv_types.h"

namespace leq::cpu {

void read_kv(const KvHead& head, std::span<const std::byte> page, std::span<std::byte> out);
void write_kv(const KvHead& head, std::span<std::byte> page, std::span<const std::byte> in);

}  // namespace leq::cpu

// Zeroed memory on pages of 2 MB, which DRAM is read through at full speed.
#pragma once

#include <cstddef>

namespace leq {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// A mapping that begins on a huge page; nullptr where the system has no room (errno says why).
// Pages are taken as they are first touched; small ones serve where there are no huge ones.
std::byte* map_huge_pages(std::size_t bytes) noexcept;
void unmap_huge_pages(std::byte* data, std::size_t bytes) noexcept;

}  // namespace leq

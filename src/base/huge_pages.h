// Pages of 2 MB, which DRAM is read through at full speed: zeroed memory on them, and files mapped
// through them where the page cache holds such pages.
#pragma once

#include <cstddef>

namespace leq {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// A mapping that begins on a huge page; nullptr where the system has no room (errno says why).
// Pages are taken as they are first touched; small ones serve where there are no huge ones.
std::byte* map_huge_pages(std::size_t bytes) noexcept;
void unmap_huge_pages(std::byte* data, std::size_t bytes) noexcept;

// Of a file's mapping: what is not in the page cache yet is read into huge pages (a hint).
void ask_for_huge_pages(const std::byte* data, std::size_t bytes) noexcept;
// Maps pages before they are touched, reading them from the file where they are not in the cache.
// What cannot be read is left to the first touch. `data` begins a page.
void map_ahead(const std::byte* data, std::size_t bytes) noexcept;
// Bytes of the file's mapping that begins at `data` which are mapped through huge pages at this
// moment; 0 where the system does not say.
std::size_t bytes_in_huge_pages(const std::byte* data);

}  // namespace leq

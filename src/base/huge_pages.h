// Pages of 2 MB, with which DRAM is read at full bandwidth: zeroed memory in such pages, and
// mappings of files whose page cache has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace leq {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// A mapping aligned to a huge page; nullptr if the system has no memory (errno has the cause).
// Pages are allocated when first touched; small pages are used if there are no huge ones.
std::byte* map_huge_pages(std::size_t bytes) noexcept;
void unmap_huge_pages(std::byte* data, std::size_t bytes) noexcept;

// Hints to the system that uncached pages of a mapped file should be read into huge pages.
void ask_for_huge_pages(const std::byte* data, std::size_t bytes) noexcept;
// Maps pages before they are first used; reads those that are not in the page cache from the file.
// Pages that cannot be read are mapped on first use. `data` is aligned to a page.
void map_ahead(const std::byte* data, std::size_t bytes) noexcept;
// The number of bytes of the file mapping at `data` that are currently mapped through huge pages; 0
// if the system does not report it.
std::size_t bytes_in_huge_pages(const std::byte* data);

// Move-only owner of zeroed, 64-byte aligned memory. A page is allocated when first touched.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  // Throws Error naming `what` and the size if the system cannot reserve the memory.
  HugeBuffer(std::uint64_t bytes, const char* what);
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace leq

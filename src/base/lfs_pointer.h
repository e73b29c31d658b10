// A file that Git LFS keeps elsewhere has a pointer in its place until it is fetched.
#pragma once

#include <cstddef>
#include <string_view>

namespace leq {

inline constexpr std::size_t kLfsPointerBytes = 64;  // of a file's beginning that are enough

// Throws Error naming `source` where the beginning is a pointer's. read_file does.
void refuse_lfs_pointer(std::string_view beginning, std::string_view source);

}  // namespace leq

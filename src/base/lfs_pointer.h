// A file stored by Git LFS is represented by a small pointer file until it is fetched.
#pragma once

#include <cstddef>
#include <string_view>

namespace leq {

inline constexpr std::size_t kLfsPointerBytes = 64;  // enough to recognize a pointer

// Throws Error naming `source` if `beginning` is that of a pointer file. read_file calls it.
void refuse_lfs_pointer(std::string_view beginning, std::string_view source);

}  // namespace leq

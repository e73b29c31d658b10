// What becomes of a program whose mapped file gets shorter while it is read: the system ends it by
// SIGBUS, which says nothing to anybody.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace leq {

// From now on SIGBUS in a mapping that name_mapping knows ends the program with one line on
// standard error, "PROGRAM: error: FILE: ...", and status 1. Elsewhere it ends it as ever. For
// programs: a library leaves signals to them.
void watch_mappings(std::string_view program);

// The bytes [data, data + size) are those of a file; it is known until it is forgotten. Of more
// than a thousand mappings at a time the last ones stay unknown.
void name_mapping(const std::byte* data, std::size_t size, const std::string& file);
void forget_mapping(const std::byte* data) noexcept;

}  // namespace leq

// Turns SIGBUS, by which the system ends a program whose mapped file was truncated, into an error
// message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace leq {

// Installs a SIGBUS handler: a fault in a mapping that name_mapping registered ends the program
// with one line on standard error, "PROGRAM: error: FILE: ...", and status 1. Other faults end it
// as before. For programs: a library leaves signals to them.
void watch_mappings(std::string_view program);

// Registers the bytes [data, data + size) as those of a file, until they are forgotten. Mappings
// beyond a thousand at a time are not registered.
void name_mapping(const std::byte* data, std::size_t size, const std::string& file);
void unwatch_mapping(const std::byte* data) noexcept;

}  // namespace leq

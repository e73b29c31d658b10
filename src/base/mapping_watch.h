// Reports an error when the system ends the program with SIGBUS because a mapped file was
// truncated.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace leq {

// Installs a SIGBUS handler: a fault in a mapping that name_mapping registered ends the program
// with one line on standard error, "PROGRAM: error: FILE: ...", and status 1. Other faults end it
// as before. Only programs call this: a library does not install signal handlers.
void watch_mappings(std::string_view program);

// Registers the bytes [data, data + size) as a file's mapping, until they are unregistered. At most
// a thousand mappings are registered; more are ignored.
void name_mapping(const std::byte* data, std::size_t size, const std::string& file);
void forget_mapping(const std::byte* data) noexcept;

}  // namespace leq

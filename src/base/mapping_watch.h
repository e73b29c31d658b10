// What happens when a mapped file is truncated: the system reports that by SIGBUS.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace leq {

enum class LostPages : std::uint8_t {
  end_program,  // with status 1
  read_zeros,   // in the whole mapping; its readers must check MappedFile::is_whole()
};

// Installs a SIGBUS handler: a fault in a mapping that name_mapping registered writes one line to
// standard error, "PROGRAM: error: FILE: ...", and then does what `lost` says. Other faults end the
// program as before. Only programs call this: a library does not install signal handlers.
void watch_mappings(std::string_view program, LostPages lost = LostPages::end_program);

// Registers the bytes [data, data + size) as a file's mapping, until they are unregistered. Returns
// whether pages of it were lost, valid until then. At most a thousand mappings are registered; for
// more it returns null, and faults in them end the program.
const std::atomic<bool>* name_mapping(const std::byte* data, std::size_t size,
                                      const std::string& file);
void unwatch_mapping(const std::byte* data) noexcept;

}  // namespace leq

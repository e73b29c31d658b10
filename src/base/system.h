// What leq asks of the operating system beyond POSIX: src/base/linux and src/base/macos. Hints do
// nothing where the system has no such thing.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace leq::system {

// Sleeps until wake_all(word), if the word still has this value; may return earlier.
void wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value);
void wake_all(std::atomic<std::uint32_t>& word);

// Cores that this process may use, ascending; empty if the system does not tell.
std::vector<int> usable_cores();
// The calling thread's core, or -1.
int current_core();
// Restricts the calling thread to these cores; false if the system refuses.
bool run_on(std::span<const int> cores);

// Features of 64-bit ARM processors.
bool has_arm_dotprod();
bool has_arm_i8mm();

// Hints about mapped memory; `data` is aligned to a page.
void ask_for_huge_pages(std::byte* data, std::size_t bytes) noexcept;
void map_pages(std::byte* data, std::size_t bytes) noexcept;
// Moves memory to a node, or distributes it over several nodes.
void move_to_nodes(const std::byte* data, std::size_t bytes, std::span<const int> nodes) noexcept;

// Descriptors of files without a name, in `folder` and in memory; below 0 with errno on failure.
int open_nameless(const std::filesystem::path& folder);
int open_in_memory(const char* name);
// Names a file of open_nameless(); false if the name is taken or cannot be given.
bool give_name(int descriptor, const std::filesystem::path& name);
// Takes the file's space on the disk; returns an error number, or 0.
int reserve_space(int descriptor, off_t bytes);
// The name of a file in /proc/locks, such as "08:01:1234".
std::string lock_name(const struct stat& status);

// Returns freed memory of malloc to the system; keeps doing so for blocks of `bytes` and more.
void return_freed_memory();
void return_freed_blocks(int bytes);

}  // namespace leq::system

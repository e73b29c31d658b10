// Describes the fault that the preloaded library injects into a program; for tests that start such
// programs.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>

#include "faults/fault_block.h"

namespace leq::faults {

// A fault of kind `how` at call number `at` of one kind of call.
struct Fault {
  Call call = Call::count_of;
  How how = How::none;
  int error = 0;
  std::uint64_t at = 0;
};

// The block of memory shared with one process, in a file of the folder `notes`.
class Block {
 public:
  Block(const std::filesystem::path& notes, const Fault& fault)
      : path_((notes / "faults").string()) {
    const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (descriptor < 0 || ::ftruncate(descriptor, sizeof(FaultBlock)) != 0) {
      throw std::runtime_error(path_ + ": cannot make it");
    }
    void* mapped =
        ::mmap(nullptr, sizeof(FaultBlock), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    ::close(descriptor);
    if (mapped == MAP_FAILED) throw std::runtime_error(path_ + ": cannot map it");
    block_ = new (mapped) FaultBlock;
    block_->call = static_cast<std::uint32_t>(fault.call);
    block_->how = static_cast<std::uint32_t>(fault.how);
    block_->error = fault.error;
    block_->at = fault.at;
  }
  ~Block() { ::munmap(block_, sizeof(FaultBlock)); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  FaultBlock& get() { return *block_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  FaultBlock* block_ = nullptr;
};

}  // namespace leq::faults

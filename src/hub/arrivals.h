// Files that one thread downloads (Hub::fetch) while others read them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/descriptor.h"
#include "format/tensor_source.h"
#include "hub/hub.h"

namespace leq {

class Arrivals final : public ArrivingFiles {
 public:
  // Files of known sizes, by their names.
  explicit Arrivals(std::span<const HubFile> files);
  ~Arrivals() override;

  std::optional<std::uint64_t> bytes(const std::string& name) const override;
  void read(const std::string& name, std::uint64_t first, std::span<std::byte> out) override;
  void finish() override;
  // Whether a file was sent from its beginning again after parts of it had been read, which may be
  // others now: read and finish fail, and the files are to be read when all are complete.
  bool restarted() const;
  // Ends the download: its next call of set_bytes throws Error.
  void give_up();

  // For the thread that downloads. `path`: where the file is now; it may be renamed afterwards.
  void open(const std::string& name, const std::filesystem::path& path);
  // How many bytes have arrived.
  void set_bytes(const std::string& name, std::uint64_t have);
  void set_verified(const std::string& name);
  void set_failed(std::exception_ptr why);  // of the rest

 private:
  struct File {
    std::uint64_t bytes = 0, have = 0, used = 0;  // used: the end of what was read
    std::shared_ptr<const Descriptor> descriptor = {};
    bool verified = false;
  };
  void require_unbroken() const;  // the lock is held

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, File> files_;
  std::exception_ptr failure_;
  bool restarted_ = false, given_up_ = false;
};

}  // namespace leq

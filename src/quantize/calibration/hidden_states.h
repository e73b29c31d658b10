// The residual stream of all calibration windows between two blocks. It is kept in memory, or in a
// file if memory is too small.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace leq {

class HiddenStates {
 public:
  // Stores windows x numbers f32; in memory if `file` is empty. Throws Error naming the file if it
  // cannot be created or does not fit on the disk. The file is unlinked at once (temporary).
  HiddenStates(std::int64_t windows, std::int64_t numbers, const std::filesystem::path& file);
  ~HiddenStates();
  HiddenStates(const HiddenStates&) = delete;
  HiddenStates& operator=(const HiddenStates&) = delete;

  std::int64_t windows() const { return windows_; }
  std::int64_t numbers() const { return numbers_; }  // numbers per window
  void read(std::int64_t window, std::span<float> out) const;
  void write(std::int64_t window, std::span<const float> values);

 private:
  std::int64_t windows_ = 0;
  std::int64_t numbers_ = 0;
  std::vector<float> memory_;
  int descriptor_ = -1;
  std::filesystem::path file_;
};

}  // namespace leq

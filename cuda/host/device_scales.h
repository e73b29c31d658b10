// Moving scales of act online whose state is on the device: a table of records, and a slot that
// links each used record to its OnlineScale.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/host/memory.h"
#include "cuda/kernels/rows/online.h"

namespace leq::LEQ_GPU {

class DeviceScales {
 public:
  // `stream` runs the steps; records are copied on a separate stream, so that a scale may be added
  // while steps are being recorded.
  DeviceScales(int device, rt::Stream& stream);

  // The device record of a scale; the first call transfers the state to it. Throws Error where
  // there are too many scales.
  OnlineRecord* of(OnlineScale& scale);

 private:
  class Slot;

  OnlineRecord* record(std::size_t slot) const;
  void read(std::size_t slot, OnlineRecord& record);
  void write(std::size_t slot, const OnlineRecord& record);

  rt::Stream& stream_;
  rt::StreamOwner copies_;
  DeviceScratch records_;
  Pinned pinned_;                 // one record
  std::vector<std::size_t> free_;  // slots, the next one last
  std::vector<bool> was_used_;     // steps that read a slot may still be in flight
};

}  // namespace leq::LEQ_GPU

// Moving scales of act online, whose state is on the device: a table of records, and slots that
// connect each used record to its OnlineScale on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/host/memory.h"
#include "cuda/kernels/rows/online.h"

namespace leq::LEQ_GPU {

class DeviceScales {
 public:
  // `stream` runs the steps. Records are copied on another stream, so that a scale can also be
  // added while a step is being recorded.
  DeviceScales(int device, rt::Stream& stream);

  // Returns the device record of a scale. The first call copies the scale's state to the record.
  // Throws Error if there are too many scales.
  OnlineRecord* of(OnlineScale& scale);

 private:
  class Slot;

  OnlineRecord* record(std::size_t slot) const;
  void read(std::size_t slot, OnlineRecord& record);
  void write(std::size_t slot, const OnlineRecord& record);

  rt::Stream& stream_;
  rt::StreamOwner copies_;
  DeviceScratch records_;
  Pinned landing_;                 // pinned memory for one record
  std::vector<std::size_t> free_;  // stack of free slots
  std::vector<bool> was_used_;     // by slot; steps in flight may still use a slot
};

}  // namespace leq::LEQ_GPU

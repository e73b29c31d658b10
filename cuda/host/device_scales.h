// Moving scales of act online whose state lies on the device: a table of records, and the slot that
// ties one of them to its OnlineScale.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/host/memory.h"
#include "cuda/kernels/rows/online.h"

namespace leq::LEQ_GPU {

class DeviceScales {
 public:
  // `stream` carries the steps; records come and go by a stream of their own, so that a scale may
  // be taken in while steps are being recorded.
  DeviceScales(int device, rt::Stream& stream);

  // The record of a scale, which hands its state over at first. Throws Error where there are too
  // many.
  OnlineRecord* of(OnlineScale& scale);

 private:
  class Slot;

  OnlineRecord* record(std::size_t slot) const;
  void read(std::size_t slot, OnlineRecord& record);
  void write(std::size_t slot, const OnlineRecord& record);

  rt::Stream& stream_;
  rt::StreamOwner copies_;
  DeviceScratch records_;
  Pinned landing_;                 // one record
  std::vector<std::size_t> free_;  // slots, the next one last
  std::vector<bool> was_used_;     // steps that read a slot may still be on their way
};

}  // namespace leq::LEQ_GPU

// What the reader of a block wants of its rows, beside their f32 values: codes with scales, or
// terms.
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/rows.h"
#include "cuda/host/device_memory.h"
#include "cuda/host/device_scales.h"
#include "cuda/host/faults.h"
#include "cuda/host/part_events.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

class RowFinish {
 public:
  RowFinish(int device, rt::Stream& stream, GpuMemory& memory, Faults& faults, PartEvents& clock);

  // Who writes terms and who reads them agree by the number of tokens.
  TermOrder order_of(std::int64_t tokens) const;
  // One scale for all rows of a step: they are finished before it is known. A single row is a step
  // that its kernel carries out.
  static bool is_long_step(const Rows& out, std::int64_t tokens) {
    return has_moving_scale(out.format.act) && tokens > 1;
  }
  // What a kernel that finishes rows of `target` does with them.
  Quantize quantize_as(const RowsFor& target, std::int64_t tokens, std::string_view site);
  // Where a kernel can make the codes of its outputs: whether the reader wants such.
  static bool takes_codes(const RowsFor& target) { return target.rows.format.act == ActKind::g128; }
  OutputCodes codes_of_outputs(const RowsFor& target, std::int64_t tokens, std::string_view site);
  unsigned* tickets() const { return reinterpret_cast<unsigned*>(tickets_.data()); }

  // Rows whose f32 values are there: smoothed, then codes or terms as their reader wants them.
  void finish(const RowsFor& target, std::int64_t tokens, std::string_view site);
  // The same of a long step, smoothed already.
  void quantize_step(const RowsFor& target, std::int64_t tokens, std::string_view site);

 private:
  rt::Stream& stream_;
  GpuMemory& memory_;
  Faults& faults_;
  PartEvents& clock_;
  DeviceScratch tickets_;  // OutputCodes
  DeviceScales scales_;
  bool wgmma_adds_as_mma_;
};

}  // namespace leq::LEQ_GPU

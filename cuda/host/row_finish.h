// Converts rows with f32 values to the format of their reader: codes with scales, or
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

  // The order of terms for a number of tokens, which writers and readers of terms both use.
  TermOrder order_of(std::int64_t tokens) const;
  // True for several rows with one common moving scale, which must all be finished before the scale
  // is known. For a single row, the row's kernel computes the scale.
  static bool is_long_step(const Rows& out, std::int64_t tokens) {
    return has_moving_scale(out.format.act) && tokens > 1;
  }
  // The quantization that a kernel applies to the rows of `target` which it computes.
  Quantize quantize_as(const RowsFor& target, std::int64_t tokens, std::string_view site);
  // Whether the reader needs codes that a kernel can compute from its own outputs.
  static bool takes_codes(const RowsFor& target) { return target.rows.format.act == ActKind::g128; }
  OutputCodes codes_of_outputs(const RowsFor& target, std::int64_t tokens, std::string_view site);
  unsigned* tickets() const { return reinterpret_cast<unsigned*>(tickets_.data()); }

  // Finishes rows whose f32 values are stored: applies smoothing, then makes codes or terms.
  void finish(const RowsFor& target, std::int64_t tokens, std::string_view site);
  // The same for a long step whose rows are already smoothed.
  void quantize_step(const RowsFor& target, std::int64_t tokens, std::string_view site);

 private:
  rt::Stream& stream_;
  GpuMemory& memory_;
  Faults& faults_;
  PartEvents& clock_;
  DeviceScratch tickets_;  // for OutputCodes
  DeviceScales scales_;
  bool wgmma_adds_as_mma_;
};

}  // namespace leq::LEQ_GPU

// Converts rows of f32 values to the format of the operation that reads them: codes with scales, or
// terms (f16 or bf16 parts).
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

  // Returns true if several rows share a moving scale, so that all rows must be finished before the
  // scale is known. The scale of a single row is computed by the kernel that computes the row.
  static bool is_long_step(const Rows& out, std::int64_t tokens) {
    return has_moving_scale(out.format.act) && tokens > 1;
  }
  // Returns how a kernel must quantize the rows of `target` that it computes.
  Quantize quantize_as(const RowsFor& target, std::string_view site);
  // Returns the codes that a kernel computes from its own outputs, if the reader needs such codes.
  OutputCodes codes_of_outputs(const RowsFor& target, std::string_view site);
  unsigned* tickets() const { return reinterpret_cast<unsigned*>(tickets_.data()); }

  // Whether rows whose f32 values are stored need more.
  static bool finishes(const RowsFor& target) {
    const RowsFormat& format = target.rows.format;
    return is_coded(format.act) || format.terms > 0 || target.consumer.inv_smooth != nullptr;
  }
  // Finishes rows whose f32 values are stored: applies smoothing, then makes codes or terms.
  void finish(const RowsFor& target, std::int64_t tokens, std::string_view site);
  // Like finish(), for rows of a long step (is_long_step) that are already smoothed.
  void quantize_step(const RowsFor& target, std::int64_t tokens, std::string_view site);

 private:
  rt::Stream& stream_;
  GpuMemory& memory_;
  Faults& faults_;
  PartEvents& clock_;
  DeviceScratch tickets_;  // for OutputCodes
  DeviceScales scales_;
};

}  // namespace leq::LEQ_GPU

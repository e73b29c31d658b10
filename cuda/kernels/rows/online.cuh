// A moving scale within a block. Its state is copied to shared memory, where one thread executes
// exactly the steps of backend/online_scale.h.
#pragma once

#include "cuda/kernels/rows/online.h"
#include "cuda/kernels/rows/quantize.cuh"
#include "cuda/kernels/rows/terms.cuh"

namespace leq::LEQ_GPU {

// Copies single bytes, so that no object is accessed through another type.
__device__ __forceinline__ void copy_record(void* to, const void* from) {
  for (unsigned i = threadIdx.x; i < sizeof(OnlineRecord); i += blockDim.x) {
    static_cast<unsigned char*>(to)[i] = static_cast<const unsigned char*>(from)[i];
  }
}

struct RecordBytes {
  alignas(OnlineRecord) unsigned char bytes[sizeof(OnlineRecord)];
};

// A step of the moving scale within a block. `record` is the block's own copy of the state.
struct OnlineStep {
  OnlineRecord* record;
  float range;
  bool dynamic;  // true: per-row scales; the record is not updated
};
__device__ __forceinline__ OnlineStep begin_online(const OnlineRecord* online, float largest) {
  LEQ_SHARED(RecordBytes, copy);
  LEQ_SHARED(float, range);
  copy_record(copy.bytes, online);
  __syncthreads();
  auto* record = reinterpret_cast<OnlineRecord*>(copy.bytes);
  const bool dynamic = record->state.counters.dynamic;
  if (threadIdx.x == 0 && !dynamic) range = begin_step(record->state, record->options, largest);
  __syncthreads();
  return {record, dynamic ? 0.0f : range, dynamic};
}
// Called by all threads, but only thread 0 needs a valid `clipped`.
__device__ __forceinline__ void end_online(OnlineRecord* online, const OnlineStep& step,
                                           unsigned long long clipped, std::int64_t values) {
  if (step.dynamic) return;
  if (threadIdx.x == 0) {
    end_step(step.record->state, step.record->options, clipped, static_cast<std::uint64_t>(values));
  }
  __syncthreads();
  copy_record(online, step.record);
}

__device__ __forceinline__ bool is_fault_free(const Fault& fault) {
  return *fault.first == kNoFault;
}

__device__ __forceinline__ int count_above(const float* row, std::int64_t width, float range) {
  int above = 0;
  for (std::int64_t k = threadIdx.x; k < width; k += blockDim.x) above += fabsf(row[k]) > range;
  return block_sum(above);
}

// Writes the row's codes with the step's scale; returns the number of values out of its range.
__device__ __forceinline__ int quantize_in_step(const float* row, std::int64_t token,
                                                std::int64_t width, const Quantize& q,
                                                const OnlineStep& step, float row_largest) {
  Quantize known = q;
  known.scale = step.dynamic ? 0.0f : step.range / 127.0f;
  known.inverse = step.dynamic ? 0.0f : 127.0f / step.range;
  quantize_row(row, token, width, known);
  return !step.dynamic && row_largest > step.range ? count_above(row, width, step.range) : 0;
}

// A step of one row; called by the block that finished the row.
__device__ __forceinline__ void quantize_online(const float* row, std::int64_t width,
                                                const Quantize& q) {
  const bool counts = is_fault_free(q.fault);  // read before any thread can report a fault
  const unsigned bits = row_absmax(row, width);
  if (bits >= 0x7f800000u) {
    if (threadIdx.x == 0) report_row(q.fault, 0);
    return;
  }
  const float largest = __uint_as_float(bits);
  const OnlineStep step = begin_online(q.online, largest);
  const int clipped = quantize_in_step(row, 0, width, q, step, largest);
  if (counts) end_online(q.online, step, static_cast<unsigned long long>(clipped), width);
}

// Encodes a finished row: as terms, or as codes with its online scale or another scale.
__device__ __forceinline__ void finish_row(const float* row, std::int64_t token, std::int64_t width,
                                           const Quantize& q) {
  if (q.terms.terms != nullptr) return cut_row(row, token, width, q.terms);
  if (q.out.codes == nullptr) return;
  if (q.online != nullptr) {
    quantize_online(row, width, q);
  } else {
    quantize_row(row, token, width, q);
  }
}

}  // namespace leq::LEQ_GPU

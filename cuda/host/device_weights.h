// Weights in device memory: conversion from the file's panels to the device layout of layout.h, and
// kernel arguments. A WeightView of a device weight points to device memory; its sums are null.
#pragma once

#include "backend/rows.h"
#include "cuda/host/uploader.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/matmul/super.h"
#include "tensor/weight_layout.h"

namespace leq::LEQ_GPU {

// Copies `weight` from the host to `to` (gpu::weight_bytes, zeroed) and converts its layout. This
// precedes later work of the stream, and the host's bytes have been read when it returns.
WeightView upload_weight(const WeightView& weight, std::byte* to, Uploader& uploader,
                         rt::Stream& stream);

// Kernel arguments for a weight on the device.
FloatWeight float_weight(const WeightView& weight);
CodeWeight code_weight(const WeightView& weight);
SuperWeight super_weight(const WeightView& weight);

// store: x[t] = scale * row ids[t] of the table; add: x[t] += that row. `drawn`: see
// EmbedArguments.
enum class Gather : std::uint8_t { store, add };
void gather_table(const WeightView& table, const std::int32_t* ids, const std::int32_t* drawn,
                  std::size_t count, Rows& x, Gather gather, float scale, rt::Stream& stream);

}  // namespace leq::LEQ_GPU

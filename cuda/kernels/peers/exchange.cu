#include "cuda/intrinsics/run.h"
#include "cuda/kernels/peers/exchange.cuh"

namespace leq::LEQ_GPU {

namespace {

// Without a minimum number of blocks, ptxas would use at most 40 registers, and would spill.
__global__ void __launch_bounds__(kExchangeThreads, 2)
    pack_rows(const LEQ_GRID_CONSTANT ExchangeArguments a) {
  LEQ_BOUNDS(kExchangeThreads);
  std::byte* const slot = a.windows[a.rank] + kSlotsAt;
  for (int p = 0; p < a.plane_count; ++p) {
    const ExchangePlane& plane = a.planes[p];
    each_piece(a, plane, a.rank,
               [&](std::int64_t row, std::int64_t at, std::int64_t bytes, std::int64_t here) {
                 move_piece(
                     slot + here, plane.own + row * plane.own_stride + at, bytes,
                     [](const auto* from) { return *from; },
                     [](auto* to, const auto& value) { *to = value; });
               });
  }
}

__global__ void __launch_bounds__(kExchangeThreads, 2)
    unpack_rows(const LEQ_GRID_CONSTANT ExchangeArguments a) {
  LEQ_BOUNDS(kExchangeThreads);
  take_parts(a, kSlotsAt);
}

}  // namespace

void launch_exchange(const ExchangeArguments& a, rt::Stream& stream) {
  rt::run(stream, {"exchange_rows", rt::grid(a.blocks), kExchangeThreads, 0, rt::Start::early},
          exchange_rows<CountedExchange>, a);
}

void launch_pack(const ExchangeArguments& a, rt::Stream& stream) {
  rt::run(stream, {"pack_rows", rt::grid(a.blocks), kExchangeThreads}, pack_rows, a);
}

void launch_unpack(const ExchangeArguments& a, rt::Stream& stream) {
  rt::run(stream, {"unpack_rows", rt::grid(a.blocks), kExchangeThreads}, unpack_rows, a);
}

}  // namespace leq::LEQ_GPU

// Exchange of rows between ranks on GPUs with peer access: each pushes its parts of rows to its
// peers, waits for theirs, and copies them to their destination. One launch, whose sequence number
// among the peers is counted in device memory, so that a recorded launch can be replayed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/layout/exchange_window.h"
#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

using namespace gpu;

// Host memory that records why exchanges end: `ended` is written by the host, the others by a
// kernel whose wait timed out.
struct ExchangeEnd {
  std::uint32_t ended = 0;
  std::uint32_t lost = 0;  // 1 + the rank that timed out,
  std::uint32_t site = 0;  // at this exchange
};

// One plane of rows, with all parts given in bytes of a row.
struct ExchangePlane {
  const std::byte* own = nullptr;  // this rank's part of the first row
  std::int64_t own_stride = 0;
  std::byte* all = nullptr;  // whole rows; null: not received here
  std::int64_t stride = 0;
  std::uint32_t first[kMostPeers] = {};  // of each rank's part in a row
  std::uint32_t bytes[kMostPeers] = {};
  std::uint32_t at[kMostPeers] = {};  // of its parts of all rows in a slot
};

struct ExchangeArguments {
  ExchangePlane planes[kExchangePlanes];
  int plane_count = 0;
  std::byte* windows[kMostPeers] = {};  // exchange_window.h, [ranks]
  int rank = 0, ranks = 0;
  int blocks = 0;  // the same on all ranks
  std::int64_t rows = 0, slot_bytes = 0;
  bool all_receive = true;  // else rank 0 alone; all wait for all anyway
  std::uint32_t site = 0;   // for ExchangeEnd
  ExchangeEnd* end = nullptr;
  long long timeout = 0;  // ticks of clock64
};
void launch_exchange(const ExchangeArguments& a, rt::Stream& stream);
// For transfers by other means: packs this rank's parts of rows into the first slot of its own
// window, and unpacks the others' parts from it.
void launch_pack(const ExchangeArguments& a, rt::Stream& stream);
void launch_unpack(const ExchangeArguments& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU

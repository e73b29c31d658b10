// Exchange of rows between ranks on GPUs with peer access: each rank pushes its parts of rows to
// its peers, waits for their parts, and copies them to their destination. It is one launch, whose
// sequence number is counted in device memory, so that a recorded launch can be replayed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/layout/exchange_window.h"
#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

using namespace gpu;

// The reasons why exchanges end, in host memory. The host writes `ended`; a kernel whose wait timed
// out writes the other fields.
struct ExchangeEnd {
  std::uint32_t ended = 0;
  std::uint32_t lost = 0;  // 1 + the rank that did not arrive in time
  std::uint32_t site = 0;  // the exchange in which the wait timed out
};

// One array of rows; sizes and offsets of parts are in bytes of a row.
struct ExchangePlane {
  const std::byte* own = nullptr;  // this rank's part of row 0
  std::int64_t own_stride = 0;
  std::byte* all = nullptr;  // complete rows; null if this rank does not receive
  std::int64_t stride = 0;
  std::uint32_t first[kMaxPeers] = {};  // offset of each rank's part in a row
  std::uint32_t bytes[kMaxPeers] = {};
  std::uint32_t at[kMaxPeers] = {};  // offset in a slot of each rank's parts of all rows
};

struct ExchangeArguments {
  ExchangePlane planes[kExchangePlanes];
  int plane_count = 0;
  std::byte* windows[kMaxPeers] = {};  // exchange_window.h; one per rank
  int rank = 0, ranks = 0;
  int blocks = 0;  // the same on all ranks
  std::int64_t rows = 0, slot_bytes = 0;
  bool all_receive = true;  // false: only rank 0 receives; each rank waits anyway
  std::uint32_t site = 0;   // reported in ExchangeEnd
  ExchangeEnd* end = nullptr;
  long long timeout = 0;  // time limit of a wait, in ticks of clock64
};
void launch_exchange(const ExchangeArguments& a, rt::Stream& stream);
// For transfers by other means: launch_pack packs this rank's parts of rows into the first slot of
// its own window, and launch_unpack unpacks the parts of the other ranks from this slot.
void launch_pack(const ExchangeArguments& a, rt::Stream& stream);
void launch_unpack(const ExchangeArguments& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU

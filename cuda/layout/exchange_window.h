// The memory of a rank to which its peers push their parts of rows, with its counters:
//   u32 epoch: number of exchanges; u32 ticket of the blocks of one exchange
//   u32 flags [kMaxPeers][kExchangeBlocks]: the last exchange that a block of a peer has pushed
//   2 slots, used in turn: for each plane and rank its parts of the rows, padded to 16 bytes
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/layout/layout.h"

namespace leq::gpu {

inline constexpr int kMaxPeers = 16;        // number of ranks, including this one
inline constexpr int kExchangeBlocks = 16;  // blocks of an exchange, all resident on any GPU
inline constexpr int kExchangePlanes = 3;   // codes, scales, sums
inline constexpr std::int64_t kPushBytes = 16;

inline constexpr std::size_t kEpochAt = 0, kTicketAt = 4, kFlagsAt = kBlockUnit;
inline constexpr std::size_t kSlotsAt =
    kFlagsAt + kMaxPeers * kExchangeBlocks * sizeof(std::uint32_t);
inline constexpr std::size_t kMaxSlotBytes = std::size_t{4} << 20;

// Returns the window size for blocks of `rows` rows of at most row_bytes. Blocks that are larger
// than a slot take several exchanges of whole rows.
constexpr std::size_t exchange_bytes(std::int64_t rows, std::int64_t row_bytes) {
  // Each rank's part of each plane of a row may be padded.
  const auto row = static_cast<std::size_t>(round_up_to(row_bytes, kPushBytes)) +
                   std::size_t{kExchangePlanes} * kMaxPeers * kPushBytes;
  const std::size_t slot =
      std::max(row, std::min(static_cast<std::size_t>(rows) * row, kMaxSlotBytes));
  return kSlotsAt + 2 * (slot + kBlockUnit - 1) / kBlockUnit * kBlockUnit;
}
// Returns the slot size of a window of `window_bytes` bytes.
constexpr std::size_t slot_bytes_of(std::size_t window_bytes) {
  return (window_bytes - kSlotsAt) / 2 / kPushBytes * kPushBytes;
}

}  // namespace leq::gpu

// The kernel that exchanges rows among peers. Invariant: a slot is written again two exchanges
// later, after its writer has read this rank's flag of the exchange between, and this rank sets
// that flag after its copies out of the slot (same stream). All blocks of a grid must be resident
// at the same time, because otherwise a block could wait for one that cannot be scheduled.
#pragma once

#include "cuda/intrinsics/last_block.cuh"
#include "cuda/intrinsics/peers.h"
#include "cuda/intrinsics/ptx.h"
#include "cuda/kernels/peers/exchange.h"

namespace leq::LEQ_GPU {

inline constexpr int kExchangeThreads = 256;
inline constexpr unsigned kNapNanoseconds = 100;
// A read of host memory takes longer than most waits.
inline constexpr int kPollsPerLookAtHost = 256;

// The protocol by which ranks signal arrival. Tests replace it to inject bugs.
struct CountedExchange {
  // Called after the block's pushes and before it sets its flags.
  static __device__ __forceinline__ void publish() { __threadfence_system(); }
  // Returns whether the peer reached the exchange that follows `epoch` exchanges, or a later one.
  static __device__ __forceinline__ bool has_arrived(std::uint32_t flag, std::uint32_t epoch) {
    return static_cast<std::int32_t>(flag - (epoch + 1)) >= 0;
  }
  // Called by the last block of the grid.
  static __device__ __forceinline__ void count(std::uint32_t* epoch) { ++*epoch; }
};

// Moves up to 16 bytes by store(to, load(from)), in the widest units to which both are aligned.
template <class Load, class Store>
__device__ __forceinline__ void move_piece(std::byte* to, const std::byte* from, std::int64_t bytes,
                                           Load load, Store store) {
  const auto both = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if (bytes == kPushBytes && both % kPushBytes == 0) {
    return store(reinterpret_cast<uint4*>(to), load(reinterpret_cast<const uint4*>(from)));
  }
  std::int64_t i = 0;
  for (; both % 4 == 0 && i + 4 <= bytes; i += 4) {
    store(reinterpret_cast<unsigned*>(to + i), load(reinterpret_cast<const unsigned*>(from + i)));
  }
  for (; i < bytes; ++i) {
    store(reinterpret_cast<unsigned char*>(to + i),
          load(reinterpret_cast<const unsigned char*>(from + i)));
  }
}

// Calls piece(row, byte offset in the part, bytes, byte offset in the slot) for this block's share
// of the pieces of a rank's parts. The share is the same on every rank.
template <class Piece>
__device__ __forceinline__ void each_piece(const ExchangeArguments& a, const ExchangePlane& plane,
                                           int rank, Piece piece) {
  const std::int64_t bytes = plane.bytes[rank], in_row = (bytes + kPushBytes - 1) / kPushBytes;
  const std::int64_t step = std::int64_t{kExchangeThreads} * a.blocks;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kExchangeThreads + threadIdx.x;
       i < a.rows * in_row; i += step) {
    const std::int64_t row = i / in_row, at = i % in_row * kPushBytes;
    piece(row, at, min(kPushBytes, bytes - at), plane.at[rank] + i * kPushBytes);
  }
}

__device__ __forceinline__ std::uint32_t* flag_of(std::byte* window, int rank) {
  return reinterpret_cast<std::uint32_t*>(window + kFlagsAt) + rank * kExchangeBlocks + blockIdx.x;
}

__device__ __forceinline__ bool has_ended(const ExchangeEnd* end) {
  return look(&end->ended) != 0 || look(&end->lost) != 0;
}

__device__ __forceinline__ void push_parts(const ExchangeArguments& a, std::size_t slot_at) {
  for (int peer = 0; peer < a.ranks; ++peer) {
    if (peer == a.rank || (!a.all_receive && peer != 0)) continue;
    std::byte* const slot = a.windows[peer] + slot_at;
    for (int p = 0; p < a.plane_count; ++p) {
      const ExchangePlane& plane = a.planes[p];
      each_piece(a, plane, a.rank,
                 [&](std::int64_t row, std::int64_t at, std::int64_t bytes, std::int64_t there) {
                   move_piece(
                       slot + there, plane.own + row * plane.own_stride + at, bytes,
                       [](const auto* from) { return *from; },
                       [](auto* to, const auto& value) { push(to, value); });
                 });
    }
  }
}

__device__ __forceinline__ void take_parts(const ExchangeArguments& a, std::size_t slot_at) {
  const std::byte* const slot = a.windows[a.rank] + slot_at;
  for (int p = 0; p < a.plane_count; ++p) {
    const ExchangePlane& plane = a.planes[p];
    if (plane.all == nullptr) continue;
    for (int peer = 0; peer < a.ranks; ++peer) {
      if (peer == a.rank) continue;
      std::byte* const part = plane.all + plane.first[peer];
      each_piece(a, plane, peer,
                 [&](std::int64_t row, std::int64_t at, std::int64_t bytes, std::int64_t here) {
                   move_piece(
                       part + row * plane.stride + at, slot + here, bytes,
                       [](const auto* from) { return read_pushed(from); },
                       [](auto* to, const auto& value) { *to = value; });
                 });
    }
  }
}

// Waits until the peer's block has pushed; returns false if the exchange ended or timed out.
template <class Protocol>
__device__ __forceinline__ bool wait_for_peer(const ExchangeArguments& a, int peer,
                                              std::uint32_t epoch) {
  const std::uint32_t* const flag = flag_of(a.windows[a.rank], peer);
  const long long start = clock64();
  for (int poll = 1; !Protocol::has_arrived(look(flag), epoch); ++poll) {
    const bool late = clock64() - start > a.timeout;
    if ((late || poll % kPollsPerLookAtHost == 0) && has_ended(a.end)) return false;
    if (late) {
      signal(&a.end->site, a.site);
      __threadfence_system();
      signal(&a.end->lost, static_cast<std::uint32_t>(peer) + 1);
      return false;
    }
    __nanosleep(kNapNanoseconds);
  }
  __threadfence_system();
  return true;
}

// Without a minimum number of blocks, ptxas would use at most 48 registers, and spill on sm_120.
template <class Protocol>
__global__ void __launch_bounds__(kExchangeThreads, 2)
    exchange_rows(const LEQ_GRID_CONSTANT ExchangeArguments a) {
  LEQ_BOUNDS(kExchangeThreads);
  LEQ_SHARED(bool, arrived);
  ptx::wait_for_predecessor();
  std::byte* const window = a.windows[a.rank];
  auto* const counter = reinterpret_cast<std::uint32_t*>(window + kEpochAt);
  const std::uint32_t epoch = look(counter);
  const std::size_t slot_at = kSlotsAt + (epoch % 2) * static_cast<std::size_t>(a.slot_bytes);
  push_parts(a, slot_at);
  if (threadIdx.x == 0) arrived = true;
  __syncthreads();
  if (threadIdx.x == 0) {
    Protocol::publish();
    for (int peer = 0; peer < a.ranks; ++peer) {
      if (peer != a.rank) signal(flag_of(a.windows[peer], a.rank), epoch + 1);
    }
  }
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < a.ranks && peer != a.rank && !wait_for_peer<Protocol>(a, peer, epoch)) {
    arrived = false;
  }
  __syncthreads();
  if (arrived) take_parts(a, slot_at);
  auto* const ticket = reinterpret_cast<unsigned*>(window + kTicketAt);
  if (is_last_block(ticket, gridDim.x) && threadIdx.x == 0) Protocol::count(counter);
}

}  // namespace leq::LEQ_GPU

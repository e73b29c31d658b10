// The few calls of NCCL that ranks on GPUs need, found in NVIDIA's library when they are first
// wanted. The declarations are our own, of its published binary interface: names, values and the
// beginning of its configuration, which later versions only add to.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <string_view>

namespace leq {

struct NcclId {
  std::array<char, 128> bytes;  // the leader's becomes every rank's
};

// As versions from 2.18 on begin it; INT_MIN and null: as the library likes.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN;
  int cluster_size = INT_MIN;
  int least_blocks = INT_MIN, most_blocks = INT_MIN;
  const char* network = nullptr;
  int shares_split = INT_MIN;
};

using NcclComm = void*;
using NcclStream = void*;  // cudaStream_t

// Results.
inline constexpr int kNcclSuccess = 0, kNcclInProgress = 7;
// Type of what is sent: bytes.
inline constexpr int kNcclBytes = 1;

struct NcclCalls {
  int (*version)(int* version) = nullptr;  // 22304 for 2.23.4
  int (*make_id)(NcclId* id) = nullptr;
  int (*join)(NcclComm* comm, int ranks, NcclId id, int rank, NcclConfig* config) = nullptr;
  int (*begin_group)() = nullptr;
  int (*end_group)() = nullptr;
  int (*send)(const void* from, std::size_t count, int type, int peer, NcclComm comm,
              NcclStream stream) = nullptr;
  int (*receive)(void* to, std::size_t count, int type, int peer, NcclComm comm,
                 NcclStream stream) = nullptr;
  int (*state)(NcclComm comm,
               int* result) = nullptr;    // asynchronous errors of earlier calls, by the host
  int (*abort)(NcclComm comm) = nullptr;  // by any thread; ends its kernels
  int (*leave)(NcclComm comm) = nullptr;
  const char* (*result_text)(int result) = nullptr;
  const char* (*last_error)(NcclComm comm) = nullptr;
};

// Of libnccl.so.2, or the library that LEQ_NCCL names. Throws Error with the system's words where
// it is not there, is none or is older than 2.18.
const NcclCalls& nccl_calls();
// Of another place, found anew.
NcclCalls find_nccl(const char* library);

}  // namespace leq

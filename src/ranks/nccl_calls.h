// The NCCL calls that ranks on GPUs need, loaded from NVIDIA's library on first use. Declarations
// are written here for its published ABI: names, values and the first members of its configuration,
// to which later versions only append.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <string_view>

namespace leq {

struct NcclId {
  std::array<char, 128> bytes;  // the leader's id, which all ranks use
};

// Layout since version 2.18. INT_MIN and null select the library's defaults.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN;
  int cluster_size = INT_MIN;
  int min_blocks = INT_MIN, max_blocks = INT_MIN;
  const char* network = nullptr;
  int shares_split = INT_MIN;
};

using NcclComm = void*;
using NcclStream = void*;  // cudaStream_t

// Result codes of NCCL.
inline constexpr int kNcclSuccess = 0, kNcclInProgress = 7;
// NCCL's data type for bytes.
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
               int* result) = nullptr;    // state of earlier asynchronous calls
  int (*abort)(NcclComm comm) = nullptr;  // may be called by any thread; ends running kernels
  int (*leave)(NcclComm comm) = nullptr;
  const char* (*result_text)(int result) = nullptr;
  const char* (*last_error)(NcclComm comm) = nullptr;
};

// Functions of libnccl.so.2, or of the library in LEQ_NCCL. Throws Error with the dynamic loader's
// message if the library is missing, is not NCCL, or is older than 2.18.
const NcclCalls& nccl_calls();
// Loads the functions of another library.
NcclCalls find_nccl(const char* library);

}  // namespace leq

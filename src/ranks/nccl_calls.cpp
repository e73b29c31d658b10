#include "ranks/nccl_calls.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace leq {
namespace {

constexpr const char* kNcclLibrary = "libnccl.so.2";
constexpr int kOldestNccl = 21800;

template <class Function>
void find(void* library, const char* place, const char* name, Function*& function) {
  void* const symbol = ::dlsym(library, name);
  require(symbol != nullptr, ErrorKind::no_device, "NCCL: ", place, " has no ", name,
          "; install NCCL 2.18 or newer");
  std::memcpy(&function, &symbol, sizeof symbol);
}

}  // namespace

NcclCalls find_nccl(const char* place) {
  void* const library = ::dlopen(place, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    fail(ErrorKind::no_device, "NCCL: ", why == nullptr ? place : why,
         "; install it (libnccl2), name it in LEQ_NCCL, or use GPUs of one process that reach ",
         "each other's memory");
  }
  NcclCalls calls;
  find(library, place, "ncclGetVersion", calls.version);
  find(library, place, "ncclGetUniqueId", calls.make_id);
  find(library, place, "ncclCommInitRankConfig", calls.join);
  find(library, place, "ncclGroupStart", calls.begin_group);
  find(library, place, "ncclGroupEnd", calls.end_group);
  find(library, place, "ncclSend", calls.send);
  find(library, place, "ncclRecv", calls.receive);
  find(library, place, "ncclCommGetAsyncError", calls.state);
  find(library, place, "ncclCommAbort", calls.abort);
  find(library, place, "ncclCommDestroy", calls.leave);
  find(library, place, "ncclGetErrorString", calls.result_text);
  find(library, place, "ncclGetLastError", calls.last_error);
  int version = 0;
  require(calls.version(&version) == kNcclSuccess && version >= kOldestNccl, ErrorKind::no_device,
          "NCCL: ", place, ": version ", version, ", expected ", kOldestNccl, " (2.18) or newer");
  return calls;
}

const NcclCalls& nccl_calls() {
  static const NcclCalls calls = [] {
    const char* const named = std::getenv("LEQ_NCCL");
    return find_nccl(named != nullptr ? named : kNcclLibrary);
  }();
  return calls;
}

}  // namespace leq

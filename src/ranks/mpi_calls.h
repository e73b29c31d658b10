// The MPI calls that ranks need, as a table of plain functions. MPI is linked into a separate
// library, libleq-mpi.so, which is loaded only in processes that mpirun has started.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leq {

// begin_* functions are asynchronous; done() returns whether the last one has finished. No function
// throws; a negative result is an MPI error.
struct MpiCalls {
  static constexpr int kVersion = 2;

  int version;
  // serialized: 1 if all threads may call MPI, one at a time; 0 if only the starting thread may.
  int (*start)(int* rank, int* size, int* serialized);
  // Gathers each rank's `own` [counts[rank]] in `all` at offsets[rank], on all ranks or on rank 0.
  int (*begin_gather)(const void* own, void* all, const int* counts, const int* offsets,
                      int to_all);
  int (*begin_broadcast)(void* bytes, std::int64_t count);
  int (*begin_barrier)();
  int (*done)();  // 1: finished, 0: not yet
  // Error reports of ranks, which are independent of other calls. `send_error` copies `text`.
  int (*send_error)(const char* text, int length);
  int (*receive_error)(char* text, int capacity);  // length of a rank's error report; 0: none
  // beat sends a heartbeat to all others; beat_of returns a rank whose heartbeat arrived, or -1.
  int (*beat)();
  int (*beat_of)();
  void (*finish)();  // normal end; not called after an error
};

using MpiCallsFunction = const MpiCalls* (*)();
inline constexpr char kMpiCallsSymbol[] = "leq_mpi_calls";

}  // namespace leq

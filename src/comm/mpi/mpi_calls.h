// The MPI calls that ranks need, as a table of plain functions: MPI is linked into a separate
// library, libleq-mpi.so, which is loaded only in processes started by mpirun.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leq {

// Calls named begin_* are asynchronous; done() tells when the last one has finished. None throws; a
// result below 0 is an error of MPI.
struct MpiCalls {
  static constexpr int kVersion = 2;

  int version;
  // serialized: 1 where any thread may call MPI, one at a time; else only the thread that started it.
  int (*start)(int* rank, int* size, int* serialized);
  // Gathers each rank's `own` [counts[rank]] in `all` at offsets[rank], on every rank or on rank 0.
  int (*begin_gather)(const void* own, void* all, const int* counts, const int* offsets,
                      int to_all);
  int (*begin_broadcast)(void* bytes, std::int64_t count);
  int (*begin_barrier)();
  int (*done)();  // 1: done, 0: not yet
  // Errors of ranks, independent of other calls. `send_error` copies `text`.
  int (*send_error)(const char* text, int length);
  int (*receive_error)(char* text, int capacity);  // returns the length of a rank's error; 0: none
  // Sends a heartbeat to every other rank; beat_of: a rank whose heartbeat has arrived, -1: none.
  int (*beat)();
  int (*beat_of)();
  void (*finish)();  // the regular end; not called after an error
};

using MpiCallsFunction = const MpiCalls* (*)();
inline constexpr char kMpiCallsSymbol[] = "leq_mpi_calls";

}  // namespace leq

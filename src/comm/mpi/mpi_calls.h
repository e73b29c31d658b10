// The few calls of MPI that ranks need, as a table of plain functions: MPI is linked by a library
// of its own, libleq-mpi.so, which is loaded only where processes were started by mpirun.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leq {

// Calls begin; what was begun last is finished when done() says so. None throws; a result below 0
// is an error of MPI.
struct MpiCalls {
  static constexpr int kVersion = 2;

  int version;
  // in_turn: 1 where calls may come from several threads, one at a time; else from one alone.
  int (*start)(int* rank, int* size, int* in_turn);
  // Every rank's `own` [counts[rank]] to `all` at offsets[rank], of every rank or of rank 0 alone.
  int (*begin_gather)(const void* own, void* all, const int* counts, const int* offsets,
                      int to_all);
  int (*begin_broadcast)(void* bytes, std::int64_t count);
  int (*begin_barrier)();
  int (*done)();  // 1: done, 0: not yet
  // Errors of ranks, beside all else. `text` is kept by the callee.
  int (*tell)(const char* text, int length);
  int (*heard)(char* text, int capacity);  // the length of what a rank told; 0: nothing
  // A sign of life to every other rank; the rank of one that has come, -1: none.
  int (*beat)();
  int (*beat_of)();
  void (*finish)();  // the regular end; an error ends a process without it
};

using MpiCallsFunction = const MpiCalls* (*)();
inline constexpr char kMpiCallsSymbol[] = "leq_mpi_calls";

}  // namespace leq

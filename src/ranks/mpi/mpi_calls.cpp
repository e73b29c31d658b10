// libleq-mpi.so, the only file that calls MPI.
#include "ranks/mpi_calls.h"

#include <mpi.h>

#include <list>
#include <string>
#include <vector>

namespace {

constexpr int kErrorTag = 77, kBeatTag = 78;

struct SentError {
  std::string text;
  MPI_Request request = MPI_REQUEST_NULL;
};

MPI_Request running = MPI_REQUEST_NULL;
MPI_Comm ranks = MPI_COMM_NULL;       // for collective calls
MPI_Comm errors = MPI_COMM_NULL;      // for error reports
MPI_Comm heartbeats = MPI_COMM_NULL;  // for heartbeats
std::list<SentError> sent_errors;     // kept until the process ends
std::vector<MPI_Request> beats;       // [ranks] request of the last heartbeat
char no_bytes;

int result(int code) { return code == MPI_SUCCESS ? 0 : -1; }

int start(int* rank, int* size, int* serialized) {
  int level = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) return -1;
  *serialized = level >= MPI_THREAD_SERIALIZED ? 1 : 0;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (MPI_Comm_dup(MPI_COMM_WORLD, &ranks) != MPI_SUCCESS ||
      MPI_Comm_dup(MPI_COMM_WORLD, &errors) != MPI_SUCCESS ||
      MPI_Comm_dup(MPI_COMM_WORLD, &heartbeats) != MPI_SUCCESS) {
    return -1;
  }
  MPI_Comm_rank(ranks, rank);
  MPI_Comm_size(ranks, size);
  beats.assign(static_cast<std::size_t>(*size), MPI_REQUEST_NULL);
  return 0;
}

int begin_gather(const void* own, void* all, const int* counts, const int* offsets, int to_all) {
  int rank = 0;
  MPI_Comm_rank(ranks, &rank);
  if (to_all != 0) {
    return result(MPI_Iallgatherv(own, counts[rank], MPI_BYTE, all, counts, offsets, MPI_BYTE,
                                  ranks, &running));
  }
  return result(MPI_Igatherv(own, counts[rank], MPI_BYTE, all, counts, offsets, MPI_BYTE, 0, ranks,
                             &running));
}

int begin_broadcast(void* bytes, std::int64_t count) {
  return result(MPI_Ibcast(bytes, static_cast<int>(count), MPI_BYTE, 0, ranks, &running));
}

int begin_barrier() { return result(MPI_Ibarrier(ranks, &running)); }

int done() {
  int flag = 0;
  if (MPI_Test(&running, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) return -1;
  return flag;
}

int send_error(const char* text, int length) {
  int rank = 0, size = 0;
  MPI_Comm_rank(errors, &rank);
  MPI_Comm_size(errors, &size);
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    SentError& one = sent_errors.emplace_back();
    one.text.assign(text, static_cast<std::size_t>(length));
    if (MPI_Isend(one.text.data(), length, MPI_BYTE, other, kErrorTag, errors, &one.request) !=
        MPI_SUCCESS) {
      return -1;
    }
  }
  return 0;
}

int receive_error(char* text, int capacity) {
  for (SentError& one : sent_errors) {  // MPI sends data only during MPI calls
    int sent = 0;
    MPI_Test(&one.request, &sent, MPI_STATUS_IGNORE);
  }
  int there = 0, length = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, kErrorTag, errors, &there, &status) != MPI_SUCCESS) return -1;
  if (there == 0) return 0;
  MPI_Get_count(&status, MPI_BYTE, &length);
  std::vector<char> whole(static_cast<std::size_t>(length) + 1);
  if (MPI_Recv(whole.data(), length, MPI_BYTE, status.MPI_SOURCE, kErrorTag, errors,
               MPI_STATUS_IGNORE) != MPI_SUCCESS) {
    return -1;
  }
  const int kept = length < capacity ? length : capacity;
  for (int i = 0; i < kept; ++i) text[i] = whole[static_cast<std::size_t>(i)];
  return kept;
}

// Skips ranks that have not received the last heartbeat yet.
int beat() {
  int rank = 0;
  MPI_Comm_rank(heartbeats, &rank);
  for (std::size_t other = 0; other < beats.size(); ++other) {
    if (static_cast<int>(other) == rank) continue;
    int sent = 0;
    if (MPI_Test(&beats[other], &sent, MPI_STATUS_IGNORE) != MPI_SUCCESS) return -1;
    if (sent == 0) continue;
    if (MPI_Isend(&no_bytes, 0, MPI_BYTE, static_cast<int>(other), kBeatTag, heartbeats,
                  &beats[other]) != MPI_SUCCESS) {
      return -1;
    }
  }
  return 0;
}

int beat_of() {
  int there = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, kBeatTag, heartbeats, &there, &status) != MPI_SUCCESS ||
      there == 0) {
    return -1;
  }
  MPI_Recv(&no_bytes, 0, MPI_BYTE, status.MPI_SOURCE, kBeatTag, heartbeats, MPI_STATUS_IGNORE);
  return status.MPI_SOURCE;
}

void finish() { MPI_Finalize(); }

constexpr leq::MpiCalls kCalls = {
    leq::MpiCalls::kVersion, start, begin_gather, begin_broadcast, begin_barrier, done, send_error,
    receive_error,           beat,  beat_of,      finish};

}  // namespace

extern "C" __attribute__((visibility("default"))) const leq::MpiCalls* leq_mpi_calls() {
  return &kCalls;
}

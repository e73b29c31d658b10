// Ranks are workers, threads or processes, that compute one model together (tensor parallelism) and
// gather the rows that each has computed. Data are not reduced in transit: they arrive as sent.
//
// All ranks make the same calls in the same order. Rank 0 is the leader. A rank that fails calls
// abort(), which ends all waits and all later calls of other ranks with its error.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/slice.h"

namespace leq {

struct ByteRange {
  std::size_t first = 0, last = 0;  // [first, last)

  std::size_t count() const { return last - first; }
};

// A block of rows, each of which is divided into one part per rank.
struct SharedRows {
  std::int64_t rows = 0;
  std::span<const ByteRange> parts;  // [ranks] byte range of each part in a row; may be empty
  const std::byte* own = nullptr;    // this rank's part of the first row
  std::size_t own_stride = 0;        // bytes between this rank's parts of successive rows
  // Destination of whole rows on receivers; may overlap `own`.
  std::byte* all = nullptr;
  std::size_t stride = 0;
};

enum class Receivers : std::uint8_t { all, leader };

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  bool leads() const { return rank() == 0; }

  // Gathers the parts of all ranks, for all blocks, in `all` of every receiver, which contains its
  // own part already. Afterwards `own` may be overwritten. `site` names the call in errors.
  virtual void gather(std::span<const SharedRows> blocks, Receivers to, std::string_view site) = 0;
  // Copies the leader's bytes to every rank. Ranks wait for the leader without a time limit, the
  // leader waits for them with the usual limit.
  virtual void broadcast(std::vector<std::byte>& bytes, std::string_view site) = 0;
  virtual void barrier(std::string_view site) = 0;
  // Ends the waits and all later calls of all ranks with `error`. Only the first abort among all
  // ranks takes effect; returns that abort's error.
  virtual Error abort(const Error& error) noexcept = 0;

  // Waits for the gathers that a device executes asynchronously, and throws if any of these gathers
  // has failed.
  virtual void finish(std::string_view site) { static_cast<void>(site); }

  // Time limit for waiting for a rank, after which that rank counts as lost.
  virtual std::chrono::milliseconds timeout() const = 0;
  // Sets the function that is called on the thread of a rank that aborts, or at once if a rank has
  // aborted already; null removes it. For waits that abort() cannot end by itself.
  virtual void at_abort(const std::function<void()>& end) { static_cast<void>(end); }
  // Between enter() and leave(), other ranks of this process may access this rank's memory
  // (Membership). leave() returns when all ranks that have entered have called it.
  virtual void enter() {}
  virtual void leave() noexcept {}

  // Sets the model's current step, which errors name; 0: before the first step.
  void at_step(std::int64_t step) { step_ = step; }
  std::int64_t step() const { return step_; }

 private:
  std::int64_t step_ = 0;
};

// The error with its rank and step, for all ranks: "rank 1 of 4: step 17: layers.3.o, token 5 ...".
Error rank_error(const Communicator& ranks, const Error& error);

// The communicator of a single rank, whose calls return at once.
Communicator& one_rank();

// Division of work among ranks, and exchange of the results.

// Assigns pieces of work of these sizes to ranks: the largest first, each to the rank that has the
// least work so far. The result is the same on all ranks.
std::vector<int> divide_work(std::span<const std::int64_t> sizes, int ranks);

// The slice of `rank` out of `count` items, cut at multiples of `unit`. Empty for some ranks if
// there are fewer units than ranks. The leader's slice is never larger than the others'.
Slice even_share(std::int64_t count, std::int64_t unit, int rank, int ranks);
// This rank's slice of rows that are stored in panels.
Slice own_rows(const Communicator& ranks, std::int64_t rows, std::int64_t panel);

// All-gather: copies every rank's part of `all` to all others; its own part must be in `all`.
void gather_parts(Communicator& ranks, std::span<std::byte> all, std::span<const ByteRange> parts,
                  std::string_view site);

// Memory whose content is valid on one rank and is copied to all others.
struct OwnedRows {
  int owner = 0;
  std::byte* data = nullptr;  // address on this rank
  std::int64_t rows = 1;
  std::size_t bytes = 0;   // bytes per row
  std::size_t stride = 0;  // bytes between rows
};
void gather_owned(Communicator& ranks, std::span<const OwnedRows> blocks, std::string_view site);

// Byte ranges of all ranks' data in a concatenation in rank order. `own` is this rank's size.
std::vector<ByteRange> parts_of_sizes(Communicator& ranks, std::size_t own, std::string_view site);

// Gathers any number of bytes per rank, in rank order. Returns an empty list on non-receivers.
std::vector<std::vector<std::byte>> gather_bytes(Communicator& ranks,
                                                 const std::vector<std::byte>& own, Receivers to,
                                                 std::string_view site);

// Gathers the bytes of all ranks, of the sizes `bytes` [ranks], in the leader's `whole`, which is
// empty on other ranks; and distributes them again. `own` has the size of this rank.
void gather_to_leader(Communicator& ranks, std::span<const std::size_t> bytes,
                      std::span<const std::byte> own, std::span<std::byte> whole,
                      std::string_view site);
void scatter_from_leader(Communicator& ranks, std::span<const std::size_t> bytes,
                         std::span<const std::byte> whole, std::span<std::byte> own,
                         std::string_view site);

// All-gathers lists and concatenates them in rank order.
template <class Number>
std::vector<Number> join_lists(Communicator& ranks, std::vector<Number> own,
                               std::string_view site) {
  static_assert(std::is_trivially_copyable_v<Number>);
  if (ranks.size() == 1) return own;
  const std::vector<ByteRange> parts = parts_of_sizes(ranks, own.size() * sizeof(Number), site);
  std::vector<Number> all(parts.back().last / sizeof(Number));
  const auto first = parts[static_cast<std::size_t>(ranks.rank())].first / sizeof(Number);
  std::ranges::copy(own, all.begin() + static_cast<std::ptrdiff_t>(first));
  gather_parts(ranks, std::as_writable_bytes(std::span(all)), parts, site);
  return all;
}

// Runs work that contains collective calls. An error on one rank aborts all ranks, and the first
// error is thrown. An interruption affects only its own rank.
void together(Communicator& ranks, const std::function<void()>& work);

// Checks that all ranks start with equal facts: program, model, settings.
struct RankFact {
  std::string name;   // shown in errors: "the model file"
  std::string value;  // compared, and shown in errors
};

// Throws Error on every rank if a rank's facts differ from the leader's. The error names the rank,
// the first such fact, and both values. All ranks must pass the same names in the same order.
void require_agreement(Communicator& ranks, const std::vector<RankFact>& facts);

// A scope in which a rank may access other ranks' memory; its end waits for all ranks' ends.
class Membership {
 public:
  explicit Membership(Communicator& ranks) : ranks_(ranks) { ranks_.enter(); }
  ~Membership() {
    end_others();
    ranks_.leave();
  }
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // If an exception leaves the scope, aborts the other ranks, which would wait for this rank.
  void end_others() noexcept {
    if (std::uncaught_exceptions() <= errors_) return;
    ranks_.abort(rank_error(ranks_, Error("it has ended by an error", ErrorKind::interrupted)));
  }

 private:
  Communicator& ranks_;
  int errors_ = std::uncaught_exceptions();  // exceptions in flight at the start
};

// Ranks that are threads of one process and read each other's rows directly.
struct ThreadRankOptions {
  // Time limit for waiting for another rank, after which that rank counts as lost.
  std::chrono::milliseconds timeout{300'000};
  // Number of compute threads of all ranks together. If there are more threads than cores, a
  // waiting rank sleeps at once instead of spinning, so that others can use its core.
  int threads = 0;
};

class ThreadRanks {
 public:
  // Throws Error if `size` is below 1 or above kMaxRanks.
  ThreadRanks(int size, const ThreadRankOptions& options);
  ~ThreadRanks();

  static constexpr int kMaxRanks = 256;

  int size() const;
  // To be used only by the thread of that rank.
  Communicator& operator[](int rank);

 private:
  struct State;
  class Rank;
  std::unique_ptr<State> state_;
  std::vector<Rank> ranks_;
};

// Ranks that are processes on one or several machines, started by mpirun.

// Number of processes that mpirun has started, including this one; nullopt without
// mpirun.
std::optional<int> mpi_processes();
// Index of this process among those on its machine; 0 if mpirun does not set it.
int mpi_local_rank();

struct MpiRankOptions {
  // Time limit for waiting for another rank, after which that rank counts as lost.
  std::chrono::milliseconds timeout{300'000};
  // Time limit between heartbeats of a process, busy or not, after which the process counts as lost
  // because it is stopped or its machine is down.
  std::chrono::milliseconds heartbeat_timeout{10'000};
};

// Creates this process's rank. To be called once. Throws Error if this build has no MPI, or if the
// processes cannot be connected. The rank must be destroyed before the process ends.
std::unique_ptr<Communicator> make_mpi_rank(const MpiRankOptions& options);

}  // namespace leq

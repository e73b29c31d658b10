// Ranks: workers, threads or processes, that compute one model together (tensor parallelism) and
// gather the rows that each has finished. No data are summed in transit: they arrive as sent.
//
// All ranks make the same calls in the same order. Rank 0 is the leader. A rank that fails calls
// abort(): all waits of other ranks end with its error, as does every later call.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace leq {

struct ByteRange {
  std::size_t first = 0, last = 0;  // [first, last)

  std::size_t count() const { return last - first; }
};

// A block of rows, each divided into one part per rank.
struct SharedRows {
  std::int64_t rows = 0;
  std::span<const ByteRange> parts;  // [ranks] bytes of a row; a part may be empty
  const std::byte* own = nullptr;    // this rank's part of the first row
  std::size_t own_stride = 0;        // bytes between its parts of successive rows
  // Destination with whole rows on receivers; may contain `own`.
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

  // Gathers all ranks' parts of all blocks in `all` of every receiver; its own part is there
  // already. On return `own` may be overwritten. `site` names the call in errors.
  virtual void gather(std::span<const SharedRows> blocks, Receivers to, std::string_view site) = 0;
  // Copies the leader's bytes to every rank. Ranks wait for the leader without a time limit, the
  // leader for them with the usual one.
  virtual void broadcast(std::vector<std::byte>& bytes, std::string_view site) = 0;
  virtual void barrier(std::string_view site) = 0;
  // Ends all ranks' waits, and every later call, with `error`. Only the first abort of all ranks
  // takes effect; returns its error.
  virtual Error abort(const Error& error) noexcept = 0;

  // Waits for asynchronous gathers, which a device executes; throws where they
  // fail.
  virtual void finish(std::string_view site) { static_cast<void>(site); }

  // Time limit for waiting for a rank, after which it counts as lost.
  virtual std::chrono::milliseconds timeout() const = 0;
  // `end` is called when a rank aborts, on that rank's thread; at once where one already has. Null
  // removes it. For waits that abort() cannot end by itself.
  virtual void at_abort(const std::function<void()>& end) { static_cast<void>(end); }
  // Between enter() and leave() other ranks of this process may access this rank's memory
  // (membership.h). leave() returns when all ranks that entered have left.
  virtual void enter() {}
  virtual void leave() noexcept {}

  // The current step of the model, for errors; 0: before the first.
  void at_step(std::int64_t step) { step_ = step; }
  std::int64_t step() const { return step_; }

 private:
  std::int64_t step_ = 0;
};

// The error with its rank and step, for all ranks: "rank 1 of 4: step 17: layers.3.o, token 5 ...".
Error rank_error(const Communicator& ranks, const Error& error);

// The communicator of one rank: every call returns at once.
Communicator& one_rank();

}  // namespace leq

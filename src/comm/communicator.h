// Ranks are workers, threads or processes, that compute one model together (tensor parallelism) and
// gather the rows that each has computed. Data are not reduced in transit: they arrive as sent.
//
// All ranks make the same calls in the same order. Rank 0 is the leader. A rank that fails calls
// abort(), which ends all waits and all later calls of other ranks with its error.
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
  virtual std::chrono::milliseconds patience() const = 0;
  // Sets the function that is called on the thread of a rank that aborts, or at once if a rank has
  // aborted already; null removes it. For waits that abort() cannot end by itself.
  virtual void at_abort(const std::function<void()>& end) { static_cast<void>(end); }
  // Between enter() and leave(), other ranks of this process may access this rank's memory
  // (membership.h). leave() returns when all ranks that have entered have called it.
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

}  // namespace leq

// Ranks: several workers, threads or processes, that compute one model together and exchange the
// rows that each has finished. Nothing is ever summed on the way: what arrives is what was sent.
//
// All ranks make the same calls in the same order. Rank 0 is the leader. A rank that fails calls
// abort(): whatever the others wait for ends with its error, and so does every later call.
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

// One block of rows, each in as many parts as there are ranks.
struct SharedRows {
  std::int64_t rows = 0;
  std::span<const ByteRange> parts;  // [ranks] bytes of a row; a part may be empty
  const std::byte* own = nullptr;    // this rank's part of the first row
  std::size_t own_stride = 0;        // bytes to its part of the next
  // Whole rows, where they are received; may hold `own`.
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

  // The other ranks' parts of all blocks into `all` of every receiver; the own part is there
  // already. `own` may be overwritten when this returns. `site` names the call in errors.
  virtual void gather(std::span<const SharedRows> blocks, Receivers to, std::string_view site) = 0;
  // The leader's bytes become every rank's. The others wait for them for as long as it takes, the
  // leader for the others as for any call.
  virtual void broadcast(std::vector<std::byte>& bytes, std::string_view site) = 0;
  virtual void barrier(std::string_view site) = 0;
  // Ends the others' waiting, and every later call, with `error`. The first of all ranks' calls
  // counts; returns the error of that one.
  virtual Error abort(const Error& error) noexcept = 0;

  // Returns when asynchronous gathers have ended, those that a device carries
  // out, or throws where they cannot.
  virtual void finish(std::string_view site) { static_cast<void>(site); }

  // How long a rank is waited for until it is taken for lost.
  virtual std::chrono::milliseconds patience() const = 0;
  // `end` is called when a rank ends all, on that rank's thread; at once where one has. Null: no
  // longer. For what waits where abort() does not reach.
  virtual void at_abort(const std::function<void()>& end) { static_cast<void>(end); }
  // Between the two other ranks of this process may work on this one's memory (membership.h).
  // leave() returns when all that entered have left.
  virtual void enter() {}
  virtual void leave() noexcept {}

  // The step of the model at work, for errors; 0: none has begun.
  void at_step(std::int64_t step) { step_ = step; }
  std::int64_t step() const { return step_; }

 private:
  std::int64_t step_ = 0;
};

// The error as all ranks see it: "rank 1 of 4: step 17: layers.3.o, token 5 ...".
Error rank_error(const Communicator& ranks, const Error& error);

// The communicator of one rank: every call returns at once.
Communicator& one_rank();

}  // namespace leq

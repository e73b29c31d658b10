// One rank's time among ranks that work on each other's memory: it ends when all have ended theirs.
#pragma once

#include <exception>

#include "comm/communicator.h"

namespace leq {

class Membership {
 public:
  explicit Membership(Communicator& ranks) : ranks_(ranks) { ranks_.enter(); }
  ~Membership() {
    end_others();
    ranks_.leave();
  }
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Where an error ends this rank alone, the others would wait for it.
  void end_others() noexcept {
    if (std::uncaught_exceptions() <= errors_) return;
    ranks_.abort(rank_error(ranks_, Error("it has ended by an error", ErrorKind::interrupted)));
  }

 private:
  Communicator& ranks_;
  int errors_ = std::uncaught_exceptions();  // in flight when it began
};

}  // namespace leq

// A scope in which a rank may access other ranks' memory; its end waits for all ranks' ends.
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

  // If an exception leaves the scope, aborts the other ranks, which would wait for this rank.
  void end_others() noexcept {
    if (std::uncaught_exceptions() <= errors_) return;
    ranks_.abort(rank_error(ranks_, Error("it has ended by an error", ErrorKind::interrupted)));
  }

 private:
  Communicator& ranks_;
  int errors_ = std::uncaught_exceptions();  // exceptions in flight at the start
};

}  // namespace leq

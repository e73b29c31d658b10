// Tests ranks connected by NCCL with a test implementation of NCCL: which bytes are packed, sent
// and stored where. The real library is only used on machines with GPUs.
#include "cuda/host/nccl_ranks.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "../rows_on_device.h"
#include "base/error.h"
#include "tests/ranks/communicator_suite.h"

namespace leq::LEQ_GPU {
namespace {

// Sends and receives between the begin and the end of a thread's group are executed at the end.
struct Group;
struct Comm {
  Group& group;
  int rank;
};
struct Group {
  std::mutex lock;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> mail;  // (from, to) -> messages
  bool ended = false;
  std::deque<Comm> members;  // including members that have ended
};
struct Wanted {
  std::byte* at;
  std::size_t bytes;
  int peer;
  bool sends;
  Comm* comm;
  rt::Stream* stream;
};
thread_local std::vector<Wanted> wanted;
Group* group = nullptr;
bool joins_for_ever = false;

constexpr int kInvalidArgument = 4, kSystemError = 2;

int version(int* found) {
  *found = 22304;
  return kNcclSuccess;
}
int make_id(NcclId* id) {
  std::memset(id, 7, sizeof *id);
  return kNcclSuccess;
}
int join(NcclComm* comm, int, NcclId id, int rank, NcclConfig* config) {
  NcclId same;
  std::memset(&same, 7, sizeof same);
  const bool right = std::memcmp(&id, &same, sizeof id) == 0 && config->magic == 0xcafebeef &&
                     config->size == sizeof *config && config->blocking == 0;
  const std::lock_guard hold(group->lock);
  *comm = &group->members.emplace_back(Comm{*group, rank});
  return right ? kNcclInProgress : kInvalidArgument;
}
int begin_group() {
  wanted.clear();
  return kNcclSuccess;
}
int want(const void* at, std::size_t bytes, int type, int peer, NcclComm comm, NcclStream stream,
         bool sends) {
  if (type != kNcclBytes || bytes == 0) return kInvalidArgument;
  wanted.push_back({static_cast<std::byte*>(const_cast<void*>(at)), bytes, peer, sends,
                    static_cast<Comm*>(comm), static_cast<rt::Stream*>(stream)});
  return kNcclSuccess;
}
int send(const void* at, std::size_t bytes, int type, int peer, NcclComm comm, NcclStream stream) {
  return want(at, bytes, type, peer, comm, stream, true);
}
int receive(void* at, std::size_t bytes, int type, int peer, NcclComm comm, NcclStream stream) {
  return want(at, bytes, type, peer, comm, stream, false);
}
int end_group() {
  for (const Wanted& one : wanted) rt::synchronize(*one.stream);
  for (const Wanted& one : wanted) {
    if (!one.sends) continue;
    Group& all = one.comm->group;
    const std::lock_guard hold(all.lock);
    all.mail[{one.comm->rank, one.peer}].emplace_back(one.at, one.at + one.bytes);
    all.changed.notify_all();
  }
  for (const Wanted& one : wanted) {
    if (one.sends) continue;
    Group& all = one.comm->group;
    std::unique_lock hold(all.lock);
    auto& mail = all.mail[{one.peer, one.comm->rank}];
    all.changed.wait(hold, [&] { return all.ended || !mail.empty(); });
    if (mail.empty() || mail.front().size() != one.bytes) return kSystemError;
    std::memcpy(one.at, mail.front().data(), one.bytes);
    mail.pop_front();
  }
  return kNcclSuccess;
}
int state(NcclComm, int* result) {
  *result = joins_for_ever ? kNcclInProgress : kNcclSuccess;
  return kNcclSuccess;
}
int abort(NcclComm comm) {
  Group& all = static_cast<Comm*>(comm)->group;
  const std::lock_guard hold(all.lock);
  all.ended = true;
  all.changed.notify_all();
  return kNcclSuccess;
}
int leave(NcclComm) { return kNcclSuccess; }
const char* result_text(int result) { return result == kSystemError ? "a system error" : "wrong"; }
const char* last_error(NcclComm) { return "nothing more is known"; }

constexpr NcclCalls kCalls = {version, make_id, join,  begin_group, end_group,   send,
                              receive, state,   abort, leave,       result_text, last_error};

struct NcclRank {
  NcclRank(Communicator& ranks, std::size_t window_bytes)
      : stream(rt::make_stream(ranks.rank())),
        window(ranks.rank(), window_bytes),
        link(ranks, kCalls, *stream, {window.data(), window_bytes}) {}

  rt::StreamOwner stream;
  DeviceScratch window;
  NcclRanks link;
};

class NcclRanksOf : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    group = &group_;
    joins_for_ever = false;
  }
  Group group_;
};

TEST_P(NcclRanksOf, MeetTheContractOfCommunicators) {
  EXPECT_EQ(on_ranks(GetParam(), std::chrono::milliseconds(60'000),
                     [](Communicator& ranks) {
                       NcclRank rank(ranks, gpu::exchange_bytes(3, 64));
                       FromHost link(rank.link, ranks.rank(), *rank.stream);
                       test::check_communicator(link, 9);
                     }),
            "");
}

TEST_P(NcclRanksOf, NameTheCallThatTimesOut) {
  joins_for_ever = true;
  const std::string text =
      on_ranks(GetParam(), std::chrono::milliseconds(100),
               [](Communicator& ranks) { const NcclRank rank(ranks, gpu::exchange_bytes(3, 64)); });
  EXPECT_NE(text.find("waits in NCCL's start for the others' GPUs"), std::string::npos) << text;
}

TEST_P(NcclRanksOf, AllEndWithTheErrorOfOne) {
  const std::string text =
      on_ranks(GetParam(), std::chrono::milliseconds(60'000), [&](Communicator& ranks) {
        NcclRank rank(ranks, gpu::exchange_bytes(1, 64));
        if (ranks.rank() == GetParam() - 1) throw rank.link.abort(Error("enough"));
        const DeviceScratch rows(ranks.rank(), 64);
        const auto parts = test::uneven_parts(ranks.size(), 1, 16);
        const SharedRows block = {1, parts, rows.data(), 64, rows.data(), 64};
        for (int i = 0; i < 3; ++i) rank.link.gather({&block, 1}, Receivers::all, "layers.0.o");
        rank.link.barrier("the end of the step");
      });
  EXPECT_EQ(text, "enough");
}

INSTANTIATE_TEST_SUITE_P(Sizes, NcclRanksOf, testing::Values(2, 3, 5));

}  // namespace
}  // namespace leq::LEQ_GPU

// Runs the suite of all communicators in one of several processes, which mpi_ranks_test.cpp starts:
// mpi_suite | mpi_suite fail RANK | mpi_suite stay-away RANK | mpi_suite differ RANK | mpi_suite
// die RANK | mpi_suite kill RANK OPERATION | mpi_suite stop RANK OPERATION
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "ranks/communicator.h"
#include "ranks/communicator_suite.h"

namespace {

void run(leq::Communicator& ranks, const std::string& what, int bad) {
  leq::test::check_communicator(ranks, 40);
  const bool is_bad = ranks.rank() == bad;
  if (what == "fail" && is_bad) throw ranks.abort(rank_error(ranks, leq::Error("broken")));
  if (what == "stay-away" && is_bad) std::this_thread::sleep_for(std::chrono::seconds(4));
  if (what == "die" && is_bad) std::abort();
  ranks.barrier("the barrier before");
  leq::require_agreement(ranks,
                         {{"same", "1"}, {"context", what == "differ" && is_bad ? "9" : "8"}});
  ranks.barrier("the end of the test");
}

// Some operations succeed; during the last one, the bad rank is killed or stopped by a signal.
void run_without(leq::Communicator& ranks, int signal, int bad, const std::string& operation) {
  const std::string site = "the test's " + operation;
  std::vector<std::byte> bytes(4);
  const auto operate = [&] {
    if (operation == "gather") leq::gather_bytes(ranks, bytes, leq::Receivers::all, site);
    if (operation == "broadcast") ranks.broadcast(bytes, site);
    if (operation == "barrier") ranks.barrier(site);
    if (operation == "agreement") leq::require_agreement(ranks, {{"same", "1"}});
  };
  if (operation != "start") {
    leq::test::check_communicator(ranks, 5);
    operate();
  }
  ranks.at_step(7);
  if (ranks.rank() == bad) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the others have arrived by then
    ::raise(signal);
  }
  if (operation == "start") leq::test::check_communicator(ranks, 1);
  for (int round = 0; round < 5; ++round) operate();  // a broadcast's leader may run ahead
  ranks.barrier("the end of the test");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int bad = argc > 2 ? std::atoi(argv[2]) : -1;
  try {
    const auto timeout = std::chrono::milliseconds(what == "stay-away" ? 500 : 60'000);
    const auto ranks = leq::make_mpi_rank(
        {.timeout = timeout, .heartbeat_timeout = std::chrono::milliseconds(3'000)});
    try {
      if (argc > 3) {
        run_without(*ranks, what == "kill" ? SIGKILL : SIGSTOP, bad, argv[3]);
      } else {
        run(*ranks, what, bad);
      }
      std::printf("rank %d of %d is done\n", ranks->rank(), ranks->size());
    } catch (const std::exception& error) {
      std::printf("rank %d: %s\n", ranks->rank(), error.what());
      std::fflush(stdout);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the others report
      return 1;
    }
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}

// The suite of all communicators on one of several processes (mpi_ranks_test.cpp starts them):
// mpi_suite | mpi_suite fail RANK | mpi_suite stay-away RANK | mpi_suite differ RANK | mpi_suite
// die RANK
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include "comm/agreement.h"
#include "comm/communicator_suite.h"
#include "comm/mpi_ranks.h"

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

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int bad = argc > 2 ? std::atoi(argv[2]) : -1;
  try {
    const auto patience = std::chrono::milliseconds(what == "stay-away" ? 500 : 60'000);
    const auto ranks = leq::make_mpi_rank({.patience = patience});
    try {
      run(*ranks, what, bad);
      std::printf("rank %d of %d is done\n", ranks->rank(), ranks->size());
    } catch (const std::exception& error) {
      std::printf("rank %d: %s\n", ranks->rank(), error.what());
      std::fflush(stdout);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the others tell theirs
      return 1;
    }
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}

// Settings must be equal on all ranks: the first difference is an error on all ranks.
#include "ranks/communicator.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace leq {
namespace {

// The errors that require_agreement throws on three ranks; facts(rank) are the rank's settings.
std::vector<std::string> errors_of(const std::function<std::vector<RankFact>(int)>& facts) {
  ThreadRanks ranks(3, {});
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        require_agreement(ranks[rank], facts(rank));
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(Agreement, EqualFactsPass) {
  const auto errors = errors_of([](int) {
    return std::vector<RankFact>{{"version", "1"}, {"empty", ""}};
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(Agreement, TheFirstDifferenceIsNamedWithBothValues) {
  const auto errors = errors_of([](int rank) {
    const std::string value = rank == 2 ? "16" : "8";
    return std::vector<RankFact>{{"version", "1"}, {"context", value}, {"sequences", value}};
  });
  EXPECT_EQ(errors, std::vector<std::string>(3, "rank 2 of 3: context: 16, the leader has 8"));
}

TEST(Agreement, AnotherNumberOfFactsIsReportedAsAnotherProgram) {
  for (const std::size_t more : {0, 2}) {
    const auto errors = errors_of([&](int rank) {
      std::vector<RankFact> facts = {{"version", "1"}};
      if (rank == 1) facts.resize(more, {"x", "y"});
      return facts;
    });
    for (const auto& error : errors) {
      EXPECT_NE(error.find("rank 1 of 3: it is another program"), std::string::npos) << error;
    }
  }
}

}  // namespace
}  // namespace leq

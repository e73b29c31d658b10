// Ranks whose rows are in GPU memory: the properties of every communicator, and how a wait ends.
// With fewer GPUs than ranks, several ranks share the last GPU.
#include "cuda/host/peer_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/error.h"
#include "cuda/host/memory.h"
#include "ranks/communicator.h"
#include "rows_on_device.h"
#include "tests/ranks/communicator_suite.h"

namespace leq::LEQ_GPU {
namespace {

// Each rank has an emulated device of its own, or one of the real GPUs if these are used.
int device_of_rank(int rank) {
  if (std::string_view(rt::devices().front().name).find("emulated") != std::string_view::npos) {
    return rank;
  }
  return std::min(rank, static_cast<int>(rt::devices().size()) - 1);
}

// A rank and its window of device memory.
struct GpuRank {
  GpuRank(Communicator& ranks, std::size_t window_bytes)
      : device(device_of_rank(ranks.rank())),
        stream(rt::make_stream(device)),
        window(device, window_bytes),
        reaches_all(reaches(ranks.size())),
        peers(ranks, *stream, {window.data(), window_bytes}) {}

  // Lets this rank's device write the others' memory, as link_ranks does.
  bool reaches(int ranks) const {
    bool all = true;
    for (int rank = 0; rank < ranks; ++rank) all &= rt::reaches(device, device_of_rank(rank));
    return all;
  }

  int device;
  rt::StreamOwner stream;
  DeviceScratch window;
  bool reaches_all;
  PeerRanks peers;
};

constexpr auto kPatience = std::chrono::milliseconds(60'000);

class PeerRanksOf : public testing::TestWithParam<int> {};

TEST_P(PeerRanksOf, MeetTheContractOfCommunicators) {
  EXPECT_EQ(on_ranks(GetParam(), kPatience,
                     [](Communicator& ranks) {
                       GpuRank gpu(ranks, gpu::exchange_bytes(4, 64));
                       FromHost peers(gpu.peers, gpu.device, *gpu.stream);
                       test::check_communicator(peers, 12);
                     }),
            "");
}

// If a slot cannot store all rows, they are sent in several exchanges, each by several blocks.
TEST_P(PeerRanksOf, SendLargeBlocksInParts) {
  constexpr std::int64_t kRows = 70, kColumns = 3000;
  const int count = GetParam();
  EXPECT_EQ(on_ranks(count, kPatience,
                     [&](Communicator& ranks) {
                       GpuRank gpu(ranks, gpu::exchange_bytes(9, count * kColumns));
                       FromHost peers(gpu.peers, gpu.device, *gpu.stream);
                       std::vector<ByteRange> parts;
                       for (std::size_t rank = 0; rank < static_cast<std::size_t>(count); ++rank) {
                         parts.push_back({rank * kColumns, (rank + 1) * kColumns});
                       }
                       const std::size_t stride = parts.back().last;
                       const auto number = [](int rank, std::size_t at) {
                         return static_cast<std::byte>((at * 7 + at / 251) % 256 + 3 * rank);
                       };
                       std::vector<std::byte> whole(kRows * stride);
                       const ByteRange own = parts[static_cast<std::size_t>(peers.rank())];
                       for (std::size_t at = 0; at < whole.size(); ++at) {
                         const std::size_t column = at % stride;
                         if (column < own.first || column >= own.last) continue;
                         whole[at] = number(peers.rank(), at);
                       }
                       const SharedRows block = {kRows,  parts,        whole.data() + own.first,
                                                 stride, whole.data(), stride};
                       peers.gather({&block, 1}, Receivers::all, "a large block");
                       for (std::size_t at = 0; at < whole.size(); ++at) {
                         const auto of = static_cast<int>(at % stride / kColumns);
                         test::expect(
                             whole[at] == number(of, at),
                             "byte " + std::to_string(at) + " of rank " + std::to_string(of));
                       }
                     }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Sizes, PeerRanksOf, testing::Values(1, 2, 3, 4, 8));

SharedRows one_row(std::span<const ByteRange> parts, std::byte* whole, int rank) {
  return {1, parts, whole + parts[static_cast<std::size_t>(rank)].first, 64, whole, 64};
}

TEST(PeerRanks, ARankThatDoesNotComeIsNamedWhenPatienceEnds) {
  const std::string text = on_ranks(2, std::chrono::milliseconds(200), [](Communicator& ranks) {
    GpuRank gpu(ranks, gpu::exchange_bytes(1, 64));
    if (!ranks.leads()) return;
    const DeviceScratch rows(gpu.device, 64);
    const std::vector<ByteRange> parts = {{0, 16}, {16, 32}};
    const SharedRows block = one_row(parts, rows.data(), 0);
    for (const char* site : {"layers.0.o", "layers.0.down"}) {
      gpu.peers.gather({&block, 1}, Receivers::all, site);
    }
    rt::synchronize(*gpu.stream);
    gpu.peers.barrier("the end of the step");
  });
  EXPECT_EQ(text,
            "rank 1 of 2 does not come to layers.0.o: the GPU of rank 0 has waited for 200 ms");
}

// A rank's failure ends every wait of the others.
TEST(PeerRanks, ARankThatFailsEndsTheKernelsThatWaitForIt) {
  std::atomic<int> launched{0};
  const std::string text = on_ranks(3, kPatience, [&](Communicator& ranks) {
    GpuRank gpu(ranks, gpu::exchange_bytes(1, 64));
    if (ranks.rank() == 2) {
      while (launched < 2) std::this_thread::yield();
      throw ranks.abort(Error("rank 2 has had enough"));
    }
    const DeviceScratch rows(gpu.device, 64);
    const std::vector<ByteRange> parts = {{0, 16}, {16, 32}, {32, 48}};
    const SharedRows block = one_row(parts, rows.data(), ranks.rank());
    gpu.peers.gather({&block, 1}, Receivers::all, "layers.0.o");
    ++launched;
    rt::synchronize(*gpu.stream);
    gpu.peers.barrier("the end of the step");
  });
  EXPECT_EQ(text, "rank 2 has had enough");
}

// The waits also end if the failed rank exits without announcing it.
TEST(PeerRanks, ARankThatGoesByAnErrorEndsTheOthers) {
  const std::string text = on_ranks(2, kPatience, [&](Communicator& ranks) {
    const GpuRank gpu(ranks, gpu::exchange_bytes(1, 64));
    if (!ranks.leads()) throw Error("rank 1 fails on its own");
    ranks.barrier("a meeting");
  });
  EXPECT_EQ(text, "rank 1 of 2: it has ended by an error");
}

TEST(PeerRanks, WindowsOfUnequalSizesAreRefused) {
  const std::string text = on_ranks(2, kPatience, [](Communicator& ranks) {
    const GpuRank gpu(ranks, gpu::exchange_bytes(1, 64 + 512 * ranks.rank()));
  });
  EXPECT_NE(text.find("has a window of"), std::string::npos) << text;
}

}  // namespace
}  // namespace leq::LEQ_GPU

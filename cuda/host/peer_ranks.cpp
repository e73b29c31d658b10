#include "cuda/host/peer_ranks.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/error.h"
#include "cuda/host/exchange_layout.h"
#include "ranks/communicator.h"

namespace leq::LEQ_GPU {
namespace {

// One block of an exchange kernel pushes at least this many bytes, unless there are fewer.
constexpr std::int64_t kBlockBytes = 8 << 10;

}  // namespace

PeerRanks::PeerRanks(Communicator& ranks, rt::Stream& stream, std::span<std::byte> window)
    : ranks_(ranks),
      stream_(stream),
      window_(window),
      end_(sizeof(ExchangeEnd)),
      membership_(ranks) {
  require(size() <= kMaxPeers, ErrorKind::bad_setting, Setting{"ranks"}, " ", size(), ": at most ",
          kMaxPeers, " GPUs push to each other");
  std::memset(end_.data(), 0, sizeof(ExchangeEnd));
  rt::fill_zero(window_.data(), kSlotsAt, stream_);
  rt::synchronize(stream_);
  common_.rank = rank();
  common_.ranks = size();
  common_.slot_bytes = static_cast<std::int64_t>(slot_bytes_of(window_.size()));
  common_.end = &end();
  const double seconds = std::chrono::duration<double>(timeout()).count();
  common_.timeout = static_cast<long long>(seconds * rt::device_of(stream_).clock_hz);
  map_windows();
  ranks_.at_abort([this] { std::atomic_ref(end().ended).store(1, std::memory_order_release); });
}

void PeerRanks::map_windows() {
  const auto own = std::as_bytes(std::span(&window_, 1));
  const auto all =
      gather_bytes(ranks_, {own.begin(), own.end()}, Receivers::all, "the GPUs' meeting");
  for (int peer = 0; peer < size(); ++peer) {
    const std::vector<std::byte>& bytes = all[static_cast<std::size_t>(peer)];
    std::span<std::byte> window;
    ensure(bytes.size() == sizeof window, "ranks: ", bytes.size(), " bytes of a window");
    std::memcpy(&window, bytes.data(), sizeof window);
    ensure(window.size() == window_.size(), "rank ", peer, " has a window of ", window.size(),
           " bytes, rank ", rank(), " one of ", window_.size());
    common_.windows[peer] = window.data();
  }
}

// Waits for this rank's own work; peers may write to its window until membership_ is destroyed.
PeerRanks::~PeerRanks() {
  membership_.end_others();
  try {
    rt::synchronize(stream_);
  } catch (const Error&) {
    // The error is ignored, because it was already reported by the call that failed.
  }
  ranks_.at_abort(nullptr);
}

std::uint32_t PeerRanks::number_of(std::string_view site) {
  const auto found = numbers_.find(site);
  if (found != numbers_.end()) return found->second;
  sites_.emplace_back(site);
  return numbers_.emplace(site, static_cast<std::uint32_t>(sites_.size() - 1)).first->second;
}

void PeerRanks::gather(std::span<const SharedRows> blocks, Receivers to, std::string_view site) {
  ExchangeArguments a = common_;
  a.all_receive = to == Receivers::all;
  a.site = number_of(site);
  a.plane_count = static_cast<int>(blocks.size());
  each_part(blocks, common_.slot_bytes, site, [&](const ExchangePart& part) {
    std::ranges::copy(part.planes, a.planes);
    if (to == Receivers::leader && !leads()) {
      for (ExchangePlane& plane : a.planes) plane.all = nullptr;
    }
    a.rows = part.rows;
    a.blocks = static_cast<int>(
        std::clamp<std::int64_t>(part.most_bytes / kBlockBytes, 1, kExchangeBlocks));
    launch_exchange(a, stream_);
  });
}

void PeerRanks::barrier(std::string_view site) {
  const std::uint32_t lost = std::atomic_ref(end().lost).load(std::memory_order_acquire);
  if (lost > 0) {
    const Error error("rank " + std::to_string(lost - 1) + " of " + std::to_string(size()) +
                          " does not come to " + sites_[end().site] + ": the GPU of rank " +
                          std::to_string(rank()) + " has waited for " +
                          std::to_string(timeout().count()) + " ms",
                      ErrorKind::no_device);
    throw ranks_.abort(error);
  }
  ranks_.barrier(site);
}

}  // namespace leq::LEQ_GPU

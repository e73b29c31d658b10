#include "cuda/host/nccl_ranks.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/stopwatch.h"
#include "cuda/host/exchange_layout.h"

namespace leq::LEQ_GPU {
namespace {

constexpr std::int64_t kBlockBytes = 8 << 10;  // least number of bytes per block of the kernel
constexpr auto kPollInterval = std::chrono::microseconds(50);
// Waits are usually short, so a thread polls this often before it sleeps between polls.
constexpr int kPolls = 20'000;

}  // namespace

NcclRanks::NcclRanks(Communicator& ranks, const NcclCalls& calls, rt::Stream& stream,
                     std::span<std::byte> window)
    : ranks_(ranks), calls_(calls), stream_(stream), window_(window) {
  common_.rank = rank();
  common_.ranks = size();
  common_.slot_bytes = static_cast<std::int64_t>(slot_bytes_of(window_.size()));
  require(size() <= kMaxPeers, ErrorKind::bad_setting, Setting{"ranks"}, " ", size(), ": at most ",
          kMaxPeers, " GPUs share a model");
  common_.windows[rank()] = window_.data();
  join();
  ranks_.at_abort([this] { end_now(); });
}

void NcclRanks::join() {
  constexpr std::string_view kSite = "NCCL's start";
  std::vector<std::byte> bytes(sizeof(NcclId));
  NcclId id = {};
  if (leads()) {
    check(calls_.make_id(&id), kSite);
    std::memcpy(bytes.data(), &id, sizeof id);
  }
  ranks_.broadcast(bytes, kSite);
  ensure(bytes.size() == sizeof id, kSite, ": ", bytes.size(), " bytes of an id");
  std::memcpy(&id, bytes.data(), sizeof id);
  NcclConfig config;
  config.blocking = 0;  // so that wait_until() can detect a missing rank
  rt::use(stream_);
  const int began = calls_.join(&comm_, size(), id, rank(), &config);
  if (began != kNcclInProgress) check(began, kSite);
  int result = kNcclInProgress;
  wait_until(
      [&] {
        check(calls_.state(comm_, &result), kSite);
        return result != kNcclInProgress;
      },
      kSite);
  check(result, kSite);
}

NcclRanks::~NcclRanks() {
  ranks_.at_abort(nullptr);
  if (std::uncaught_exceptions() > 0) end_now();
  if (ended_) return;
  try {
    finish("the end");
    calls_.leave(comm_);
  } catch (const Error&) {
    end_now();
  }
}

// Aborts the NCCL communicator, which also ends the waits of other ranks.
void NcclRanks::end_now() noexcept {
  if (comm_ != nullptr && !ended_.exchange(true)) calls_.abort(comm_);
}

Error NcclRanks::abort(const Error& error) noexcept {
  const Error first = ranks_.abort(error);
  end_now();
  return first;
}

void NcclRanks::check(int result, std::string_view site) {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  const Error failed("NCCL at " + std::string(site) + ": " + calls_.result_text(result) + ": " +
                         calls_.last_error(comm_),
                     ErrorKind::no_device);
  throw abort(rank_error(*this, failed));  // throws the first error if another rank aborted
}

template <class Holds>
void NcclRanks::wait_until(Holds holds, std::string_view site) {
  const Stopwatch watch;
  for (int poll = 0; !holds(); ++poll) {
    if (poll < kPolls) continue;
    std::this_thread::sleep_for(kPollInterval);
    if (watch.seconds() * 1e3 < static_cast<double>(timeout().count())) continue;
    const Error lost("waits in " + std::string(site) + " for the others' GPUs, for more than " +
                         std::to_string(timeout().count()) + " ms",
                     ErrorKind::no_device);
    throw abort(rank_error(*this, lost));
  }
}

void NcclRanks::finish(std::string_view site) {
  wait_until(
      [&] {
        int result = kNcclSuccess;
        if (!ended_) check(calls_.state(comm_, &result), site);
        check(result, site);
        return rt::is_idle(stream_);
      },
      site);
}

void NcclRanks::send_and_receive(std::span<const ByteRange> parts, Receivers to,
                                 std::string_view site) {
  std::byte* const slot = window_.data() + kSlotsAt;
  const bool receives = to == Receivers::all || leads();
  const ByteRange own = parts[static_cast<std::size_t>(rank())];
  rt::use(stream_);
  void* const stream = rt::library_stream(stream_);
  check(calls_.begin_group(), site);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const ByteRange peer_range = parts[static_cast<std::size_t>(peer)];
    if (own.count() > 0 && (to == Receivers::all || peer == 0)) {
      check(calls_.send(slot + own.first, own.count(), kNcclBytes, peer, comm_, stream), site);
    }
    if (peer_range.count() > 0 && receives) {
      check(calls_.receive(slot + peer_range.first, peer_range.count(), kNcclBytes, peer, comm_,
                           stream),
            site);
    }
  }
  check(calls_.end_group(), site);
}

void NcclRanks::gather(std::span<const SharedRows> blocks, Receivers to, std::string_view site) {
  if (ended_) ranks_.barrier(site);  // throws the error that ended NCCL
  ExchangeArguments a = common_;
  a.plane_count = static_cast<int>(blocks.size());
  each_part(blocks, common_.slot_bytes, site, [&](const ExchangePart& part) {
    std::ranges::copy(part.planes, a.planes);
    a.rows = part.rows;
    a.blocks = static_cast<int>(
        std::clamp<std::int64_t>(part.most_bytes / kBlockBytes, 1, kExchangeBlocks));
    launch_pack(a, stream_);
    send_and_receive(part.of_rank, to, site);
    if (to == Receivers::all || leads()) launch_unpack(a, stream_);
  });
}

}  // namespace leq::LEQ_GPU

#include "cuda/host/link_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cuda/host/nccl_ranks.h"
#include "cuda/host/peer_ranks.h"
#include "ranks/communicator.h"

namespace leq::LEQ_GPU {
namespace {

struct Member {
  std::int64_t process = 0, device = 0;
  std::array<char, 64> host = {};

  bool operator==(const Member&) const = default;
};

std::vector<std::byte> bytes_of(const Member& member) {
  std::vector<std::byte> bytes(sizeof member);
  std::memcpy(bytes.data(), &member, sizeof member);
  return bytes;
}

Member own_member(int device) {
  Member own = {::getpid(), device, {}};
  ::gethostname(own.host.data(), own.host.size() - 1);
  return own;
}

bool reaches_all(const Member& own, const std::vector<std::vector<std::byte>>& all) {
  return std::ranges::all_of(all, [&](const std::vector<std::byte>& bytes) {
    Member other;
    ensure(bytes.size() == sizeof other, "ranks: ", bytes.size(), " bytes of a member");
    std::memcpy(&other, bytes.data(), sizeof other);
    return other.process == own.process && other.host == own.host &&
           rt::reaches(static_cast<int>(own.device), static_cast<int>(other.device));
  });
}

}  // namespace

std::unique_ptr<Communicator> link_ranks(Communicator& ranks, int device, rt::Stream& stream,
                                         std::span<std::byte> window) {
  constexpr std::string_view kSite = "the GPUs' meeting";
  const Member own = own_member(device);
  const bool reaches = reaches_all(own, gather_bytes(ranks, bytes_of(own), Receivers::all, kSite));
  // All ranks use one transport: if a pair cannot access each other's memory, no rank may push.
  const auto votes =
      gather_bytes(ranks, {reaches ? std::byte{1} : std::byte{0}}, Receivers::all, kSite);
  const bool pushes = std::ranges::all_of(
      votes, [](const std::vector<std::byte>& vote) { return vote.at(0) == std::byte{1}; });
  if (pushes) return std::make_unique<PeerRanks>(ranks, stream, window);
  require(rt::has_libraries(), ErrorKind::bad_setting, Setting{"ranks"}, " ", ranks.size(),
          ": ranks on emulated GPUs are threads of one process; start it without mpirun");
  return std::make_unique<NcclRanks>(ranks, nccl_calls(), stream, window);
}

}  // namespace leq::LEQ_GPU

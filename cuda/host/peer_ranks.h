// Ranks on GPUs of one process that can access each other's memory. A gather is a kernel that
// pushes rows (kernels/peers/exchange.h) in the order of each rank's stream. Broadcasts and
// barriers on the host use the communicator of the threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cuda/host/memory.h"
#include "cuda/kernels/peers/exchange.h"
#include "ranks/communicator.h"

namespace leq::LEQ_GPU {

class PeerRanks final : public Communicator {
 public:
  // All ranks must construct this together; they are threads of one process whose GPUs can access
  // each other's memory (link_ranks.h). `window` (see exchange_window.h) has the same size on all
  // ranks.
  PeerRanks(Communicator& ranks, rt::Stream& stream, std::span<std::byte> window);
  ~PeerRanks() override;

  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  // Gathers rows that are in device memory on each rank; asynchronous.
  void gather(std::span<const SharedRows> blocks, Receivers to, std::string_view site) override;
  void broadcast(std::vector<std::byte>& bytes, std::string_view site) override {
    ranks_.broadcast(bytes, site);
  }
  // Call this when the stream is idle. Throws if a gather was aborted because a rank was missing.
  void barrier(std::string_view site) override;
  Error abort(const Error& error) noexcept override { return ranks_.abort(error); }
  std::chrono::milliseconds timeout() const override { return ranks_.timeout(); }

 private:
  void map_windows();
  ExchangeEnd& end() const { return *reinterpret_cast<ExchangeEnd*>(end_.data()); }
  std::uint32_t number_of(std::string_view site);

  Communicator& ranks_;
  rt::Stream& stream_;
  std::span<std::byte> window_;
  Pinned end_;
  ExchangeArguments common_;  // arguments of all gathers
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  std::vector<std::string> sites_;
  Membership membership_;  // last, so that other ranks' writes end before memory is freed
};

}  // namespace leq::LEQ_GPU

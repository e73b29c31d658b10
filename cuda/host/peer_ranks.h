// Ranks on GPUs of one process that reach each other's memory: gathers are kernels that push rows
// (kernels/peers/exchange.h), in order with the operations of each rank's stream. Host
// communication is left to the ranks of the threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/membership.h"
#include "cuda/host/memory.h"
#include "cuda/kernels/peers/exchange.h"

namespace leq::LEQ_GPU {

class PeerRanks final : public Communicator {
 public:
  // Constructed by all ranks at the same time. `window`: exchange_window.h, of the same size on
  // all. Throws Error where ranks are not threads of one process, are too many, or cannot reach
  // each other.
  PeerRanks(Communicator& ranks, int device, rt::Stream& stream, std::span<std::byte> window);
  ~PeerRanks() override;

  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  // Gathers rows in the memory of each rank's device; asynchronous.
  void gather(std::span<const SharedRows> blocks, Receivers to, std::string_view site) override;
  void broadcast(std::vector<std::byte>& bytes, std::string_view site) override {
    ranks_.broadcast(bytes, site);
  }
  // After a synchronize of the stream: throws where a gather was aborted for a missing rank.
  void barrier(std::string_view site) override;
  Error abort(const Error& error) noexcept override { return ranks_.abort(error); }
  std::chrono::milliseconds timeout() const override { return ranks_.timeout(); }

 private:
  void map_windows();
  ExchangeEnd& end() const { return *reinterpret_cast<ExchangeEnd*>(end_.data()); }
  std::uint32_t number_of(std::string_view site);

  Communicator& ranks_;
  int device_;
  rt::Stream& stream_;
  std::span<std::byte> window_;
  Pinned end_;
  ExchangeArguments common_;  // of all gathers
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  std::vector<std::string> sites_;
  Membership membership_;  // last: keeps the memory alive that others write
};

}  // namespace leq::LEQ_GPU

// Ranks on GPUs that do not reach each other's memory, or are processes: rows are packed, sent by
// NCCL in order with the operations of each rank's stream, and unpacked. Host communication is left
// to the ranks of the threads or processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "comm/communicator.h"
#include "comm/nccl_calls.h"
#include "cuda/kernels/peers/exchange.h"

namespace leq::LEQ_GPU {

class NcclRanks final : public Communicator {
 public:
  // Constructed by all ranks at the same time; `ranks` transfer NCCL's id. `window` is this rank's
  // own, of the same size on all. Throws Error with NCCL's message where the ranks do not connect
  // within their time limit.
  NcclRanks(Communicator& ranks, const NcclCalls& calls, rt::Stream& stream,
            std::span<std::byte> window);
  ~NcclRanks() override;

  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  // Gathers rows in the memory of each rank's device; asynchronous.
  void gather(std::span<const SharedRows> blocks, Receivers to, std::string_view site) override;
  void broadcast(std::vector<std::byte>& bytes, std::string_view site) override {
    ranks_.broadcast(bytes, site);
  }
  void finish(std::string_view site) override;
  void barrier(std::string_view site) override { ranks_.barrier(site); }
  Error abort(const Error& error) noexcept override;
  std::chrono::milliseconds timeout() const override { return ranks_.timeout(); }

 private:
  void join();
  void send_and_receive(std::span<const ByteRange> parts, Receivers to, std::string_view site);
  // Polls `holds` until it is true; throws after the time limit.
  template <class Holds>
  void wait_until(Holds holds, std::string_view site);
  void check(int result, std::string_view site);
  void end_now() noexcept;

  Communicator& ranks_;
  const NcclCalls& calls_;
  rt::Stream& stream_;
  std::span<std::byte> window_;
  ExchangeArguments common_;  // of all gathers
  NcclComm comm_ = nullptr;
  std::atomic<bool> ended_{false};
};

}  // namespace leq::LEQ_GPU

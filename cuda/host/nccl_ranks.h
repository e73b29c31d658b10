// Ranks on GPUs that cannot access each other's memory, or that are processes. Rows are packed,
// sent by NCCL in the order of each rank's stream, and unpacked. Broadcasts and barriers on the
// host use the communicator of the threads or processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "cuda/kernels/peers/exchange.h"
#include "ranks/communicator.h"
#include "ranks/nccl_calls.h"

namespace leq::LEQ_GPU {

class NcclRanks final : public Communicator {
 public:
  // All ranks must construct this together; `ranks` transfers NCCL's id. `window` is this rank's
  // own memory and has the same size on all ranks. Throws Error with NCCL's message if the ranks do
  // not connect within their time limit.
  NcclRanks(Communicator& ranks, const NcclCalls& calls, rt::Stream& stream,
            std::span<std::byte> window);
  ~NcclRanks() override;

  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  // Gathers rows that are in device memory on each rank; asynchronous.
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
  // Polls `holds` until it returns true; throws after the time limit.
  template <class Holds>
  void wait_until(Holds holds, std::string_view site);
  void check(int result, std::string_view site);
  void end_now() noexcept;

  Communicator& ranks_;
  const NcclCalls& calls_;
  rt::Stream& stream_;
  std::span<std::byte> window_;
  ExchangeArguments common_;  // arguments of all gathers
  NcclComm comm_ = nullptr;
  std::atomic<bool> ended_{false};
};

}  // namespace leq::LEQ_GPU

// Thread ranks for tests whose rows are in device memory.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cuda/host/memory.h"
#include "ranks/communicator.h"

namespace leq::LEQ_GPU {

// Sends host blocks through the device. The buffers live as long as the communicator, because
// freeing memory waits for all work on the device; if ranks share a device, this work includes
// kernels that wait for this rank's next block.
class FromHost final : public Communicator {
 public:
  FromHost(Communicator& link, int device, rt::Stream& stream)
      : link_(link), device_(device), stream_(stream) {}

  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  void gather(std::span<const SharedRows> blocks, Receivers to, std::string_view site) override {
    std::vector<SharedRows> copies;
    for (const SharedRows& block : blocks) {
      buffers_.emplace_back(device_, stream_, block, rank());
      copies.push_back(buffers_.back().rows);
    }
    link_.gather(copies, to, site);
    const auto own = std::span(buffers_).last(blocks.size());
    for (const OnDevice& one : own) one.fetch();
    rt::synchronize(stream_);
    for (const OnDevice& one : own) one.put_back();
  }
  void broadcast(std::vector<std::byte>& bytes, std::string_view site) override {
    link_.broadcast(bytes, site);
  }
  void barrier(std::string_view site) override { link_.barrier(site); }
  Error abort(const Error& error) noexcept override { return link_.abort(error); }
  std::chrono::milliseconds timeout() const override { return link_.timeout(); }

 private:
  struct OnDevice {
    OnDevice(int device, rt::Stream& on, const SharedRows& block, int own_rank)
        : stream(on), host(block), rows(block) {
      const auto count = static_cast<std::size_t>(block.rows);
      const std::size_t own = block.parts[static_cast<std::size_t>(own_rank)].count();
      own_bytes = count == 0 ? 0 : (count - 1) * block.own_stride + own;
      all_bytes = block.all == nullptr ? 0 : count * block.stride;
      memory = std::make_unique<DeviceScratch>(device, own_bytes + all_bytes + 64);
      pinned = Pinned(own_bytes + all_bytes + 64);
      std::copy_n(block.own, own_bytes, pinned.data());
      if (all_bytes > 0) std::copy_n(block.all, all_bytes, pinned.data() + own_bytes);
      rt::copy_to_device(memory->data(), pinned.data(), own_bytes + all_bytes, stream);
      rows.own = memory->data();
      rows.all = all_bytes > 0 ? memory->data() + own_bytes : nullptr;
    }
    void fetch() const {
      if (all_bytes == 0) return;
      rt::copy_to_host(pinned.data(), rows.all, all_bytes, stream);
    }
    void put_back() const {
      if (all_bytes > 0) std::copy_n(pinned.data(), all_bytes, host.all);
    }

    rt::Stream& stream;
    SharedRows host, rows;
    std::size_t own_bytes = 0, all_bytes = 0;
    std::unique_ptr<DeviceScratch> memory;
    Pinned pinned;
  };

  Communicator& link_;
  int device_;
  rt::Stream& stream_;
  std::vector<OnDevice> buffers_;
};

// Runs `work` on all ranks. Returns the error of the first rank that failed, "" if none did.
inline std::string on_ranks(int count, std::chrono::milliseconds timeout,
                            const std::function<void(Communicator&)>& work) {
  ThreadRanks ranks(count, {.timeout = timeout, .threads = count});
  std::vector<std::thread> threads;
  std::vector<std::string> texts(static_cast<std::size_t>(count));
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(ranks[rank]);
      } catch (const std::exception& error) {
        texts[static_cast<std::size_t>(rank)] = error.what();
        ranks[rank].abort(Error(error.what()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) {
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace leq::LEQ_GPU

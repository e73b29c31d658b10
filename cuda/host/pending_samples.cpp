#include "cuda/host/pending_samples.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace leq::LEQ_GPU {

// The pinned memory can be reused as soon as this object is destroyed, even without a wait, because
// copies to it are in stream order and only the event of the last copy is waited for.
class PendingSamples::Begun final : public PendingSample {
 public:
  Begun(PendingSamples& of, std::unique_ptr<HostCopy> host_copy)
      : of_(of),
        host_copy_(std::move(host_copy)),
        rows_(of.sampler_.rows()),
        number_(of.sampler_.number()) {}
  ~Begun() override { of_.idle_.push_back(std::move(host_copy_)); }

  void wait(std::span<std::int32_t> drawn) override {
    ensure(std::ssize(drawn) == rows_, "sampler: room for ", drawn.size(), " tokens of ", rows_,
           " rows");
    rt::synchronize(*host_copy_->copied);
    of_.faults_.check(host_copy_->fault);
    std::memcpy(drawn.data(), host_copy_->tokens.data(), drawn.size_bytes());
  }
  bool is_last() const override { return number_ == of_.sampler_.number(); }

 private:
  PendingSamples& of_;
  std::unique_ptr<HostCopy> host_copy_;
  std::int64_t rows_;
  std::uint64_t number_;
};

std::unique_ptr<PendingSample> PendingSamples::begin(const FloatRows& logits,
                                                     std::int64_t vocabulary,
                                                     std::span<const SampleRequest> requests) {
  const auto is_hosts = [](const SampleRequest& request) { return draws_on_host(request); };
  if (requests.empty() || requests.size() > DeviceSampler::kMaxRows ||
      std::ranges::any_of(requests, is_hosts)) {
    return nullptr;
  }
  std::unique_ptr<HostCopy> host_copy = take_host_copy();
  sampler_.draw(logits, vocabulary, requests);
  rt::copy_to_host(host_copy->tokens.data(), sampler_.tokens(),
                   requests.size() * sizeof(std::int32_t), stream_);
  faults_.collect(host_copy->fault);
  rt::record(*host_copy->copied, stream_);
  return std::make_unique<Begun>(*this, std::move(host_copy));
}

std::unique_ptr<PendingSamples::HostCopy> PendingSamples::take_host_copy() {
  if (idle_.empty()) {
    return std::make_unique<HostCopy>(Pinned(Faults::kWordBytes),
                                      Pinned(DeviceSampler::kMaxRows * sizeof(std::int32_t)),
                                      rt::make_event(device_));
  }
  std::unique_ptr<HostCopy> host_copy = std::move(idle_.back());
  idle_.pop_back();
  return host_copy;
}

}  // namespace leq::LEQ_GPU

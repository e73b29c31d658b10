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
  Begun(PendingSamples& of, std::unique_ptr<Landing> landing)
      : of_(of),
        landing_(std::move(landing)),
        rows_(of.sampler_.rows()),
        number_(of.sampler_.number()) {}
  ~Begun() override { of_.idle_.push_back(std::move(landing_)); }

  void wait(std::span<std::int32_t> drawn) override {
    ensure(std::ssize(drawn) == rows_, "sampler: room for ", drawn.size(), " tokens of ", rows_,
           " rows");
    rt::synchronize(*landing_->landed);
    of_.faults_.check(landing_->fault);
    std::memcpy(drawn.data(), landing_->tokens.data(), drawn.size_bytes());
  }
  bool is_last() const override { return number_ == of_.sampler_.number(); }

 private:
  PendingSamples& of_;
  std::unique_ptr<Landing> landing_;
  std::int64_t rows_;
  std::uint64_t number_;
};

std::unique_ptr<PendingSample> PendingSamples::begin(const FloatRows& logits,
                                                     std::int64_t vocabulary,
                                                     std::span<const SampleRequest> requests) {
  const auto is_hosts = [](const SampleRequest& request) { return draws_on_host(request); };
  if (requests.empty() || requests.size() > DeviceSampler::kMostRows ||
      std::ranges::any_of(requests, is_hosts)) {
    return nullptr;
  }
  std::unique_ptr<Landing> landing = take_landing();
  sampler_.draw(logits, vocabulary, requests);
  rt::copy_to_host(landing->tokens.data(), sampler_.tokens(),
                   requests.size() * sizeof(std::int32_t), stream_);
  faults_.collect(landing->fault);
  rt::record(*landing->landed, stream_);
  return std::make_unique<Begun>(*this, std::move(landing));
}

std::unique_ptr<PendingSamples::Landing> PendingSamples::take_landing() {
  if (idle_.empty()) {
    return std::make_unique<Landing>(Pinned(Faults::kWordBytes),
                                     Pinned(DeviceSampler::kMostRows * sizeof(std::int32_t)),
                                     rt::make_event(device_));
  }
  std::unique_ptr<Landing> landing = std::move(idle_.back());
  idle_.pop_back();
  return landing;
}

}  // namespace leq::LEQ_GPU

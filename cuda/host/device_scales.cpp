#include "cuda/host/device_scales.h"

#include <cstring>
#include <memory>
#include <numeric>

#include "base/error.h"

namespace leq::LEQ_GPU {
namespace {

// This is more than the number of linears of any model (a few per layer).
constexpr std::size_t kMaxScales = 1024;

}  // namespace

class DeviceScales::Slot final : public DeviceScale {
 public:
  Slot(DeviceScales& scales, std::size_t slot, const OnlineOptions& options)
      : scales_(scales), slot_(slot), options_(options) {}
  ~Slot() override { scales_.free_.push_back(slot_); }

  OnlineState fetch() override {
    OnlineRecord record;
    scales_.read(slot_, record);
    return record.state;
  }
  void store(const OnlineState& state) override { scales_.write(slot_, {options_, state}); }

  bool is_of(const DeviceScales& scales) const { return &scales == &scales_; }
  std::size_t slot() const { return slot_; }

 private:
  DeviceScales& scales_;
  std::size_t slot_;
  OnlineOptions options_;
};

DeviceScales::DeviceScales(int device, rt::Stream& stream)
    : stream_(stream),
      copies_(rt::make_stream(device)),
      records_(device, kMaxScales * sizeof(OnlineRecord)),
      pinned_(sizeof(OnlineRecord)),
      free_(kMaxScales),
      was_used_(kMaxScales) {
  std::iota(free_.rbegin(), free_.rend(), std::size_t{0});
}

OnlineRecord* DeviceScales::record(std::size_t slot) const {
  return reinterpret_cast<OnlineRecord*>(records_.data()) + slot;
}

void DeviceScales::read(std::size_t slot, OnlineRecord& found) {
  rt::synchronize(stream_);
  rt::copy_to_host(pinned_.data(), record(slot), sizeof(found), *copies_);
  rt::synchronize(*copies_);
  std::memcpy(&found, pinned_.data(), sizeof(found));
}

void DeviceScales::write(std::size_t slot, const OnlineRecord& given) {
  if (was_used_[slot]) rt::synchronize(stream_);
  was_used_[slot] = true;
  std::memcpy(pinned_.data(), &given, sizeof(given));
  rt::copy_to_device(record(slot), pinned_.data(), sizeof(given), *copies_);
  rt::synchronize(*copies_);
}

OnlineRecord* DeviceScales::of(OnlineScale& scale) {
  const auto* held = dynamic_cast<const Slot*>(scale.on_device());
  if (held == nullptr || !held->is_of(*this)) {
    require(!free_.empty(), "GPU: more than ", kMaxScales,
            " linears have act online; quantize with ", Setting{"act"}, " row");
    const std::size_t slot = free_.back();
    free_.pop_back();
    auto made = std::make_unique<Slot>(*this, slot, scale.options());
    held = made.get();
    scale.move_to_device(std::move(made));
  }
  return record(held->slot());
}

}  // namespace leq::LEQ_GPU

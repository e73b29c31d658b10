#include "cuda/host/uploader.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace leq::LEQ_GPU {
namespace {

// This many threads can read a file from several positions and copy at PCIe speed.
constexpr int kMaxThreads = 8;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // unit that one thread copies

// Prefetches bytes of a mapped file while other bytes are copied. This has no effect on memory that
// is not mapped from a file.
void read_ahead(const std::byte* from, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t before = reinterpret_cast<std::uintptr_t>(from) % page;
  ::madvise(const_cast<std::byte*>(from - before), bytes + before, MADV_WILLNEED);
}

}  // namespace

Uploader::Uploader(int device, rt::Stream& stream, std::byte* staging, std::size_t slot_bytes)
    : device_(device),
      stream_(stream),
      copies_(rt::make_stream(device)),
      pool_(std::min(kMaxThreads, usable_cores())) {
  for (Slot& slot : slots_) {
    slot.copied = rt::make_event(device);
    slot.consumed = rt::make_event(device);
  }
  if (staging != nullptr) {
    use(staging, slot_bytes);
  } else {
    use_own(slot_bytes);
  }
}

void Uploader::use(std::byte* staging, std::size_t slot_bytes) {
  slot_bytes_ = slot_bytes;
  for (std::size_t i = 0; i < kSlots; ++i) slots_[i].staging = staging + i * slot_bytes;
}

void Uploader::use_own(std::size_t slot_bytes) {
  rt::synchronize(stream_);  // waits for all copies, so that the old slots are unused
  own_staging_.emplace(device_, kSlots * slot_bytes);
  use(own_staging_->data(), slot_bytes);
}

void Uploader::fill(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t pieces = (bytes + kPieceBytes - 1) / kPieceBytes;
  pool_.run(static_cast<std::int64_t>(pieces), [&](std::int64_t piece, int) {
    const std::size_t first = static_cast<std::size_t>(piece) * kPieceBytes;
    std::memcpy(to + first, from + first, std::min(kPieceBytes, bytes - first));
  });
}

void Uploader::run(const void* from, std::int64_t units, std::int64_t unit_bytes,
                   const Relay& relay) {
  const auto unit = static_cast<std::size_t>(unit_bytes);
  if (unit > slot_bytes_) use_own(unit);
  const auto most = static_cast<std::int64_t>(slot_bytes_ / unit);
  const auto* bytes = static_cast<const std::byte*>(from);
  for (std::int64_t first = 0; first < units; first += most) {
    const std::int64_t count = std::min(most, units - first);
    const std::byte* chunk = bytes + static_cast<std::size_t>(first) * unit;
    const std::size_t size = static_cast<std::size_t>(count) * unit;
    const auto left = static_cast<std::size_t>(units - first - count) * unit;
    if (left > 0) read_ahead(chunk + size, std::min(left, size));
    send(chunk, size, [&](const std::byte* staged) { relay(staged, first, count); });
  }
}

void Uploader::send(const std::byte* from, std::size_t bytes,
                    const std::function<void(const std::byte*)>& relay) {
  Slot& slot = slots_[next_++ % kSlots];
  rt::synchronize(*slot.copied);
  if (slot.host.size() < bytes) slot.host = Pinned(slot_bytes_);
  fill(slot.host.data(), from, bytes);
  rt::wait(*copies_, *slot.consumed);
  rt::copy_to_device(slot.staging, slot.host.data(), bytes, *copies_);
  rt::record(*slot.copied, *copies_);
  rt::wait(stream_, *slot.copied);
  relay(slot.staging);
  rt::record(*slot.consumed, stream_);
  bytes_ += bytes;
}

void Uploader::copy(const void* from, std::byte* to, std::int64_t bytes) {
  run(from, bytes, 1, [&](const std::byte* staged, std::int64_t first, std::int64_t count) {
    rt::copy_on_device(to + first, staged, static_cast<std::size_t>(count), stream_);
  });
}

UploadReport Uploader::finish() {
  rt::synchronize(stream_);  // after this all copies are complete
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
  return {bytes_, took.count()};
}

}  // namespace leq::LEQ_GPU

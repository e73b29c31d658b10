#include "cuda/host/faults.h"

#include <utility>

#include "backend/checks.h"

namespace leq::LEQ_GPU {
namespace {

constexpr unsigned long long kNone = kNoFault;

}  // namespace

// Waits at the end, because the host may write the pinned word only if no copy is in flight.
Faults::Faults(int device, rt::Stream& stream)
    : stream_(stream), word_(device, sizeof(kNone)), seen_(sizeof(kNone)) {
  *reinterpret_cast<unsigned long long*>(seen_.data()) = kNone;
  rt::copy_to_device(word_.data(), seen_.data(), sizeof(kNone), stream_);
  rt::synchronize(stream_);
}

Fault Faults::watch(std::string_view site) {
  auto known = numbers_.find(site);
  if (known == numbers_.end()) {
    known = numbers_.emplace(site, static_cast<std::uint32_t>(sites_.size())).first;
    sites_.emplace_back(site);
  }
  return {reinterpret_cast<unsigned long long*>(word_.data()), known->second};
}

void Faults::collect(const Pinned& seen) {
  rt::copy_to_host(seen.data(), word_.data(), sizeof(kNone), stream_);
}

void Faults::check(const Pinned& seen) {
  auto& word = *reinterpret_cast<unsigned long long*>(seen.data());
  const unsigned long long found = std::exchange(word, kNone);
  if (found == kNone) return;
  rt::copy_to_device(word_.data(), seen.data(), sizeof(kNone), stream_);
  rt::synchronize(stream_);
  fail_not_finite(sites_[found >> 32], static_cast<std::int64_t>(found & 0xffffffffu));
}

void Faults::synchronize() {
  collect();
  rt::synchronize(stream_);
  check();
}

}  // namespace leq::LEQ_GPU

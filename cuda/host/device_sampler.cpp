#include "cuda/host/device_sampler.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace leq::LEQ_GPU {
namespace {

template <class T>
std::size_t append(std::vector<std::byte>& bytes, std::span<const T> values) {
  const std::size_t at = bytes.size();
  const auto raw = std::as_bytes(values);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
  return at;
}

}  // namespace

DeviceSampler::DeviceSampler(int device, rt::Stream& stream, Staging& staging)
    : stream_(stream),
      staging_(staging),
      states_(device, kLaunchRows * sizeof(SampleState)),
      candidates_(device, kLaunchRows * kMaxCandidates * sizeof(unsigned long long)),
      saved_(device, Staging::kRingBytes / sizeof(LogitChange) * sizeof(float)),
      tokens_(device, kMaxRows * sizeof(std::int32_t)) {}

void DeviceSampler::launch(const FloatRows& logits, std::int64_t vocabulary,
                           std::span<const SampleRequest> requests) {
  const std::size_t bytes = requests.size() * sizeof(std::int32_t);
  if (pinned_.size() < bytes) pinned_ = Pinned(std::max(bytes, kMaxRows * sizeof(std::int32_t)));
  downloaded_ = 0;
  FloatRows rows = logits;
  while (!requests.empty()) {
    const auto part = requests.first(std::min(kMaxRows, requests.size()));
    draw(rows, vocabulary, part);
    rt::copy_to_host(pinned_.data() + downloaded_ * sizeof(std::int32_t), tokens_.data(),
                     part.size() * sizeof(std::int32_t), stream_);
    downloaded_ += part.size();
    rows.values += std::ssize(part) * rows.stride;
    requests = requests.subspan(part.size());
  }
}

void DeviceSampler::draw(const FloatRows& logits, std::int64_t vocabulary,
                         std::span<const SampleRequest> requests) {
  ensure(requests.size() <= kMaxRows, "sampler: ", requests.size(), " rows, room for ", kMaxRows);
  rows_ = std::ssize(requests);
  ++number_;
  FloatRows rows = logits;
  for (std::size_t first = 0; first < requests.size(); first += kLaunchRows) {
    const auto part = requests.subspan(first, std::min(kLaunchRows, requests.size() - first));
    draw_together(rows, vocabulary, part, reinterpret_cast<std::int32_t*>(tokens_.data()) + first);
    rows.values += std::ssize(part) * rows.stride;
  }
}

void DeviceSampler::draw_together(const FloatRows& logits, std::int64_t vocabulary,
                                  std::span<const SampleRequest> requests, std::int32_t* drawn) {
  SampleArguments a;
  a.logits = logits;
  a.vocabulary = vocabulary;
  a.rows = static_cast<int>(requests.size());
  lists_.clear();
  for (const SampleRequest& request : requests) {
    SampleRule rule = request.rule;
    if (draws_on_host(request)) rule.temperature = 0;
    append(lists_, std::span<const SampleRule>(&rule, 1));
    a.any_draw = a.any_draw || rule.temperature > 0;
    a.any_whole = a.any_whole || (rule.temperature > 0 && rule.top_k <= 0);
    a.any_change = a.any_change || !request.changes.empty();
  }
  std::vector<std::int32_t> ends = {0};
  const std::size_t changes_at = lists_.size();
  for (const SampleRequest& request : requests) {
    append(lists_, request.changes);
    ends.push_back(ends.back() + static_cast<std::int32_t>(request.changes.size()));
  }
  const std::size_t ends_at = append(lists_, std::span<const std::int32_t>(ends));
  const std::byte* there = staging_.push(lists_);
  a.rules = reinterpret_cast<const SampleRule*>(there);
  a.changes = reinterpret_cast<const LogitChange*>(there + changes_at);
  a.change_ends = reinterpret_cast<const std::int32_t*>(there + ends_at);
  a.saved = reinterpret_cast<float*>(saved_.data());
  a.states = reinterpret_cast<SampleState*>(states_.data());
  a.candidates = reinterpret_cast<unsigned long long*>(candidates_.data());
  a.drawn = drawn;
  rt::fill_zero(states_.data(), requests.size() * sizeof(SampleState), stream_);
  launch_sample(a, stream_);
}

std::span<const std::int32_t> DeviceSampler::drawn() const {
  return {reinterpret_cast<const std::int32_t*>(pinned_.data()), downloaded_};
}

}  // namespace leq::LEQ_GPU

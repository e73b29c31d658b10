#include "sampling/stop.h"

#include <array>

namespace leq {

std::string_view describe(StopReason reason) {
  constexpr std::array<std::string_view, 7> kTexts = {"still running",
                                                      "the model ended its reply",
                                                      "a stop string was written",
                                                      "the token limit is reached",
                                                      "the context is full",
                                                      "interrupted",
                                                      "no token could be drawn"};
  return kTexts[static_cast<std::size_t>(reason)];
}

std::string_view stop_name(StopReason reason) {
  constexpr std::array<std::string_view, 7> kNames = {
      "none", "end_token", "stop_string", "token_limit", "context_full", "interrupted", "failed"};
  return kNames[static_cast<std::size_t>(reason)];
}

StopStringFinder::StopStringFinder(std::vector<std::string> strings)
    : strings_(std::move(strings)) {
  std::erase(strings_, std::string());
  // Sorts longest first, so that the longest is found if several stop strings end at the same byte.
  std::stable_sort(strings_.begin(), strings_.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

std::string StopStringFinder::push(std::string_view text) {
  if (found()) return {};
  std::string certain;
  for (const char byte : text) {
    held_ += byte;
    for (std::size_t i = 0; i < strings_.size(); ++i) {
      if (!held_.ends_with(strings_[i])) continue;
      found_ = i;
      held_.resize(held_.size() - strings_[i].size());
      return certain + std::exchange(held_, {});
    }
    const std::size_t ready = held_.size() - open_tail();
    certain.append(held_, 0, ready);
    held_.erase(0, ready);
  }
  return certain;
}

std::size_t StopStringFinder::open_tail() const {
  const std::string_view held = held_;
  for (std::size_t length = held.size(); length > 0; --length) {
    const auto begins = [&](std::string_view stop) {
      return stop.size() > length && stop.starts_with(held.substr(held.size() - length));
    };
    if (std::any_of(strings_.begin(), strings_.end(), begins)) return length;
  }
  return 0;
}

}  // namespace leq

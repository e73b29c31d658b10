// Assigns f16 copies to pages of the KV cache that have codes. Copies are slots of a small pool and
// are evicted from pages, least recently used first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace leq {

class KvCopies {
 public:
  KvCopies() = default;
  KvCopies(std::int64_t pages, std::int64_t count)
      : of_page_(static_cast<std::size_t>(pages), -1),
        used_(static_cast<std::size_t>(pages), 0),
        count_(count) {
    for (std::int64_t copy = count; copy-- > 0;) free_.push_back(static_cast<std::int32_t>(copy));
  }

  std::int64_t count() const { return count_; }
  bool has(std::int32_t page) const { return of(page) >= 0; }
  std::int32_t of(std::int32_t page) const { return of_page_[static_cast<std::size_t>(page)]; }
  // [pages] index of each page's copy; -1: the page has no copy.
  std::span<const std::int32_t> table() const { return of_page_; }
  bool none_free() const { return free_.empty(); }

  // Evicts the least recently used copy among pages that are not in use. Returns false if there is
  // none.
  bool evict(const std::vector<bool>& in_use) {
    std::size_t oldest = of_page_.size();
    for (std::size_t page = 0; page < of_page_.size(); ++page) {
      if (of_page_[page] < 0 || in_use[page]) continue;
      if (oldest == of_page_.size() || used_[page] < used_[oldest]) oldest = page;
    }
    if (oldest == of_page_.size()) return false;
    drop(static_cast<std::int32_t>(oldest));
    return true;
  }
  void give(std::int32_t page) {
    of_page_[static_cast<std::size_t>(page)] = free_.back();
    free_.pop_back();
    touch(page);
  }
  void drop(std::int32_t page) {
    if (!has(page)) return;
    free_.push_back(of(page));
    of_page_[static_cast<std::size_t>(page)] = -1;
  }
  void move(std::int32_t from, std::int32_t to) {
    of_page_[static_cast<std::size_t>(to)] = of(from);
    of_page_[static_cast<std::size_t>(from)] = -1;
    touch(to);
  }
  void touch(std::int32_t page) { used_[static_cast<std::size_t>(page)] = ++clock_; }

 private:
  std::vector<std::int32_t> of_page_;
  std::vector<std::uint64_t> used_;  // clock of the last use
  std::vector<std::int32_t> free_;   // stack of free copies
  std::int64_t count_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace leq

#include "cache/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace leq {
namespace {

// Every sequence may end in a partial page of its own.
std::int64_t pages_of(const KvShape& shape) {
  return pages_for(shape.positions) + shape.sequences - 1;
}

}  // namespace

KvCache::KvCache(DeviceMemory& memory, const Layout& layout, const KvShape& shape)
    : memory_(memory),
      layout_(layout),
      shape_(shape),
      key_page_bytes_(
          layout.page_bytes(KvPart::keys, shape.key_type, shape.kv_heads, shape.head_dim)),
      value_page_bytes_(
          layout.page_bytes(KvPart::values, shape.value_type, shape.kv_heads, shape.head_dim)),
      page_count_(pages_of(shape)),
      keys_(memory, static_cast<std::size_t>(shape.layers * page_count_) * key_page_bytes_),
      values_(memory, static_cast<std::size_t>(shape.layers * page_count_) * value_page_bytes_),
      sequences_(static_cast<std::size_t>(shape.sequences)),
      references_(static_cast<std::size_t>(page_count_), 0) {
  for (std::int64_t page = page_count_; page-- > 0;) {
    free_.push_back(static_cast<std::int32_t>(page));
  }
}

KvCache::Sequence& KvCache::at(std::int32_t sequence) {
  return const_cast<Sequence&>(std::as_const(*this).at(sequence));
}

const KvCache::Sequence& KvCache::at(std::int32_t sequence) const {
  ensure(sequence >= 0 && sequence < shape_.sequences, "KV cache: sequence ", sequence,
         ", there are ", shape_.sequences);
  return sequences_[static_cast<std::size_t>(sequence)];
}

std::int64_t KvCache::length(std::int32_t sequence) const { return at(sequence).length; }

std::span<const std::int32_t> KvCache::pages(std::int32_t sequence) const {
  return at(sequence).pages;
}

KvLayer KvCache::layer(std::int64_t layer) const {
  return {shape_.key_type,
          shape_.value_type,
          page_at(layer, KvPart::keys, 0),
          page_at(layer, KvPart::values, 0),
          key_page_bytes_,
          value_page_bytes_};
}

std::byte* KvCache::page_at(std::int64_t layer, KvPart part, std::int32_t page) const {
  const Buffer& all = part == KvPart::keys ? keys_ : values_;
  return all.data() + static_cast<std::size_t>(layer * page_count_ + page) * page_bytes(part);
}

bool KvCache::shares_last_page(std::int32_t sequence) const {
  const Sequence& source = at(sequence);
  return source.length % kPageTokens != 0 && holders(source.pages.back()) > 1;
}

std::int64_t KvCache::pages_to_append(std::int32_t sequence, std::int64_t count) const {
  const Sequence& source = at(sequence);
  return pages_for(source.length + count) - std::ssize(source.pages) +
         (shares_last_page(sequence) ? 1 : 0);
}

void KvCache::append(std::int32_t sequence, std::int64_t count) {
  Sequence& target = at(sequence);
  const std::int64_t needed = pages_to_append(sequence, count);
  require(needed <= free_pages(), "context full: sequence ", sequence, " holds ", target.length,
          " positions, ", count, " more need ", needed, " pages of ", kPageTokens, ", ",
          free_pages(), " of ", page_count_, " are free; raise ", Setting{"context"});
  if (shares_last_page(sequence)) {
    const std::int32_t own = take_page();
    copy_page(target.pages.back(), own);
    release(target.pages.back());
    target.pages.back() = own;
  }
  while (std::ssize(target.pages) < pages_for(target.length + count)) {
    target.pages.push_back(take_page());
  }
  target.length += count;
}

void KvCache::truncate(std::int32_t sequence, std::int64_t length) {
  Sequence& target = at(sequence);
  ensure(length >= 0 && length <= target.length, "KV cache: truncate sequence ", sequence, " to ",
         length, ", it holds ", target.length);
  target.length = length;
  const auto keep = static_cast<std::size_t>(pages_for(length));
  while (target.pages.size() > keep) {
    release(target.pages.back());
    target.pages.pop_back();
  }
}

void KvCache::fork(std::int32_t from, std::int32_t to) {
  if (from == to) return;
  clear(to);
  const Sequence& source = at(from);
  adopt(to, source.pages, source.length);
}

void KvCache::adopt(std::int32_t sequence, std::span<const std::int32_t> pages,
                    std::int64_t length) {
  Sequence& target = at(sequence);
  ensure(target.length == 0 && std::ssize(pages) == pages_for(length), "KV cache: sequence ",
         sequence, " of ", target.length, " positions cannot begin with ", length, " on ",
         pages.size(), " pages");
  for (const std::int32_t page : pages) hold(page);
  target.pages.assign(pages.begin(), pages.end());
  target.length = length;
}

void KvCache::replace_page(std::int32_t sequence, std::int64_t index, std::int32_t page) {
  std::int32_t& place = at(sequence).pages.at(static_cast<std::size_t>(index));
  hold(page);
  release(place);
  place = page;
}

void KvCache::repeat_pages(std::int32_t sequence, std::int64_t length) {
  const std::int64_t filled = at(sequence).length;
  ensure(filled > 0 && filled % kPageTokens == 0 && length >= filled,
         "KV cache: repeat the pages of sequence ", sequence, " up to ", length, ": it holds ",
         filled, " positions, expected whole pages of ", kPageTokens, " and at most ", length);
  append(sequence, length - filled);
  const std::vector<std::int32_t>& own = at(sequence).pages;
  const auto first = static_cast<std::size_t>(filled / kPageTokens);
  for (std::size_t page = first; page < own.size(); ++page) {
    copy_page(own[page % first], own[page]);
  }
}

std::int32_t KvCache::take_page() {
  const std::int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void KvCache::release(std::int32_t page) {
  ensure(holders(page) > 0, "KV cache: page ", page, " is released and nobody holds it");
  if (--references_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
}

void KvCache::copy_page(std::int32_t from, std::int32_t to) {
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      memory_.copy(page_at(layer, part, to), page_at(layer, part, from), page_bytes(part));
    }
  }
}

}  // namespace leq

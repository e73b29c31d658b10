#include "cache/kv_transfer.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "cache/kv_saved_parts.h"

namespace leq {
namespace {

constexpr std::string_view kSite = "keys and values of a saved sequence";

// Keys or values of one layer for the heads of one rank: their pages, and their saved bytes.
struct SideOfLayer {
  const KvPages& pages;
  DeviceMemory& memory;
  const Layout& layout;
  const KvShape& shape;
  const SequencePlace& place;
  const SavedParts& saved;
  std::int64_t layer;
  KvPart part;
  const SavedHead& head;  // offsets of each head's numbers

  KvHead in_page(KvType type, int index) const {
    return {part, type, shape.kv_heads, shape.head_dim, index};
  }
  const KvPages::Side& side() const { return pages.side(layer, part); }
  // Calls visit(page, first position, number of positions) for each page with coded numbers ...
  template <class Visit>
  void each_page(Visit visit) const {
    const std::int64_t coded = head.positions();
    for (std::int64_t first = 0; first < coded; first += kPageTokens) {
      const std::int32_t page = place.pages[static_cast<std::size_t>(first / kPageTokens)];
      if (page < 0) continue;  // stays 0: no query reads it
      visit(pages.page_at(layer, part, page), first,
            std::min<std::int64_t>(kPageTokens, coded - first));
    }
  }
  // ... and for each f16 copy that is saved.
  template <class Visit>
  void each_copy(Visit visit) const {
    if (!side().copied) return;
    for (std::int64_t first = 0; first < saved.length; first += kPageTokens) {
      if (first >= saved.first_copies && first < saved.copies_from) continue;
      const auto index = static_cast<std::size_t>(first / kPageTokens);
      if (place.pages[index] < 0) continue;
      ensure(place.copies[index] >= 0, kSite, ": no f16 copy of position ", first);
      visit(pages.copy_at(layer, part, place.copies[index]), first,
            std::min<std::int64_t>(kPageTokens, saved.length - first));
    }
  }

  // Each page is downloaded once for all of its heads.
  void read(std::span<std::byte> out) const {
    if (shape.kv_heads == 0) return;
    std::vector<std::byte> page(side().page_bytes), numbers(head.coded_bytes(kPageTokens));
    each_page([&](const std::byte* from, std::int64_t first, std::int64_t count) {
      memory.read(from, page);
      for (int index = 0; index < shape.kv_heads; ++index) {
        layout.read_kv(in_page(side().type, index), page, numbers);
        std::byte* const to = out.data() + static_cast<std::size_t>(index) * head.bytes();
        head.each(first, count,
                  [&](std::size_t in_sequence, std::size_t in_numbers, std::size_t bytes) {
                    std::memcpy(to + in_sequence, numbers.data() + in_numbers, bytes);
                  });
      }
    });
    page.resize(pages.copy_page_bytes());
    numbers.resize(head.copy_bytes(kPageTokens));
    each_copy([&](const std::byte* from, std::int64_t first, std::int64_t count) {
      memory.read(from, page);
      for (int index = 0; index < shape.kv_heads; ++index) {
        layout.read_kv(in_page(KvType::f16, index), page, numbers);
        std::memcpy(
            out.data() + static_cast<std::size_t>(index) * head.bytes() + head.copies_at(first),
            numbers.data(), head.copy_bytes(count));
      }
    });
  }

  void write(std::span<const std::byte> in) const {
    if (shape.kv_heads == 0) return;
    std::vector<std::byte> page, numbers;
    each_page([&](std::byte* to, std::int64_t first, std::int64_t count) {
      page.assign(side().page_bytes, std::byte{0});
      for (int index = 0; index < shape.kv_heads; ++index) {
        numbers.assign(head.coded_bytes(kPageTokens), std::byte{0});
        const std::byte* const from = in.data() + static_cast<std::size_t>(index) * head.bytes();
        head.each(first, count,
                  [&](std::size_t in_sequence, std::size_t in_numbers, std::size_t bytes) {
                    std::memcpy(numbers.data() + in_numbers, from + in_sequence, bytes);
                  });
        layout.write_kv(in_page(side().type, index), page, numbers);
      }
      memory.write(to, page);
    });
    each_copy([&](std::byte* to, std::int64_t first, std::int64_t count) {
      page.assign(pages.copy_page_bytes(), std::byte{0});
      for (int index = 0; index < shape.kv_heads; ++index) {
        numbers.assign(head.copy_bytes(kPageTokens), std::byte{0});
        std::memcpy(
            numbers.data(),
            in.data() + static_cast<std::size_t>(index) * head.bytes() + head.copies_at(first),
            head.copy_bytes(count));
        layout.write_kv(in_page(KvType::f16, index), page, numbers);
      }
      memory.write(to, page);
    });
  }
};

}  // namespace

std::int64_t KvRanks::all_heads() const {
  std::int64_t all = 0;
  for (const Slice& slice : heads) all = std::max(all, slice.last);
  return all;
}

std::vector<Slice> KvRanks::given() const {
  std::vector<Slice> each;
  std::int64_t covered = 0;
  for (const Slice& slice : heads) {
    each.push_back({std::max(covered, slice.first), std::max(covered, slice.last)});
    if (each.back().empty() || slice.empty()) each.back() = {covered, covered};
    covered = each.back().last;
  }
  return each;
}

KvTransfer::KvTransfer(const KvPages& pages, DeviceMemory& memory, const Layout& layout,
                       const KvShape& own, const KvRanks& ranks)
    : pages_(pages), memory_(memory), layout_(layout), shape_(own), ranks_(ranks) {}

const Slice& KvTransfer::own_heads() const {
  return ranks_.heads[static_cast<std::size_t>(ranks_.ranks.rank())];
}

void KvTransfer::save(const SequencePlace& place, std::span<std::byte> out) const {
  const SavedParts saved = parts_of(pages_.residual(), place.length, place.copies_from);
  const std::vector<Slice> given = ranks_.given();
  const Slice mine = given[static_cast<std::size_t>(ranks_.ranks.rank())];
  std::vector<std::byte> own;
  std::size_t at = 0;
  each_part(shape_, saved, [&](std::int64_t layer, KvPart part, const SavedHead& head) {
    own.assign(static_cast<std::size_t>(shape_.kv_heads) * head.bytes(), std::byte{0});
    SideOfLayer{pages_, memory_, layout_, shape_, place, saved, layer, part, head}.read(own);
    std::vector<ByteRange> parts;
    for (const Slice& slice : given) {
      parts.push_back({static_cast<std::size_t>(slice.first) * head.bytes(),
                       static_cast<std::size_t>(slice.last) * head.bytes()});
    }
    const std::size_t all = static_cast<std::size_t>(ranks_.all_heads()) * head.bytes();
    SharedRows rows = {1, parts, own.data(), 0, nullptr, all};
    if (!mine.empty()) {
      rows.own += static_cast<std::size_t>(mine.first - own_heads().first) * head.bytes();
    }
    if (ranks_.ranks.leads()) {
      rows.all = out.data() + at;
      std::copy_n(rows.own, parts[0].count(), rows.all);
    }
    ranks_.ranks.gather({&rows, 1}, Receivers::leader, kSite);
    at += all;
  });
}

void KvTransfer::load(const SequencePlace& place, std::span<const std::byte> in) const {
  const SavedParts saved = parts_of(pages_.residual(), place.length, place.copies_from);
  std::vector<std::byte> whole;
  each_part(shape_, saved, [&](std::int64_t layer, KvPart part, const SavedHead& head) {
    const std::size_t all = static_cast<std::size_t>(ranks_.all_heads()) * head.bytes();
    if (ranks_.ranks.leads()) {
      whole.assign(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(all));
      in = in.subspan(all);
    }
    ranks_.ranks.broadcast(whole, kSite);
    ensure(whole.size() == all, kSite, ": ", whole.size(), " bytes, expected ", all);
    const auto own = std::span<const std::byte>(whole).subspan(
        static_cast<std::size_t>(own_heads().first) * head.bytes(),
        static_cast<std::size_t>(own_heads().count()) * head.bytes());
    SideOfLayer{pages_, memory_, layout_, shape_, place, saved, layer, part, head}.write(own);
  });
}

}  // namespace leq

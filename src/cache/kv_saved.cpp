#include "cache/kv_saved.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/half.h"
#include "cache/kv_cache.h"
#include "ranks/communicator.h"

namespace leq {
namespace {

constexpr std::string_view kSite = "keys and values of a saved sequence";

struct SavedHeader {
  std::array<char, 8> magic = {'L', 'E', 'Q', 'K', 'V', '0', '0', '3'};
  std::uint64_t form = 0;  // a hash of KvCache::form()
  std::int64_t length = 0;
  std::int64_t copies_from = 0;  // first position with an f16 copy, apart from the sinks' page
};
static_assert(sizeof(SavedHeader) == 32);

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

std::size_t sum(std::span<const std::size_t> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::size_t{0});
}

// Whether all f32, or f16, numbers are finite.
bool all_finite(std::span<const std::byte> bytes, bool wide) {
  const std::size_t size = wide ? sizeof(float) : sizeof(std::uint16_t);
  for (std::size_t at = 0; at + size <= bytes.size(); at += size) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, size);
    const std::uint32_t exponent = wide ? 0x7f800000u : 0x7c00u;
    if ((bits & exponent) == exponent) return false;
  }
  return true;
}

// A hash of per-layer types and key centres; 0 if there are neither.
std::uint32_t layer_types_of(const KvShape& shape) {
  std::uint32_t hash = shape.key_centre_check;
  const auto add = [&](std::int64_t layer, int number) {
    hash = (hash ^ static_cast<std::uint32_t>(layer * 256 + number + 1)) * 16777619u;
  };
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const KvType keys = shape.type(layer, KvPart::keys), values = shape.type(layer, KvPart::values);
    if (keys != shape.key_type || hash != 0) add(layer, static_cast<int>(keys));
    if (values != shape.value_type) add(layer, 128 + static_cast<int>(values));
  }
  return hash;
}

}  // namespace

void gather_saved(Communicator& ranks, std::span<const std::size_t> bytes,
                  std::span<const std::byte> own, std::span<std::byte> whole,
                  std::string_view site) {
  std::vector<ByteRange> parts;
  for (const std::size_t size : bytes) {
    const std::size_t first = parts.empty() ? 0 : parts.back().last;
    parts.push_back({first, first + size});
  }
  std::byte* const all = ranks.leads() ? whole.data() : nullptr;
  if (all != nullptr) std::ranges::copy(own, all);  // the leader is rank 0
  const SharedRows rows = {1, parts, own.data(), 0, all, parts.back().last};
  ranks.gather({&rows, 1}, Receivers::leader, site);
}

void scatter_saved(Communicator& ranks, std::span<const std::size_t> bytes,
                   std::span<const std::byte> whole, std::span<std::byte> own,
                   std::string_view site) {
  std::vector<std::byte> all(whole.begin(), whole.end());
  ranks.broadcast(all, site);
  ensure(all.size() == sum(bytes), site, ": ", all.size(), " bytes, expected ", sum(bytes));
  const std::size_t first = sum(bytes.first(static_cast<std::size_t>(ranks.rank())));
  if (!own.empty()) std::memcpy(own.data(), all.data() + first, own.size());
}

template <class Visit>
void KvTransfer::each_side(Visit visit) const {
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      visit(Side{layer, part, shape_.type(layer, part), pages_.side(layer, part).copied});
    }
  }
}

std::vector<std::size_t> KvTransfer::block_bytes(const Side& side, bool copy) const {
  std::vector<std::size_t> bytes;
  for (const Slice& heads : ranks_.heads) {
    const int own = static_cast<int>(heads.count());
    bytes.push_back(copy ? layout_.page_bytes(KvPart::keys, KvType::f16, own, shape_.head_dim)
                         : layout_.page_bytes(side.part, side.type, own, shape_.head_dim));
  }
  return bytes;
}

std::vector<std::size_t> KvTransfer::bytes_of_ranks(const Side& side,
                                                    const SequenceTransfer& what) const {
  std::vector<std::size_t> bytes = block_bytes(side, false);
  const std::vector<std::size_t> of_copies = block_bytes(side, true);
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    bytes[rank] *= what.pages.size();
    if (side.copied) bytes[rank] += of_copies[rank] * what.copies.size();
  }
  return bytes;
}

template <class Visit>
void KvTransfer::each_block(const Side& side, const SequenceTransfer& what, Visit visit) const {
  for (const std::int32_t page : what.pages) {
    visit(pages_.page_at(side.layer, side.part, page),
          pages_.side(side.layer, side.part).page_bytes);
  }
  if (!side.copied) return;
  for (const std::int32_t copy : what.copies) {
    visit(pages_.copy_at(side.layer, side.part, copy), pages_.copy_page_bytes());
  }
}

std::uint64_t KvTransfer::bytes(const SequenceTransfer& what) const {
  std::uint64_t bytes = 0;
  each_side([&](const Side& side) { bytes += sum(bytes_of_ranks(side, what)); });
  return bytes;
}

void KvTransfer::save(const SequenceTransfer& what, std::span<std::byte> out) const {
  std::vector<std::byte> own;
  each_side([&](const Side& side) {
    const std::vector<std::size_t> bytes = bytes_of_ranks(side, what);
    own.resize(bytes[static_cast<std::size_t>(ranks_.ranks.rank())]);
    std::span<std::byte> rest = own;
    each_block(side, what, [&](const std::byte* from, std::size_t size) {
      if (size > 0) memory_.read(from, rest.first(size));
      rest = rest.subspan(size);
    });
    const std::size_t all = ranks_.ranks.leads() ? sum(bytes) : 0;
    gather_saved(ranks_.ranks, bytes, own, out.first(all), kSite);
    out = out.subspan(all);
  });
}

void KvTransfer::load(const SequenceTransfer& what, std::span<const std::byte> in) const {
  std::vector<std::byte> own;
  each_side([&](const Side& side) {
    const std::vector<std::size_t> bytes = bytes_of_ranks(side, what);
    own.resize(bytes[static_cast<std::size_t>(ranks_.ranks.rank())]);
    const std::size_t all = ranks_.ranks.leads() ? sum(bytes) : 0;
    scatter_saved(ranks_.ranks, bytes, in.first(all), own, kSite);
    in = in.subspan(all);
    std::span<const std::byte> rest = own;
    each_block(side, what, [&](std::byte* to, std::size_t size) {
      if (size > 0) memory_.write(to, rest.first(size));
      rest = rest.subspan(size);
    });
  });
}

// Every layout ends a page with the scales and minima of all heads, if the type has codes.
std::size_t KvTransfer::first_not_finite(const SequenceTransfer& what,
                                         std::span<const std::byte> in) const {
  std::size_t at = 0, found = in.size();
  each_side([&](const Side& side) {
    const std::vector<std::size_t> of_page = block_bytes(side, false),
                                   of_copy = block_bytes(side, true);
    const KvScheme& scheme = kv_scheme(side.type);
    const std::size_t ends =
        2 * sizeof(std::uint16_t) * kv_scale_count(scheme, side.part, shape_.head_dim, kPageTokens);
    for (std::size_t rank = 0; rank < of_page.size(); ++rank) {
      const auto heads = static_cast<std::size_t>(ranks_.heads[rank].count());
      const std::size_t codes = scheme.coded() ? of_page[rank] - heads * ends : 0;
      for (std::size_t i = 0; i < what.pages.size(); ++i, at += of_page[rank]) {
        const auto numbers = in.subspan(at, of_page[rank]).subspan(codes);
        if (!all_finite(numbers, !scheme.coded() && scheme.bits == 32)) found = std::min(found, at);
      }
      for (std::size_t i = 0; side.copied && i < what.copies.size(); ++i, at += of_copy[rank]) {
        if (!all_finite(in.subspan(at, of_copy[rank]), false)) found = std::min(found, at);
      }
    }
  });
  return found;
}

std::string KvCache::form() const {
  const KvRanks* const among = leading_ ? &leading_->among : nullptr;
  const KvResidual& residual = pages_.residual();
  std::string heads;
  if (among == nullptr) heads = std::to_string(shape_.kv_heads);
  for (std::size_t i = 0; among != nullptr && i < among->heads.size(); ++i) {
    heads += (i > 0 ? "+" : "") + std::to_string(among->heads[i].count());
  }
  std::string text = std::string(layout_.kv_layout()) + ", " +
                     std::to_string(among == nullptr ? 1 : among->heads.size()) + " ranks, keys " +
                     std::string(kv_type_name(shape_.key_type)) + ", values " +
                     std::string(kv_type_name(shape_.value_type)) + ", " +
                     std::to_string(shape_.layers) + " layers of " + heads + " x " +
                     std::to_string(shape_.head_dim);
  if (residual.copies()) {
    text += ", sinks " + std::to_string(residual.sinks) + ", newest " +
            std::to_string(residual.recent) + ", blocks of " + std::to_string(residual.block);
  }
  if (shape_.window > 0) text += ", window " + std::to_string(shape_.window);
  if (const std::uint32_t types = layer_types_of(shape_); types != 0) {
    text += ", types of layers " + std::to_string(types);
  }
  return text;
}

// First position of the last pages that have copies. Includes one page more than the next query
// reads, if it has a copy, so that the loaded sequence can be truncated a little.
std::int64_t KvCache::saved_copies_from(std::int32_t sequence) const {
  const std::vector<std::int32_t>& own = at(sequence).pages;
  const auto copied = [&](std::int64_t page) {
    const std::int32_t index = own[static_cast<std::size_t>(page)];
    return index != kNoPage && copies_.has(index);
  };
  const std::int64_t all = at(sequence).length, last = std::ssize(own);
  std::int64_t page = std::max(first_visible(all), pages_.residual().closed_for(all) / kPageTokens);
  if (page < last && !copied(page)) return last * kPageTokens;
  if (page > 0 && page <= last && copied(page - 1)) --page;
  return std::min(page, last) * kPageTokens;
}

SequenceTransfer KvCache::transfer_of(std::int32_t sequence, SequenceTransfer::Kind kind,
                                      std::int64_t copies_from) const {
  SequenceTransfer what = {kind, {}, {}};
  const std::vector<std::int32_t>& own = at(sequence).pages;
  for (std::int64_t page = first_visible(length(sequence)); page < std::ssize(own); ++page) {
    const std::int32_t index = own[static_cast<std::size_t>(page)];
    what.pages.push_back(index);
    const bool sinks = page == 0 && pages_.residual().sinks > 0;
    if (!pages_.residual().copies() || (!sinks && page * kPageTokens < copies_from)) continue;
    ensure(copies_.has(index), kSite, ": page ", page, " has no f16 copy");
    what.copies.push_back(copies_.of(index));
  }
  return what;
}

// All ranks that share the heads take part. An error on one of them ends all of them.
void KvCache::transfer(const SequenceTransfer& what,
                       const std::function<void(const KvTransfer&)>& work) const {
  const KvRanks alone = {one_rank(), {{0, shape_.kv_heads}}};
  const KvTransfer side(pages_, memory_, layout_, shape_, leading_ ? leading_->among : alone);
  if (!leading_) return work(side);
  leading_->send(what);
  together(leading_->among.ranks, [&] { work(side); });
}

std::vector<std::byte> KvCache::save(std::int32_t sequence) const {
  const std::int64_t copies_from = pages_.residual().copies() ? saved_copies_from(sequence) : 0;
  const SavedHeader header = {
      .form = hash_of(form()), .length = length(sequence), .copies_from = copies_from};
  const auto what = transfer_of(sequence, SequenceTransfer::Kind::save, copies_from);
  std::vector<std::byte> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  transfer(what, [&](const KvTransfer& side) {
    bytes.resize(sizeof header + static_cast<std::size_t>(side.bytes(what)));
    side.save(what, std::span(bytes).subspan(sizeof header));
  });
  return bytes;
}

std::int64_t KvCache::saved_length(std::span<const std::byte> bytes, std::string_view source) {
  ByteReader reader(bytes, source);
  return reader.read<SavedHeader>("the header of a saved sequence").length;
}

void KvCache::load(std::int32_t sequence, std::span<const std::byte> bytes,
                   std::string_view source) {
  ByteReader reader(bytes, source);
  const auto header = reader.read<SavedHeader>("the header of a saved sequence");
  require(header.magic == SavedHeader().magic && header.form == hash_of(form()), source,
          ": not a sequence that was saved with the layout of this run: ", form());
  const std::int64_t length = header.length, copies_from = header.copies_from;
  require(length >= 0 && length <= shape_.positions, source, ": ", length,
          " positions, the context holds ", shape_.positions, "; raise ", Setting{"context"});
  const KvResidual& residual = pages_.residual();
  const std::int64_t open = residual.closed_for(length);
  const bool enough = residual.copies() ? copies_from <= open || open >= length : copies_from == 0;
  require(copies_from % kPageTokens == 0 && copies_from >= 0 && enough &&
              copies_from <= length + kPageTokens,
          source, ": f16 copies from position ", copies_from, " on, of ", length,
          "; the file is damaged");
  // The numbers of pages and copies are enough to check the bytes before anything is changed.
  const std::int64_t pages = pages_for(length), first = first_visible(length);
  SequenceTransfer what;
  what.pages.resize(static_cast<std::size_t>(pages - first));
  for (std::int64_t page = first; residual.copies() && page < pages; ++page) {
    const bool sinks = page == 0 && residual.sinks > 0;
    if (sinks || page * kPageTokens >= copies_from) what.copies.push_back(0);
  }
  const KvRanks alone = {one_rank(), {{0, shape_.kv_heads}}};
  const KvTransfer check(pages_, memory_, layout_, shape_, leading_ ? leading_->among : alone);
  const auto numbers = bytes.subspan(sizeof header);
  require(numbers.size() == check.bytes(what), source, ": expected ",
          sizeof header + check.bytes(what), " bytes, found ", bytes.size());
  const std::size_t bad = check.first_not_finite(what, numbers);
  require(bad == numbers.size(), source, ": numbers that are not finite at offset ",
          sizeof header + bad, "; the file is damaged");
  clear(sequence);
  grow(sequence, length, copies_from, first);
  what = transfer_of(sequence, SequenceTransfer::Kind::load, copies_from);
  transfer(what, [&](const KvTransfer& side) { side.load(what, numbers); });
  commit();
}

}  // namespace leq

// The memory of a sequence as bytes: its pages and f16 copies of pages, as the device stores them.
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
  std::uint32_t copies_from = 0;  // first position with an f16 copy, apart from the sinks' page
  std::uint32_t frames_from = 0;  // first position in layers with windows
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

// A hash of per-layer types, heads and windows, and of key centres; 0 if there are none.
std::uint32_t layer_types_of(const KvShape& shape) {
  std::uint32_t hash = shape.key_centre_check;
  const auto add = [&](std::int64_t layer, int number) {
    hash = (hash ^ static_cast<std::uint32_t>(layer * 256 + number + 1)) * 16777619u;
  };
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const KvType keys = shape.type(layer, KvPart::keys), values = shape.type(layer, KvPart::values);
    if (keys != shape.key_type || hash != 0) add(layer, static_cast<int>(keys));
    if (values != shape.value_type) add(layer, 128 + static_cast<int>(values));
    if (!shape.layer_windowed.empty() && shape.windowed(layer)) add(layer, 127);
    if (shape.heads(layer) == shape.heads(0)) continue;
    add(layer, static_cast<int>(shape.heads(layer).count));
    add(layer, static_cast<int>(shape.heads(layer).dims));
  }
  return hash;
}

}  // namespace

std::vector<std::size_t> KvPages::block_bytes(const Side& side, bool copy,
                                              const KvRanks& ranks) const {
  std::vector<std::size_t> bytes;
  for (const std::vector<KvHeads>& heads : ranks.heads) {
    const auto kv_heads = static_cast<int>(heads[side.layer].count);
    const auto head_dim = static_cast<int>(heads[side.layer].dims);
    bytes.push_back(copy ? layout_.page_bytes(KvPart::keys, KvType::f16, kv_heads, head_dim)
                         : layout_.page_bytes(side.part, side.type, kv_heads, head_dim));
  }
  return bytes;
}

std::vector<std::size_t> KvPages::bytes_of_ranks(const Side& side, const SequenceTransfer& what,
                                                 const KvRanks& ranks) const {
  std::vector<std::size_t> bytes = block_bytes(side, false, ranks);
  const std::vector<std::size_t> of_copies = block_bytes(side, true, ranks);
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    bytes[rank] *= places(side, what).size();
    if (side.copied) bytes[rank] += of_copies[rank] * what.copies.size();
  }
  return bytes;
}

template <class Visit>
void KvPages::each_block(const Side& side, const SequenceTransfer& what, Visit visit) const {
  if (side.page_bytes == 0) return;  // a rank without heads
  for (const std::int32_t place : places(side, what)) {
    visit(place < 0 ? nullptr : page_at(side, place), side.page_bytes);
  }
  if (!side.copied) return;
  for (const std::int32_t copy : what.copies) visit(copy_at(side, copy), side.copy_page_bytes);
}

std::uint64_t KvPages::saved_bytes(const SequenceTransfer& what, const KvRanks& ranks) const {
  std::uint64_t bytes = 0;
  for (const Side& side : sides_) bytes += sum(bytes_of_ranks(side, what, ranks));
  return bytes;
}

void KvPages::save(const SequenceTransfer& what, const KvRanks& ranks,
                   std::span<std::byte> out) const {
  std::vector<std::byte> own;
  for (const Side& side : sides_) {
    const std::vector<std::size_t> bytes = bytes_of_ranks(side, what, ranks);
    const std::span<std::byte> all = out.first(ranks.ranks.leads() ? sum(bytes) : 0);
    const bool alone = ranks.ranks.size() == 1;
    own.resize(alone ? 0 : bytes[static_cast<std::size_t>(ranks.ranks.rank())]);
    std::span<std::byte> rest = alone ? all : std::span(own);
    each_block(side, what, [&](const std::byte* from, std::size_t size) {
      memory_.read(from, rest.first(size));
      rest = rest.subspan(size);
    });
    if (!alone) gather_to_leader(ranks.ranks, bytes, own, all, kSite);
    out = out.subspan(all.size());
  }
}

void KvPages::load(const SequenceTransfer& what, const KvRanks& ranks,
                   std::span<const std::byte> in) const {
  std::vector<std::byte> own;
  for (const Side& side : sides_) {
    const std::vector<std::size_t> bytes = bytes_of_ranks(side, what, ranks);
    const std::span<const std::byte> all = in.first(ranks.ranks.leads() ? sum(bytes) : 0);
    std::span<const std::byte> rest = all;
    if (ranks.ranks.size() > 1) {
      own.resize(bytes[static_cast<std::size_t>(ranks.ranks.rank())]);
      scatter_from_leader(ranks.ranks, bytes, all, own, kSite);
      rest = own;
    }
    each_block(side, what, [&](std::byte* to, std::size_t size) {
      if (to != nullptr) memory_.write(to, rest.first(size));
      rest = rest.subspan(size);
    });
    in = in.subspan(all.size());
  }
}

// Every layout ends a page with the scales and minima of all heads, if the type has codes.
std::size_t KvPages::first_not_finite(const SequenceTransfer& what, const KvRanks& ranks,
                                      std::span<const std::byte> in) const {
  std::size_t at = 0;
  for (const Side& side : sides_) {
    const std::vector<std::size_t> of_page = block_bytes(side, false, ranks),
                                   of_copy = block_bytes(side, true, ranks);
    const KvScheme& scheme = kv_scheme(side.type);
    for (std::size_t rank = 0; rank < of_page.size(); ++rank) {
      const auto [heads, dims] = ranks.heads[rank][side.layer];
      const std::size_t ends =
          2 * sizeof(std::uint16_t) *
          kv_scale_count(scheme, side.part, static_cast<int>(dims), kPageTokens);
      const std::size_t codes =
          scheme.coded() ? of_page[rank] - static_cast<std::size_t>(heads) * ends : 0;
      for (std::size_t i = 0; i < places(side, what).size(); ++i, at += of_page[rank]) {
        const auto numbers = in.subspan(at, of_page[rank]).subspan(codes);
        if (!all_finite(numbers, !scheme.coded() && scheme.bits == 32)) return at;
      }
      for (std::size_t i = 0; side.copied && i < what.copies.size(); ++i, at += of_copy[rank]) {
        if (!all_finite(in.subspan(at, of_copy[rank]), false)) return at;
      }
    }
  }
  return in.size();
}

KvRanks KvCache::ranks() const {
  if (leading_) return leading_->among;
  std::vector<KvHeads> heads;
  for (std::int64_t layer = 0; layer < shape().layers; ++layer)
    heads.push_back(shape().heads(layer));
  return {one_rank(), {std::move(heads)}};
}

std::string KvCache::form() const {
  const KvRanks among = ranks();
  const KvShape& own = shape();
  const KvResidual& residual = pages_.residual();
  std::string heads;
  for (const std::vector<KvHeads>& of_rank : among.heads) {
    heads += (heads.empty() ? "" : "+") + std::to_string(of_rank.at(0).count);
  }
  std::string text = std::string(pages_.layout_name()) + ", " + std::to_string(among.heads.size()) +
                     " ranks, keys " + std::string(kv_type_name(own.key_type)) + ", values " +
                     std::string(kv_type_name(own.value_type)) + ", " + std::to_string(own.layers) +
                     " layers of " + heads + " x " + std::to_string(own.head_dim);
  if (residual.copies()) {
    text += ", sinks " + std::to_string(residual.sinks) + ", newest " +
            std::to_string(residual.recent) + ", blocks of " + std::to_string(residual.block);
  }
  if (own.window > 0) text += ", windows of " + std::to_string(own.window);
  if (const std::uint32_t types = layer_types_of(own); types != 0) {
    text += ", types of layers " + std::to_string(types);
  }
  return text;
}

// First position of the last pages that have copies. Includes one page more than the next query
// reads, if it has a copy, so that the loaded sequence can be truncated a little.
std::int64_t KvCache::saved_copies_from(std::int32_t sequence) const {
  const std::vector<std::int32_t>& own = at(sequence).pages;
  const auto copied = [&](std::int64_t page) {
    return copies_.has(own[static_cast<std::size_t>(page)]);
  };
  const std::int64_t all = at(sequence).length, last = std::ssize(own);
  std::int64_t page = pages_.residual().closed_for(all) / kPageTokens;
  if (page < last && !copied(page)) return last * kPageTokens;
  if (page > 0 && page <= last && copied(page - 1)) --page;
  return std::min(page, last) * kPageTokens;
}

// First position of the last pages that have frames.
std::int64_t KvCache::saved_frames_from(std::int32_t sequence) const {
  if (shape().window == 0) return 0;
  const std::vector<std::int32_t>& own = at(sequence).pages;
  std::int64_t page = std::ssize(own);
  while (page > 0 && frames_.has(own[static_cast<std::size_t>(page - 1)])) --page;
  return page * kPageTokens;
}

SequenceTransfer KvCache::transfer_of(std::int32_t sequence, SequenceTransfer::Kind kind,
                                      std::int64_t copies_from, std::int64_t frames_from) const {
  SequenceTransfer what = {.kind = kind};
  const std::vector<std::int32_t>& own = at(sequence).pages;
  for (std::int64_t page = 0; page < std::ssize(own); ++page) {
    const std::int32_t index = own[static_cast<std::size_t>(page)];
    what.pages.push_back(index);
    if (shape().window > 0 && page * kPageTokens >= frames_from) {
      what.frames.push_back(frames_.of(index));
    }
    const bool sinks = page == 0 && pages_.residual().sinks > 0;
    if (!pages_.residual().copies() || (!sinks && page * kPageTokens < copies_from)) continue;
    ensure(copies_.has(index), kSite, ": page ", page, " has no f16 copy");
    what.copies.push_back(copies_.of(index));
  }
  return what;
}

// All ranks that share the heads take part. An error on one of them ends all of them.
void KvCache::transfer(const SequenceTransfer& what, const std::function<void()>& work) const {
  if (!leading_) return work();
  leading_->send(what);
  together(leading_->among.ranks, work);
}

std::vector<std::byte> KvCache::save(std::int32_t sequence) const {
  const std::int64_t copies_from = pages_.residual().copies() ? saved_copies_from(sequence) : 0;
  const std::int64_t frames_from = saved_frames_from(sequence);
  const SavedHeader header = {.form = hash_of(form()),
                              .length = length(sequence),
                              .copies_from = static_cast<std::uint32_t>(copies_from),
                              .frames_from = static_cast<std::uint32_t>(frames_from)};
  const auto what = transfer_of(sequence, SequenceTransfer::Kind::save, copies_from, frames_from);
  std::vector<std::byte> bytes;
  transfer(what, [&] {
    const KvRanks among = ranks();
    bytes.resize(sizeof header + static_cast<std::size_t>(pages_.saved_bytes(what, among)));
    std::memcpy(bytes.data(), &header, sizeof header);
    pages_.save(what, among, std::span(bytes).subspan(sizeof header));
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
  require(length >= 0 && length <= shape().positions, source, ": ", length,
          " positions, the context holds ", shape().positions, "; raise ", Setting{"context"});
  const KvResidual& residual = pages_.residual();
  const std::int64_t open = residual.closed_for(length);
  // Copies begin where the next query reads them, or up to a page earlier, as saved_copies_from
  // says.
  const bool enough = residual.copies() ? (copies_from <= open || open >= length) &&
                                              copies_from / kPageTokens + 1 >= open / kPageTokens
                                        : copies_from == 0;
  require(copies_from % kPageTokens == 0 && enough && copies_from <= length + kPageTokens, source,
          ": f16 copies from position ", copies_from, " on, of ", length, "; the file is damaged");
  const std::int64_t first_frame = header.frames_from / kPageTokens;
  require(header.frames_from % kPageTokens == 0 && first_frame <= first_visible(length), source,
          ": windows from position ", header.frames_from, " on, of ", length,
          "; the file is damaged");
  // The numbers of pages and copies are enough to check the bytes before anything is changed.
  const std::int64_t pages = pages_for(length);
  SequenceTransfer what;
  what.pages.resize(static_cast<std::size_t>(pages));
  if (shape().window > 0) what.frames.resize(static_cast<std::size_t>(pages - first_frame));
  for (std::int64_t page = 0; residual.copies() && page < pages; ++page) {
    const bool sinks = page == 0 && residual.sinks > 0;
    if (sinks || page * kPageTokens >= copies_from) what.copies.push_back(0);
  }
  const KvRanks among = ranks();
  const auto numbers = bytes.subspan(sizeof header);
  const std::uint64_t expected = pages_.saved_bytes(what, among);
  require(numbers.size() == expected, source, ": expected ", sizeof header + expected,
          " bytes, found ", bytes.size());
  const std::size_t bad = pages_.first_not_finite(what, among, numbers);
  require(bad == numbers.size(), source, ": numbers that are not finite at offset ",
          sizeof header + bad, "; the file is damaged");
  clear(sequence);
  grow(sequence, length, copies_from, std::max(first_held(length), first_frame));
  const Sequence& target = at(sequence);
  for (std::int64_t page = target.passed; page-- > first_frame && frames_.any_free();) {
    frames_.give(target.pages[static_cast<std::size_t>(page)]);
    frames_.pass(target.pages[static_cast<std::size_t>(page)]);
  }
  what = transfer_of(sequence, SequenceTransfer::Kind::load, copies_from, header.frames_from);
  transfer(what, [&] { pages_.load(what, among, numbers); });
  commit();
}

}  // namespace leq

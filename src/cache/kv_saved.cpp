// Converts one sequence of the cache to portable bytes and back (KvCache::save and load).
#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "cache/kv_cache.h"
#include "cache/kv_saved_parts.h"
#include "ranks/communicator.h"

namespace leq {
namespace {

constexpr std::array<char, 8> kMagic = {'L', 'E', 'Q', 'K', 'V', '0', '0', '1'};
constexpr std::array<char, 8> kCopiesMagic = {'L', 'E', 'Q', 'K', 'V', '0', '0', '2'};

struct SavedHeader {
  std::array<char, 8> magic = kMagic;
  std::uint32_t key_type = 0;
  std::uint32_t value_type = 0;
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t length = 0;
};
static_assert(sizeof(SavedHeader) == 48);

// The second part of the header, present if keys or values have f16 copies.
struct SavedResidual {
  std::int32_t sinks = 0, recent = 0, block = 0, layer_types = 0;  // layer_types: a checksum
  std::int64_t copies_from = 0;                                    // first position with f16 copies
};
static_assert(sizeof(SavedResidual) == 24);

// A hash of per-layer types and key centres; 0 if there are neither.
std::int32_t layer_types_of(const KvShape& shape) {
  std::uint32_t hash = shape.key_centre_check;
  const auto add = [&](std::int64_t layer, int number) {
    hash = (hash ^ static_cast<std::uint32_t>(layer * 256 + number + 1)) * 16777619u;
  };
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const KvType keys = shape.type(layer, KvPart::keys), values = shape.type(layer, KvPart::values);
    if (keys != shape.key_type || hash != 0) add(layer, static_cast<int>(keys));
    if (values != shape.value_type) add(layer, 128 + static_cast<int>(values));
  }
  return static_cast<std::int32_t>(hash & 0x7fffffffu);
}

SavedHeader header_of(const KvShape& shape, std::int64_t kv_heads, std::int64_t length,
                      const KvResidual& residual) {
  SavedHeader header;
  if (residual.copies() || layer_types_of(shape) != 0) header.magic = kCopiesMagic;
  header.key_type = static_cast<std::uint32_t>(shape.key_type);
  header.value_type = static_cast<std::uint32_t>(shape.value_type);
  header.layers = shape.layers;
  header.kv_heads = kv_heads;
  header.head_dim = shape.head_dim;
  header.length = length;
  return header;
}

void require_residual(const SavedResidual& saved, const SavedResidual& want,
                      const KvResidual& residual, std::int64_t length, std::string_view source) {
  require(saved.sinks == want.sinks && saved.recent == want.recent && saved.block == want.block &&
              saved.layer_types == want.layer_types,
          source, ": saved with ", saved.sinks, " sinks, ", saved.recent,
          " newest positions in f16 and blocks of ", saved.block, "; this run has ", want.sinks,
          " sinks, ", want.recent, " newest positions and blocks of ", want.block,
          ", or other types in some layers; run with the ", Setting{"kv_sinks"}, " and ",
          Setting{"kv_recent"}, " that it was saved with");
  const std::int64_t open = residual.closed_for(length);
  const bool whole_pages = saved.copies_from % kPageTokens == 0 && saved.copies_from >= 0;
  const bool enough = saved.copies_from <= open || open >= length;
  require(whole_pages && enough && saved.copies_from <= length + kPageTokens, source,
          ": f16 copies from position ", saved.copies_from, " on, of ", length,
          "; the file is damaged");
}

// The contents of a saved sequence that fits this cache, and the bytes after its header.
struct Opened {
  SavedParts parts;
  std::span<const std::byte> numbers;
  std::size_t offset = 0;  // offset of the numbers
};

Opened open_saved(const KvCache& cache, std::int64_t kv_heads, std::span<const std::byte> bytes,
                  std::string_view source) {
  const KvShape& shape = cache.shape();
  const KvResidual& residual = cache.residual();
  ByteReader reader(bytes, source);
  const auto header = reader.read<SavedHeader>("the header of a saved sequence");
  require(header.magic == kMagic || header.magic == kCopiesMagic, source, ": not a saved sequence");
  const SavedHeader want = header_of(shape, kv_heads, header.length, residual);
  require(header.layers == want.layers && header.kv_heads == want.kv_heads &&
              header.head_dim == want.head_dim,
          source, ": saved from ", header.layers, " layers of ", header.kv_heads, " x ",
          header.head_dim, ", this model has ", want.layers, " of ", want.kv_heads, " x ",
          want.head_dim);
  require(header.key_type == want.key_type && header.value_type == want.value_type &&
              header.magic == want.magic,
          source, ": saved with other KV types; run with the ", Setting{"key_type"}, " and ",
          Setting{"value_type"}, " that it was saved with (here ", kv_type_name(shape.key_type),
          " and ", kv_type_name(shape.value_type), ")");
  require(header.length >= 0 && header.length <= shape.positions, source, ": ", header.length,
          " positions, the context holds ", shape.positions, "; raise ", Setting{"context"});
  SavedResidual saved;
  if (header.magic == kCopiesMagic) {
    saved = reader.read<SavedResidual>("the residual of a saved sequence");
    require_residual(saved,
                     {residual.sinks, residual.recent, residual.block, layer_types_of(shape), 0},
                     residual, header.length, source);
  }
  Opened opened = {parts_of(residual, header.length, saved.copies_from), {}, reader.offset()};
  const std::uint64_t expected = opened.offset + saved_bytes(shape, kv_heads, opened.parts);
  require(bytes.size() == expected, source, ": expected ", expected, " bytes, found ",
          bytes.size());
  opened.numbers = bytes.subspan(opened.offset);
  return opened;
}

// Rejects NaN, which would spread to every later token.
void require_finite(const KvShape& shape, std::int64_t kv_heads, const Opened& opened,
                    std::string_view source) {
  std::size_t offset = 0;
  each_part(shape, opened.parts, [&](std::int64_t, KvPart, const SavedHead& pieces) {
    for (std::int64_t head = 0; head < kv_heads; ++head) {
      const auto own = opened.numbers.subspan(offset, pieces.bytes());
      require(pieces.finite(own), source, ": numbers that are not finite at offset ",
              offset + opened.offset, "; the file is damaged");
      offset += own.size();
    }
  });
}

}  // namespace

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

SequencePlace KvCache::place_of(std::int32_t sequence, std::int64_t copies_from) const {
  SequencePlace place = {length(sequence), copies_from, at(sequence).pages, {}};
  for (const std::int32_t page : place.pages) {
    place.copies.push_back(page == kNoPage || copies_.count() == 0 ? -1 : copies_.of(page));
  }
  return place;
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

std::int64_t KvCache::all_kv_heads() const {
  return leading_ ? leading_->among.all_heads() : shape_.kv_heads;
}

std::vector<std::byte> KvCache::save(std::int32_t sequence) const {
  const std::int64_t all = length(sequence);
  const std::int64_t copies_from = pages_.residual().copies() ? saved_copies_from(sequence) : 0;
  const SavedParts saved = parts_of(pages_.residual(), all, copies_from);
  const SavedHeader header = header_of(shape_, all_kv_heads(), all, pages_.residual());
  const SavedResidual residual = {pages_.residual().sinks, pages_.residual().recent,
                                  pages_.residual().block, layer_types_of(shape_), copies_from};
  const std::size_t residual_bytes = header.magic == kMagic ? 0 : sizeof residual;
  std::vector<std::byte> bytes(
      sizeof header + residual_bytes +
      static_cast<std::size_t>(saved_bytes(shape_, all_kv_heads(), saved)));
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, &residual, residual_bytes);
  const SequenceTransfer what = {SequenceTransfer::Kind::save, place_of(sequence, copies_from)};
  transfer(what, [&](const KvTransfer& side) {
    side.save(what.place, std::span(bytes).subspan(sizeof header + residual_bytes));
  });
  return bytes;
}

std::int64_t KvCache::saved_length(std::span<const std::byte> bytes, std::string_view source) {
  ByteReader reader(bytes, source);
  return reader.read<SavedHeader>("the header of a saved sequence").length;
}

void KvCache::load(std::int32_t sequence, std::span<const std::byte> bytes,
                   std::string_view source) {
  const Opened opened = open_saved(*this, all_kv_heads(), bytes, source);
  const SavedParts& saved = opened.parts;
  require_finite(shape_, all_kv_heads(), opened, source);
  clear(sequence);
  grow(sequence, saved.length, saved.copies_from, first_visible(saved.length));
  const SequenceTransfer what = {SequenceTransfer::Kind::load,
                                 place_of(sequence, saved.copies_from)};
  transfer(what, [&](const KvTransfer& side) { side.load(what.place, opened.numbers); });
  commit();
}

}  // namespace leq

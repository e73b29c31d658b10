// One sequence of the cache as portable bytes, and back (KvCache::save and load).
#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "base/half.h"
#include "cache/kv_cache.h"

namespace leq {
namespace {

constexpr std::array<char, 8> kMagic = {'L', 'E', 'Q', 'K', 'V', '0', '0', '1'};
constexpr std::array<char, 8> kCopiesMagic = {'L', 'E', 'Q', 'K', 'V', '0', '0', '2'};

constexpr std::string_view kSharedHeads =
    "ranks share the heads of this cache, which cannot be saved or loaded as a whole; run on one";

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

// Follows where some side has f16 copies.
struct SavedZones {
  std::int32_t sinks = 0, recent = 0, block = 0, layer_types = 0;  // the last: their checksum
  std::int64_t copies_from = 0;  // copies of the positions from here on
};
static_assert(sizeof(SavedZones) == 24);

// Which layers have keys of another type, and what keys are stored less; 0 where there is neither.
std::int32_t layer_types_of(const KvShape& shape) {
  std::uint32_t hash = shape.key_centre_check;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const KvType type = shape.type(layer, KvPart::keys);
    if (type == shape.key_type && hash == 0) continue;
    hash =
        (hash ^ static_cast<std::uint32_t>(layer * 256 + static_cast<int>(type) + 1)) * 16777619u;
  }
  return static_cast<std::int32_t>(hash & 0x7fffffffu);
}

SavedHeader header_of(const KvShape& shape, std::int64_t length, const KvZones& zones) {
  SavedHeader header;
  if (zones.copies() || layer_types_of(shape) != 0) header.magic = kCopiesMagic;
  header.key_type = static_cast<std::uint32_t>(shape.key_type);
  header.value_type = static_cast<std::uint32_t>(shape.value_type);
  header.layers = shape.layers;
  header.kv_heads = shape.kv_heads;
  header.head_dim = shape.head_dim;
  header.length = length;
  return header;
}

// What is saved of a sequence of `length` positions: codes of the first ones where the scheme makes
// blocks, else numbers of all; and f16 copies of the first page and of the last ones.
struct SavedParts {
  std::int64_t length = 0, coded = 0, copies_from = 0, first_copies = 0;

  std::int64_t copies() const {
    return first_copies + std::max<std::int64_t>(0, length - copies_from);
  }
};

SavedParts parts_of(const KvZones& zones, std::int64_t length, std::int64_t copies_from) {
  SavedParts parts = {length, zones.sealed(length), copies_from, 0};
  if (zones.sinks > 0 && copies_from > 0)
    parts.first_copies = std::min<std::int64_t>(length, kPageTokens);
  return parts;
}

// One kv head's part of a saved sequence and of a page: numbers, then scales and minima where the
// scheme has them, then f16 copies where it has some.
class Pieces {
 public:
  Pieces(KvType type, KvPart part, int head_dim, const SavedParts& saved)
      : scheme_(kv_scheme(type)), part_(part), head_dim_(head_dim), saved_(saved) {}

  // Positions whose numbers are saved.
  std::int64_t positions() const { return scheme_.blocked() ? saved_.coded : saved_.length; }
  // Of the numbers of `positions`, and of their scales or minima.
  std::size_t numbers(std::int64_t positions) const {
    return static_cast<std::size_t>(positions) * kv_number_bytes(scheme_, head_dim_);
  }
  std::size_t ends(std::int64_t positions) const {
    return kv_scale_count(scheme_, part_, head_dim_, positions) * sizeof(std::uint16_t);
  }
  std::size_t coded_bytes(std::int64_t positions) const {
    return numbers(positions) + 2 * ends(positions);
  }
  std::size_t copy_bytes(std::int64_t positions) const {
    return static_cast<std::size_t>(positions) * static_cast<std::size_t>(head_dim_) *
           sizeof(std::uint16_t);
  }
  std::size_t bytes() const {
    return coded_bytes(positions()) + (scheme_.blocked() ? copy_bytes(saved_.copies()) : 0);
  }
  // Calls copy(offset in the saved part, offset in the page, bytes) for `count` positions from
  // `first`, the first of a page, on.
  template <class Copy>
  void each(std::int64_t first, std::int64_t count, Copy copy) const {
    const std::int64_t all = positions();
    copy(numbers(first), std::size_t{0}, numbers(count));
    if (!scheme_.coded()) return;
    const std::size_t of_page = ends(kPageTokens);
    copy(numbers(all) + ends(first), numbers(kPageTokens), ends(count));
    copy(numbers(all) + ends(all) + ends(first), numbers(kPageTokens) + of_page, ends(count));
  }
  // Where copies of positions from `first` on lie in the saved part.
  std::size_t copies_at(std::int64_t first) const {
    const std::int64_t before =
        first < saved_.copies_from ? first : saved_.first_copies + first - saved_.copies_from;
    return coded_bytes(positions()) + copy_bytes(before);
  }
  // Attention would spread a NaN to every later token.
  bool finite(std::span<const std::byte> bytes) const {
    if (!scheme_.coded() && scheme_.bits == 32) {
      return all_finite<float>(bytes, [](float x) { return x; });
    }
    const std::size_t codes = scheme_.coded() ? numbers(positions()) : 0;
    return all_finite<std::uint16_t>(bytes.subspan(codes), f16_to_f32);
  }

 private:
  template <class Number, class Widen>
  static bool all_finite(std::span<const std::byte> bytes, Widen widen) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(Number)) {
      Number number;
      std::memcpy(&number, bytes.data() + at, sizeof number);
      const float value = widen(number);
      if (!(value - value == 0.0f)) return false;
    }
    return true;
  }

  const KvScheme& scheme_;
  KvPart part_;
  int head_dim_;
  SavedParts saved_;
};

// Keys and values of every layer in the order of saved sequences: each is kv_heads parts.
template <class Visit>
void each_part(const KvShape& shape, const SavedParts& saved, Visit visit) {
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      visit(layer, part, Pieces(shape.type(layer, part), part, shape.head_dim, saved));
    }
  }
}

std::uint64_t saved_bytes(const KvShape& shape, const SavedParts& saved) {
  std::uint64_t bytes = 0;
  each_part(shape, saved, [&](std::int64_t, KvPart, const Pieces& pieces) {
    bytes += static_cast<std::uint64_t>(shape.kv_heads) * pieces.bytes();
  });
  return bytes;
}

void require_zones(const SavedZones& saved, const SavedZones& want, const KvZones& zones,
                   std::int64_t length, std::string_view source) {
  require(saved.sinks == want.sinks && saved.recent == want.recent && saved.block == want.block &&
              saved.layer_types == want.layer_types,
          source, ": saved with ", saved.sinks, " sinks, ", saved.recent,
          " newest positions in f16 and blocks of ", saved.block, " (here ", want.sinks, ", ",
          want.recent, ", ", want.block, "), or with wider keys in other layers; run with the ",
          Setting{"kv_sinks"}, ", ", Setting{"kv_recent"}, " and ", Setting{"kv_block"},
          " that it was saved with");
  const std::int64_t open = zones.closed_for(length);
  const bool whole_pages = saved.copies_from % kPageTokens == 0 && saved.copies_from >= 0;
  const bool enough = saved.copies_from <= open || open >= length;
  require(whole_pages && enough && saved.copies_from <= length + kPageTokens, source,
          ": f16 copies from position ", saved.copies_from, " on, of ", length,
          "; the file is damaged");
}

// What a saved sequence that fits this cache holds, and the bytes after its header.
struct Opened {
  SavedParts parts;
  std::span<const std::byte> numbers;
  std::size_t offset = 0;  // of the numbers
};

Opened open_saved(const KvCache& cache, std::span<const std::byte> bytes, std::string_view source) {
  const KvShape& shape = cache.shape();
  const KvZones& zones = cache.zones();
  ByteReader reader(bytes, source);
  const auto header = reader.read<SavedHeader>("the header of a saved sequence");
  require(header.magic == kMagic || header.magic == kCopiesMagic, source, ": not a saved sequence");
  const SavedHeader want = header_of(shape, header.length, zones);
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
  SavedZones saved;
  if (header.magic == kCopiesMagic) {
    saved = reader.read<SavedZones>("the zones of a saved sequence");
    require_zones(saved, {zones.sinks, zones.recent, zones.block, layer_types_of(shape), 0}, zones,
                  header.length, source);
  }
  Opened opened = {parts_of(zones, header.length, saved.copies_from), {}, reader.offset()};
  const std::uint64_t expected = opened.offset + saved_bytes(shape, opened.parts);
  require(bytes.size() == expected, source, ": expected ", expected, " bytes, found ",
          bytes.size());
  opened.numbers = bytes.subspan(opened.offset);
  return opened;
}

// Attention would spread a NaN to every later token.
void require_finite(const KvShape& shape, const Opened& opened, std::string_view source) {
  std::size_t offset = 0;
  each_part(shape, opened.parts, [&](std::int64_t, KvPart, const Pieces& pieces) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      const auto own = opened.numbers.subspan(offset, pieces.bytes());
      require(pieces.finite(own), source, ": numbers that are not finite at offset ",
              offset + opened.offset, "; the file is damaged");
      offset += own.size();
    }
  });
}

}  // namespace

// The first of the last pages that have copies, one more than the next query reads where it is
// there: the sequence may be cut back a little.
std::int64_t KvCache::saved_copies_from(std::int32_t sequence) const {
  const std::vector<std::int32_t>& own = at(sequence).pages;
  const auto copied = [&](std::int64_t page) {
    const std::int32_t index = own[static_cast<std::size_t>(page)];
    return index != kNoPage && copies_.has(index);
  };
  const std::int64_t all = at(sequence).length, last = std::ssize(own);
  std::int64_t page = std::max(first_seen(all), pages_.zones().closed_for(all) / kPageTokens);
  if (page < last && !copied(page)) return last * kPageTokens;
  if (page > 0 && page <= last && copied(page - 1)) --page;
  return std::min(page, last) * kPageTokens;
}

// A page comes to the host once, for all its heads.
std::vector<std::byte> KvCache::save(std::int32_t sequence) const {
  require(!follow_, ErrorKind::bad_setting, kSharedHeads);
  const std::int64_t all = length(sequence);
  const std::int64_t copies_from = pages_.zones().copies() ? saved_copies_from(sequence) : 0;
  const SavedParts saved = parts_of(pages_.zones(), all, copies_from);
  const SavedHeader header = header_of(shape_, all, pages_.zones());
  const SavedZones zones = {pages_.zones().sinks, pages_.zones().recent, pages_.zones().block,
                            layer_types_of(shape_), copies_from};
  const std::size_t zone_bytes = header.magic == kMagic ? 0 : sizeof zones;
  std::vector<std::byte> bytes(sizeof header + zone_bytes +
                               static_cast<std::size_t>(saved_bytes(shape_, saved)));
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, &zones, zone_bytes);
  std::byte* target = bytes.data() + sizeof header + zone_bytes;
  std::vector<std::byte> page, numbers;
  each_part(shape_, saved, [&](std::int64_t layer, KvPart part, const Pieces& pieces) {
    const KvPages::Side& own = pages_.side(layer, part);
    const auto head_of = [&](KvType type, int head) {
      return KvHead{part, type, shape_.kv_heads, shape_.head_dim, head};
    };
    const std::int64_t coded = pieces.positions();
    for (std::int64_t first = 0; first < coded; first += kPageTokens) {
      if (page_of(sequence, first) == kNoPage) continue;  // zeros that nobody sees
      page.resize(own.page_bytes);
      numbers.resize(pieces.coded_bytes(kPageTokens));
      memory_.read(pages_.page_at(layer, part, page_of(sequence, first)), page);
      for (int head = 0; head < shape_.kv_heads; ++head) {
        layout_.read_kv(head_of(own.type, head), page, numbers);
        std::byte* const to = target + static_cast<std::size_t>(head) * pieces.bytes();
        pieces.each(first, std::min<std::int64_t>(kPageTokens, coded - first),
                    [&](std::size_t in_sequence, std::size_t in_page, std::size_t count) {
                      std::memcpy(to + in_sequence, numbers.data() + in_page, count);
                    });
      }
    }
    for (std::int64_t first = 0; own.copied && first < all; first += kPageTokens) {
      if (first >= saved.first_copies && first < copies_from) continue;
      if (page_of(sequence, first) == kNoPage) continue;
      page.resize(pages_.copy_page_bytes());
      numbers.resize(pieces.copy_bytes(kPageTokens));
      memory_.read(pages_.copy_at(layer, part, copies_.of(page_of(sequence, first))), page);
      for (int head = 0; head < shape_.kv_heads; ++head) {
        layout_.read_kv(head_of(KvType::f16, head), page, numbers);
        std::memcpy(
            target + static_cast<std::size_t>(head) * pieces.bytes() + pieces.copies_at(first),
            numbers.data(), pieces.copy_bytes(std::min<std::int64_t>(kPageTokens, all - first)));
      }
    }
    target += static_cast<std::size_t>(shape_.kv_heads) * pieces.bytes();
  });
  return bytes;
}

void KvCache::load(std::int32_t sequence, std::span<const std::byte> bytes,
                   std::string_view source) {
  require(!follow_, ErrorKind::bad_setting, source, ": ", kSharedHeads);
  const Opened opened = open_saved(*this, bytes, source);
  const SavedParts& saved = opened.parts;
  const std::int64_t all = saved.length;
  require_finite(shape_, opened, source);
  clear(sequence);
  grow(sequence, all, saved.copies_from, first_seen(all));
  const std::byte* from = opened.numbers.data();
  std::vector<std::byte> page, numbers;
  each_part(shape_, saved, [&](std::int64_t layer, KvPart part, const Pieces& pieces) {
    const KvPages::Side& own = pages_.side(layer, part);
    const auto head_of = [&](KvType type, int head) {
      return KvHead{part, type, shape_.kv_heads, shape_.head_dim, head};
    };
    const std::int64_t coded = pieces.positions();
    for (std::int64_t first = 0; first < coded; first += kPageTokens) {
      if (page_of(sequence, first) == kNoPage) continue;
      page.assign(own.page_bytes, std::byte{0});
      for (int head = 0; head < shape_.kv_heads; ++head) {
        numbers.assign(pieces.coded_bytes(kPageTokens), std::byte{0});
        const std::byte* const head_part = from + static_cast<std::size_t>(head) * pieces.bytes();
        pieces.each(first, std::min<std::int64_t>(kPageTokens, coded - first),
                    [&](std::size_t in_sequence, std::size_t in_page, std::size_t count) {
                      std::memcpy(numbers.data() + in_page, head_part + in_sequence, count);
                    });
        layout_.write_kv(head_of(own.type, head), page, numbers);
      }
      memory_.write(pages_.page_at(layer, part, page_of(sequence, first)), page);
    }
    for (std::int64_t first = 0; own.copied && first < all; first += kPageTokens) {
      if (first >= saved.first_copies && first < saved.copies_from) continue;
      if (page_of(sequence, first) == kNoPage) continue;
      page.assign(pages_.copy_page_bytes(), std::byte{0});
      for (int head = 0; head < shape_.kv_heads; ++head) {
        numbers.assign(pieces.copy_bytes(kPageTokens), std::byte{0});
        std::memcpy(
            numbers.data(),
            from + static_cast<std::size_t>(head) * pieces.bytes() + pieces.copies_at(first),
            pieces.copy_bytes(std::min<std::int64_t>(kPageTokens, all - first)));
        layout_.write_kv(head_of(KvType::f16, head), page, numbers);
      }
      memory_.write(pages_.copy_at(layer, part, copies_.of(page_of(sequence, first))), page);
    }
    from += static_cast<std::size_t>(shape_.kv_heads) * pieces.bytes();
  });
  settle();
}

}  // namespace leq

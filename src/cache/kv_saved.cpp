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

SavedHeader header_of(const KvShape& shape, std::int64_t length) {
  SavedHeader header;
  header.key_type = static_cast<std::uint32_t>(shape.key_type);
  header.value_type = static_cast<std::uint32_t>(shape.value_type);
  header.layers = shape.layers;
  header.kv_heads = shape.kv_heads;
  header.head_dim = shape.head_dim;
  header.length = length;
  return header;
}

// One kv head's part of a saved sequence and of a page: numbers, then scales and minima where the
// scheme has them.
class Pieces {
 public:
  Pieces(KvType type, KvPart part, int head_dim)
      : scheme_(kv_scheme(type)), part_(part), head_dim_(head_dim) {}

  // Of the numbers of `positions`, and of their scales or minima.
  std::size_t numbers(std::int64_t positions) const {
    return static_cast<std::size_t>(positions) * kv_number_bytes(scheme_, head_dim_);
  }
  std::size_t ends(std::int64_t positions) const {
    return kv_scale_count(scheme_, part_, head_dim_, positions) * sizeof(std::uint16_t);
  }
  std::size_t bytes(std::int64_t positions) const {
    return numbers(positions) + 2 * ends(positions);
  }
  // Calls copy(offset among `all` positions, offset in the page, bytes) for `count` positions from
  // `first`, the first of a page, on.
  template <class Copy>
  void each(std::int64_t first, std::int64_t count, std::int64_t all, Copy copy) const {
    copy(numbers(first), std::size_t{0}, numbers(count));
    if (!scheme_.coded()) return;
    const std::size_t of_page = ends(kPageTokens);
    copy(numbers(all) + ends(first), numbers(kPageTokens), ends(count));
    copy(numbers(all) + ends(all) + ends(first), numbers(kPageTokens) + of_page, ends(count));
  }
  // Of `positions`; attention would spread a NaN to every later token.
  bool finite(std::span<const std::byte> bytes, std::int64_t positions) const {
    if (!scheme_.coded() && scheme_.bits == 32) {
      return all_finite<float>(bytes, [](float x) { return x; });
    }
    const std::size_t codes = scheme_.coded() ? numbers(positions) : 0;
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
};

// Keys and values of every layer in the order of saved sequences: each is kv_heads parts.
template <class Visit>
void each_part(const KvShape& shape, Visit visit) {
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    for (const KvPart part : {KvPart::keys, KvPart::values}) visit(layer, part);
  }
}

std::uint64_t saved_bytes(const KvShape& shape, std::int64_t length) {
  const auto heads = static_cast<std::uint64_t>(shape.layers * shape.kv_heads);
  const std::uint64_t bytes =
      Pieces(shape.key_type, KvPart::keys, shape.head_dim).bytes(length) +
      Pieces(shape.value_type, KvPart::values, shape.head_dim).bytes(length);
  return sizeof(SavedHeader) + heads * bytes;
}

// Length of a saved sequence that fits this cache.
std::int64_t checked_length(const KvCache& cache, std::span<const std::byte> bytes,
                            std::string_view source) {
  const KvShape& shape = cache.shape();
  ByteReader reader(bytes, source);
  const auto header = reader.read<SavedHeader>("the header of a saved sequence");
  require(header.magic == kMagic, source, ": not a saved sequence");
  const SavedHeader want = header_of(shape, header.length);
  require(header.layers == want.layers && header.kv_heads == want.kv_heads &&
              header.head_dim == want.head_dim,
          source, ": saved from ", header.layers, " layers of ", header.kv_heads, " x ",
          header.head_dim, ", this model has ", want.layers, " of ", want.kv_heads, " x ",
          want.head_dim);
  require(header.key_type == want.key_type && header.value_type == want.value_type, source,
          ": saved with other KV types; run with the ", Setting{"key_type"}, " and ",
          Setting{"value_type"}, " that it was saved with (here ", kv_type_name(shape.key_type),
          " and ", kv_type_name(shape.value_type), ")");
  require(header.length >= 0 && header.length <= shape.positions, source, ": ", header.length,
          " positions, the context holds ", shape.positions, "; raise ", Setting{"context"});
  require(bytes.size() == saved_bytes(shape, header.length), source, ": expected ",
          saved_bytes(shape, header.length), " bytes, found ", bytes.size());
  return header.length;
}

// Attention would spread a NaN to every later token.
void require_finite(const KvShape& shape, std::int64_t length, std::span<const std::byte> numbers,
                    std::string_view source) {
  std::size_t offset = 0;
  each_part(shape, [&](std::int64_t, KvPart part) {
    const KvType type = part == KvPart::keys ? shape.key_type : shape.value_type;
    const Pieces pieces(type, part, shape.head_dim);
    for (int head = 0; head < shape.kv_heads; ++head) {
      const auto own = numbers.subspan(offset, pieces.bytes(length));
      require(pieces.finite(own, length), source, ": numbers that are not finite at offset ",
              offset + sizeof(SavedHeader), "; the file is damaged");
      offset += own.size();
    }
  });
}

}  // namespace

// A page comes to the host once, for all its heads.
std::vector<std::byte> KvCache::save(std::int32_t sequence) const {
  const std::int64_t all = length(sequence);
  std::vector<std::byte> saved(static_cast<std::size_t>(saved_bytes(shape_, all)));
  const SavedHeader header = header_of(shape_, all);
  std::memcpy(saved.data(), &header, sizeof header);
  std::byte* target = saved.data() + sizeof header;
  std::vector<std::byte> page, numbers;
  each_part(shape_, [&](std::int64_t layer, KvPart part) {
    const Pieces pieces(type(part), part, shape_.head_dim);
    const std::size_t head_bytes = pieces.bytes(all);
    page.resize(page_bytes(part));
    numbers.resize(pieces.bytes(kPageTokens));
    for (std::int64_t first = 0; first < all; first += kPageTokens) {
      memory_.read(page_at(layer, part, page_of(sequence, first)), page);
      for (int head = 0; head < shape_.kv_heads; ++head) {
        layout_.read_kv({part, type(part), shape_.kv_heads, shape_.head_dim, head}, page, numbers);
        std::byte* const to = target + static_cast<std::size_t>(head) * head_bytes;
        pieces.each(first, std::min<std::int64_t>(kPageTokens, all - first), all,
                    [&](std::size_t in_sequence, std::size_t in_page, std::size_t bytes) {
                      std::memcpy(to + in_sequence, numbers.data() + in_page, bytes);
                    });
      }
    }
    target += static_cast<std::size_t>(shape_.kv_heads) * head_bytes;
  });
  return saved;
}

void KvCache::load(std::int32_t sequence, std::span<const std::byte> bytes,
                   std::string_view source) {
  const std::int64_t all = checked_length(*this, bytes, source);
  require_finite(shape_, all, bytes.subspan(sizeof(SavedHeader)), source);
  clear(sequence);
  append(sequence, all);
  const std::byte* from = bytes.data() + sizeof(SavedHeader);
  std::vector<std::byte> page, numbers;
  each_part(shape_, [&](std::int64_t layer, KvPart part) {
    const Pieces pieces(type(part), part, shape_.head_dim);
    const std::size_t head_bytes = pieces.bytes(all);
    for (std::int64_t first = 0; first < all; first += kPageTokens) {
      page.assign(page_bytes(part), std::byte{0});
      for (int head = 0; head < shape_.kv_heads; ++head) {
        numbers.assign(pieces.bytes(kPageTokens), std::byte{0});
        const std::byte* const own = from + static_cast<std::size_t>(head) * head_bytes;
        pieces.each(first, std::min<std::int64_t>(kPageTokens, all - first), all,
                    [&](std::size_t in_sequence, std::size_t in_page, std::size_t count) {
                      std::memcpy(numbers.data() + in_page, own + in_sequence, count);
                    });
        layout_.write_kv({part, type(part), shape_.kv_heads, shape_.head_dim, head}, page, numbers);
      }
      memory_.write(page_at(layer, part, page_of(sequence, first)), page);
    }
    from += static_cast<std::size_t>(shape_.kv_heads) * head_bytes;
  });
}

}  // namespace leq

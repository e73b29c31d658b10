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

// One kv head's part of a saved sequence and of a page: numbers, then for int8 scales and minima.
struct Pieces {
  std::size_t number = 0;  // bytes of one position's numbers
  std::size_t ends = 0;    // bytes of one position's scale, and as many of its minimum

  Pieces(KvType type, int head_dim) {
    constexpr std::array<std::size_t, 3> kBytes = {4, 2, 1};
    number = static_cast<std::size_t>(head_dim) * kBytes[static_cast<std::size_t>(type)];
    ends = type == KvType::int8 ? 2 : 0;
  }
  std::size_t bytes(std::int64_t positions) const {
    return static_cast<std::size_t>(positions) * (number + 2 * ends);
  }
  // Calls copy(offset among `all` positions, offset in the page, bytes) for `count` positions from
  // `first` on.
  template <class Copy>
  void each(std::int64_t first, std::int64_t count, std::int64_t all, Copy copy) const {
    const auto begin = static_cast<std::size_t>(first), some = static_cast<std::size_t>(count),
               total = static_cast<std::size_t>(all);
    copy(begin * number, std::size_t{0}, some * number);
    if (ends == 0) return;
    const std::size_t page = kPageTokens;
    copy(total * number + begin * ends, page * number, some * ends);
    copy(total * (number + ends) + begin * ends, page * (number + ends), some * ends);
  }
};

// Every kv head of every layer in the order of saved sequences.
template <class Visit>
void each_head(const KvCache& cache, Visit visit) {
  const KvShape& shape = cache.shape();
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        visit(KvHead{cache.layer(layer), part, 0, shape.kv_heads, shape.head_dim, head});
      }
    }
  }
}

template <class Number, class Widen>
bool all_finite(std::span<const std::byte> bytes, Widen widen) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Number)) {
    Number number;
    std::memcpy(&number, bytes.data() + at, sizeof number);
    const float value = widen(number);
    if (!(value - value == 0.0f)) return false;
  }
  return true;
}

// One head's bytes; attention would spread a NaN to every later token.
bool finite(KvType type, std::span<const std::byte> bytes, std::size_t number_bytes) {
  if (type == KvType::f32) return all_finite<float>(bytes, [](float x) { return x; });
  const std::size_t codes = type == KvType::int8 ? number_bytes : 0;
  return all_finite<std::uint16_t>(bytes.subspan(codes), f16_to_f32);
}

std::uint64_t saved_bytes(const KvShape& shape, std::int64_t length) {
  const auto heads = static_cast<std::uint64_t>(shape.layers * shape.kv_heads);
  const std::uint64_t bytes = Pieces(shape.key_type, shape.head_dim).bytes(length) +
                              Pieces(shape.value_type, shape.head_dim).bytes(length);
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
          Setting{"value_type"}, " of then (here ", kv_type_name(shape.key_type), " and ",
          kv_type_name(shape.value_type), ")");
  require(header.length >= 0 && header.length <= shape.positions, source, ": ", header.length,
          " positions, the context holds ", shape.positions, "; raise ", Setting{"context"});
  require(bytes.size() == saved_bytes(shape, header.length), source, ": expected ",
          saved_bytes(shape, header.length), " bytes, found ", bytes.size());
  return header.length;
}

}  // namespace

std::vector<std::byte> KvCache::save(std::int32_t sequence) const {
  const std::int64_t all = length(sequence);
  std::vector<std::byte> saved(static_cast<std::size_t>(saved_bytes(shape_, all)));
  const SavedHeader header = header_of(shape_, all);
  std::memcpy(saved.data(), &header, sizeof header);
  std::byte* target = saved.data() + sizeof header;
  std::vector<std::byte> page;
  each_head(*this, [&](KvHead head) {
    const Pieces pieces(head.type(), shape_.head_dim);
    page.resize(pieces.bytes(kPageTokens));
    for (std::int64_t first = 0; first < all; first += kPageTokens) {
      head.page = pages(sequence)[static_cast<std::size_t>(first / kPageTokens)];
      backend_.read_kv(head, page);
      pieces.each(first, std::min<std::int64_t>(kPageTokens, all - first), all,
                  [&](std::size_t to, std::size_t from, std::size_t bytes) {
                    std::memcpy(target + to, page.data() + from, bytes);
                  });
    }
    target += pieces.bytes(all);
  });
  return saved;
}

void KvCache::load(std::int32_t sequence, std::span<const std::byte> bytes,
                   std::string_view source) {
  const std::int64_t all = checked_length(*this, bytes, source);
  std::size_t offset = sizeof(SavedHeader);
  each_head(*this, [&](const KvHead& head) {
    const Pieces pieces(head.type(), shape_.head_dim);
    const auto part = bytes.subspan(offset, pieces.bytes(all));
    require(finite(head.type(), part, static_cast<std::size_t>(all) * pieces.number), source,
            ": numbers that are not finite at offset ", offset, "; the file is damaged");
    offset += part.size();
  });
  clear(sequence);
  append(sequence, all);
  const std::byte* from = bytes.data() + sizeof(SavedHeader);
  std::vector<std::byte> page;
  each_head(*this, [&](KvHead head) {
    const Pieces pieces(head.type(), shape_.head_dim);
    for (std::int64_t first = 0; first < all; first += kPageTokens) {
      page.assign(pieces.bytes(kPageTokens), std::byte{0});
      pieces.each(first, std::min<std::int64_t>(kPageTokens, all - first), all,
                  [&](std::size_t in_sequence, std::size_t in_page, std::size_t count) {
                    std::memcpy(page.data() + in_page, from + in_sequence, count);
                  });
      head.page = pages(sequence)[static_cast<std::size_t>(first / kPageTokens)];
      backend_.write_kv(head, page);
    }
    from += pieces.bytes(all);
  });
}

}  // namespace leq

// The KV cache as attention reads it: types, pages of one layer, and the rows of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/kv_scheme.h"
#include "base/error.h"

namespace leq {

std::string_view kv_type_name(KvType type);
// All names: "f32 | f16 | int8".
std::string kv_type_names(std::string_view separator);
// Of kv_type_name's spellings; throws Error naming the setting, with the closest type for the names
// that users of other engines type ("q8_0").
KvType parse_kv_type(std::string_view name, Setting setting);

// Layers [first, last] whose keys and values have types of their own.
struct KvLayerTypes {
  std::int64_t first = 0, last = 0;
  KvType keys = kUsualKv, values = kUsualKv;

  bool operator==(const KvLayerTypes&) const = default;
};
// "0-1,27=f16" or "3=int8/simq4": layers, counted from 0, and the type of keys, or of keys /
// values. Throws Error naming the setting and what is wrong.
std::vector<KvLayerTypes> parse_kv_layers(std::string_view text, Setting setting);
// The way back, in the words of the above, one after the other: "0-1=f16 27=f16".
std::string kv_layers_text(std::span<const KvLayerTypes> layers);

// One layer of the cache. Page p lies at base + p * page_bytes. Layout inside a page is the
// backend's; on the CPU (docs/kv-cache.md):
//   float keys [H_kv][4][d][16], int8 keys [H_kv][4][ceil4(d)/4][16][4] then f16 s[H_kv][64],
//   m[H_kv][64], values [H_kv][64][d] (int8: then f16 s[H_kv][64], m[H_kv][64])
// Sides whose codes are made of whole blocks have f16 copies of some pages beside them: that of
// page p is page copies[p] of key_copies or value_copies, in the layout of f16; -1 = none.
struct KvLayer {
  KvType key_type = kUsualKv;
  KvType value_type = kUsualKv;
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  std::size_t key_page_bytes = 0;
  std::size_t value_page_bytes = 0;
  KvResidual residual = {};
  std::byte* key_copies = nullptr;  // null: this side has none
  std::byte* value_copies = nullptr;
  std::size_t copy_page_bytes = 0;
  std::span<const std::int32_t> copies = {};
};

// One kv head's keys or values in one page of a layer.
struct KvHead {
  KvPart part = KvPart::keys;
  KvType type = kUsualKv;
  int kv_heads = 0;  // of the layer
  int head_dim = 0;  // d
  int head = 0;
};

// Neighbouring rows of a batch that are consecutive positions of one sequence.
struct SequenceRun {
  std::int32_t sequence = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_position = 0;      // of the first row
  std::span<const std::int32_t> pages;  // pages[position / 64]: holds the run's own positions too
  // Fixed states of layers that have them: what the run begins with, null for zeros, and what its
  // end is written to. Of a sequence with several runs all write the same one, one after another.
  const std::byte* state_from = nullptr;
  std::byte* state_to = nullptr;

  std::int64_t end_position() const { return first_position + rows; }
};

struct BatchView {
  std::int64_t tokens = 0;
  std::span<const SequenceRun> runs;  // cover rows 0..tokens-1 in order

  // After the last position of any run; 0 without runs.
  std::int64_t end_position() const;
};

}  // namespace leq

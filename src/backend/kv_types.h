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
// All names with a separator, for example "f32 | f16 | int8".
std::string kv_type_names(std::string_view separator);
// Parses a name of kv_type_name. Throws Error with the setting; for names of other engines ("q8_0")
// it suggests the closest type.
KvType parse_kv_type(std::string_view name, Setting setting);

// Layers [first, last] whose keys and values have types different from the other layers'.
struct KvLayerTypes {
  std::int64_t first = 0, last = 0;
  KvType keys = kUsualKv, values = kUsualKv;

  bool operator==(const KvLayerTypes&) const = default;
};
// Parses "0-1,27=f16" or "3=int8/simq4": layers, counted from 0, with one type for keys and values,
// or with a type each. Throws Error with the setting and the reason.
std::vector<KvLayerTypes> parse_kv_layers(std::string_view text, Setting setting);
// The inverse of parse_kv_layers, with entries separated by spaces: "0-1=f16 27=f16".
std::string kv_layers_text(std::span<const KvLayerTypes> layers);

// One layer of the cache. Page p begins at base + p * page_bytes. The backend defines the layout
// within a page; on the CPU (docs/kv-cache.md):
//   float keys [H_kv][4][d][16], int8 keys [H_kv][4][ceil4(d)/4][16][4] then f16 s[H_kv][64],
//   m[H_kv][64], values [H_kv][64][d] (int8: then f16 s[H_kv][64], m[H_kv][64])
// Schemes that encode whole blocks have f16 copies of some pages. The copy of page p is page
// copies[p] of key_copies or value_copies, in the layout of f16; copies[p] is -1 without a copy.
struct KvLayer {
  KvType key_type = kUsualKv;
  KvType value_type = kUsualKv;
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  std::size_t key_page_bytes = 0;
  std::size_t value_page_bytes = 0;
  KvResidual residual = {};
  std::byte* key_copies = nullptr;  // null: keys have no copies
  std::byte* value_copies = nullptr;
  std::size_t copy_page_bytes = 0;
  std::span<const std::int32_t> copies = {};
};

// Neighbouring rows of a batch that are consecutive positions of one sequence.
struct SequenceRun {
  std::int32_t sequence = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_position = 0;      // position of the first row
  std::span<const std::int32_t> pages;  // pages[position / 64], including the run's own positions
  // Fixed states, for layers that have them: the state before the run (null for zeros) and the
  // place of the state after it. Runs of one sequence write the same place, one after another.
  const std::byte* state_from = nullptr;
  std::byte* state_to = nullptr;

  std::int64_t end_position() const { return first_position + rows; }
};

struct BatchView {
  std::int64_t tokens = 0;
  std::span<const SequenceRun> runs;  // ascending; together rows 0..tokens-1

  // One more than the last position of all runs; 0 if there are no runs.
  std::int64_t end_position() const;
};

}  // namespace leq

// Stores keys and values in the CPU's pages: by token, or as f16 copies whose blocks are quantized
// after they have been closed.
#pragma once

#include <cstdint>

#include "backend/cpu/attention/attention_kernels.h"
#include "backend/cpu/attention/kv_layout.h"
#include "backend/cpu/attention/packed_kernels.h"

namespace leq::cpu {

struct StoreKernels {
  const AttentionKernels& attention;
  const PackedKernels& packed;
};

// Store one position of one kv head in `slot` of its page. For schemes that quantize whole blocks,
// `page` is the page of f16 copies. `wide` is scratch of d floats.
void store_key(const StoreKernels& kernels, KvType type, const float* key, int dims,
               std::int64_t slot, const HeadPage& page, float* wide);
void store_value(const StoreKernels& kernels, KvType type, const float* value, int dims,
                 std::int64_t slot, const HeadPage& page);

// Quantizes slots [first, last) of a page, which are whole blocks, from the page's f16 copies. The
// scales of keys do not include the first `sinks` slots. `wide` is scratch of 64 d floats.
struct KvBlockWork {
  KvType type = KvType::simq4;
  int dims = 0;
  int first = 0, last = 0;
  int sinks = 0;
};
void quantize_keys(const StoreKernels& kernels, const KvBlockWork& work, const HeadPage& copy,
                   const HeadPage& page, float* wide);
void quantize_values(const StoreKernels& kernels, const KvBlockWork& work, const HeadPage& copy,
                     const HeadPage& page, float* wide);

}  // namespace leq::cpu

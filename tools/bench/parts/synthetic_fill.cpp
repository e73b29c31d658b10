// Random numbers in the planes of synthetic weights, copied from a pool where that is faster.
#include "tools/bench/parts/synthetic_fill.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/half.h"
#include "base/random.h"
#include "tensor/code_formats.h"
#include "tensor/pack.h"

namespace leq {
namespace {

constexpr std::int64_t kSumColumns = 32;  // width of the finest group
constexpr std::uint32_t kBlocks = 128;    // 1 MB of int8: fits in the L2 cache
constexpr std::size_t kPoolFloats = 1 << 17;

// Integer codes are copied from a pool of random blocks of 64 rows x 128 columns with known sums,
// so that filling a model of 7 GB takes seconds. A hash of the position selects the block.
struct RandomBlock {
  std::vector<std::uint8_t>
      bytes;  // in panel layout; codes of 3 bits as two planes, one after the other
  std::array<std::array<std::int32_t, 64>, kBlockColumns / kSumColumns> sums{};  // [part][row]
};

// Whether every bit pattern is a valid code. Not for int8, which has stored sums and no code -128.
bool has_free_bits(const QuantScheme& scheme) {
  return scheme.bits != 8 || scheme.kind != CodeKind::int_;
}

RandomBlock random_block(const QuantScheme& scheme, Random& random) {
  RandomBlock block;
  block.bytes.resize(static_cast<std::size_t>(64 * kBlockColumns * scheme.bits / 8));
  if (has_free_bits(scheme)) {
    for (auto& byte : block.bytes) byte = static_cast<std::uint8_t>(random.bits() >> 24);
    return block;
  }
  for (std::size_t i = 0; i < block.bytes.size(); ++i) {
    const int code = static_cast<int>(random.below(255)) - 127;
    block.bytes[i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(code));
    const std::size_t column = i / 256 * 4 + i % 4;
    block.sums[column / kSumColumns][i % 256 / 4] += code;
  }
  return block;
}

std::vector<RandomBlock> random_blocks(const QuantScheme& scheme) {
  Random random(0x5eed0000u + static_cast<std::uint64_t>(scheme.bits));
  std::vector<RandomBlock> blocks;
  for (std::uint32_t i = 0; i < kBlocks; ++i) blocks.push_back(random_block(scheme, random));
  return blocks;
}

// Normally distributed values with variance 1 / columns, in a float type.
std::vector<std::byte> random_floats(CodeKind kind, std::int64_t columns) {
  Random random(0x5eedf10au);
  const float size = 1.0f / std::sqrt(static_cast<float>(columns));
  std::vector<std::byte> bytes(kPoolFloats * (kind == CodeKind::f32 ? 4 : 2));
  for (std::size_t i = 0; i < kPoolFloats; ++i) {
    const float value = random.normal() * size;
    const std::uint16_t half = kind == CodeKind::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (kind == CodeKind::f32) {
      std::memcpy(bytes.data() + i * 4, &value, 4);
    } else {
      std::memcpy(bytes.data() + i * 2, &half, 2);
    }
  }
  return bytes;
}

// Standard deviation of the values of random codes with a scale of 1. Zero points of uint are near
// the middle.
float code_deviation(const QuantScheme& scheme) {
  if (const CodeFormat* format = code_format(scheme.kind)) return format->deviation;
  const auto steps = static_cast<float>((1 << scheme.bits) - (has_free_bits(scheme) ? 0 : 1));
  return steps / std::sqrt(12.0f);
}

std::byte* plane_of(const StoredTensor& tensor, std::string_view name, std::byte* memory) {
  for (const StoredPlane& plane : tensor.planes) {
    if (plane.name == name) return memory + plane.offset;
  }
  return nullptr;
}

// Fills one integer matrix; panels are filled independently.
class MatrixFiller {
 public:
  MatrixFiller(StoredTensor& tensor, std::uint64_t key, const std::vector<RandomBlock>& blocks,
               std::byte* memory)
      : view_(tensor.view),
        key_(key),
        blocks_(blocks),
        codes_(plane_of(tensor, "codes", memory)),
        scales_(plane_of(tensor, "scales", memory)),
        zeros_(plane_of(tensor, "zeros", memory)),
        sums_(plane_of(tensor, "sums", memory)) {
    const bool embedding = tensor.name == "token_embedding";
    const float fan_in = embedding ? 1.0f : static_cast<float>(view_.columns);
    scale_ = 1.0f / (code_deviation(view_.scheme) * std::sqrt(fan_in));
    if (grouped()) {
      int exponent = 0;
      std::frexp(scale_, &exponent);
      view_.scale_mul = std::ldexp(1.0f, exponent - 1);
    }
  }

  void panel(std::int64_t panel) const {
    put_codes(panel);
    if (const CodeFormat* format = code_format(view_.scheme.kind)) {
      format->randomize(
          {view_, panel, scale_, scales_, zeros_,
           [&](std::int64_t i, std::uint32_t what) { return random(panel, i, what); }});
    } else {
      put_scales(panel);
      if (zeros_ != nullptr) put_zeros(panel);
    }
    if (view_.rows - panel * 64 < 64) clear_pads(panel);
  }

 private:
  bool grouped() const { return view_.scheme.scaling == Scaling::group; }
  bool sums_by_row() const { return sums_are_per_row(view_.scheme, view_.act); }
  std::int64_t sum_columns() const { return sum_group(view_.scheme, view_.act, view_.columns); }

  std::int64_t scales_of_a_row() const {
    return grouped() ? view_.padded_columns() / view_.scheme.group : 1;
  }
  // Whether scale i of a panel belongs to no weight.
  bool is_pad(std::int64_t panel, std::int64_t i) const {
    return panel * 64 + i % 64 >= view_.rows ||
           (grouped() && i / 64 * view_.scheme.group >= view_.columns);
  }

  std::uint32_t random(std::int64_t panel, std::int64_t i, std::uint32_t what) const {
    return philox(key_,
                  {static_cast<std::uint32_t>(panel), static_cast<std::uint32_t>(i), what, 0})[0] >>
           8;
  }

  void put_codes(std::int64_t panel) const {
    const CodePlanes planes = code_planes(view_.scheme, view_.rows, view_.columns);
    const auto low_bytes = static_cast<std::size_t>(64 * kBlockColumns * planes.low_bits / 8);
    const ZeroBytes zero = zero_bytes(view_.scheme);
    for (std::int64_t column = 0; column < view_.columns; column += kBlockColumns) {
      const RandomBlock& block = blocks_[random(panel, column / kBlockColumns, 0) % kBlocks];
      const std::uint8_t* bytes = block.bytes.data();
      put_block(codes_, planes.low_bits, panel, column, bytes, zero.low);
      if (planes.high_bits > 0) {
        put_block(codes_ + planes.high_at, planes.high_bits, panel, column, bytes + low_bytes,
                  zero.high);
      }
      if (sums_ != nullptr) add_sums(block, panel, column);
    }
  }

  // The last block of a row may be shorter; after it are codes of padding.
  void put_block(std::byte* plane, int bits, std::int64_t panel, std::int64_t column,
                 const std::uint8_t* bytes, std::uint8_t zero) const {
    const std::int64_t columns = std::min(kBlockColumns, view_.columns - column);
    const auto used = static_cast<std::size_t>(64 * columns * bits / 8);
    std::byte* at = plane + panel_byte(bits, view_.padded_columns(), panel * 64, column);
    std::memcpy(at, bytes, used);
    std::memset(at + used, zero, static_cast<std::size_t>(64 * kBlockColumns * bits / 8) - used);
  }

  // Zero points are next to the middle of the codes, above or below it; 0 for padding rows.
  void put_zeros(std::int64_t panel) const {
    const std::int64_t groups = scales_of_a_row();
    const std::uint32_t below_middle = (1u << view_.scheme.bits) / 2 - 1;
    for (std::int64_t i = 0; i < groups * 64; ++i) {
      const bool pad = is_pad(panel, i);
      const std::uint32_t zero = below_middle + random(panel, i, 3) % 2;
      zeros_[panel * groups * 64 + i] = static_cast<std::byte>(pad ? 0 : zero);
    }
  }

  // The memory of a panel's sums must be zero before its first block is added.
  void add_sums(const RandomBlock& block, std::int64_t panel, std::int64_t first) const {
    for (std::size_t part = 0; part < block.sums.size(); ++part) {
      const std::int64_t column = first + static_cast<std::int64_t>(part) * kSumColumns;
      if (column >= view_.columns) return;
      for (std::size_t row = 0; row < 64; ++row) {
        if (sums_by_row()) {
          auto* sums = reinterpret_cast<std::int32_t*>(sums_) + panel * 64;
          sums[row] += block.sums[part][row];
        } else {
          const std::int64_t groups = view_.padded_columns() / sum_columns();
          auto* sums = reinterpret_cast<std::int16_t*>(sums_) +
                       (panel * groups + column / sum_columns()) * 64;
          sums[row] = static_cast<std::int16_t>(sums[row] + block.sums[part][row]);
        }
      }
    }
  }

  // Scales differ by up to a factor of three from the one that preserves the variance.
  void put_scales(std::int64_t panel) const {
    const std::int64_t groups = scales_of_a_row();
    for (std::int64_t group = 0; group < groups; ++group) {
      for (std::int64_t row = 0; row < 64; ++row) {
        const std::uint32_t bits = random(panel, group * 64 + row, 1);
        const float spread = 0.5f + static_cast<float>(bits) * 0x1p-24f;
        const bool pad = is_pad(panel, group * 64 + row);
        const float scale = scale_ * spread;
        const std::int64_t index = (panel * groups + group) * 64 + row;
        if (grouped()) {
          const std::uint16_t half = f32_to_f16(pad ? 1.0f : scale / view_.scale_mul);
          std::memcpy(scales_ + index * 2, &half, 2);
        } else {
          const float stored = pad ? 1.0f : scale;
          std::memcpy(scales_ + index * 4, &stored, 4);
        }
      }
    }
  }

  void clear_rows(std::byte* plane, int bits, std::int64_t panel, std::uint8_t value) const {
    const auto rows = static_cast<std::size_t>(view_.rows - panel * 64);
    const std::int64_t columns = view_.padded_columns();
    const std::int64_t end = panel_byte(bits, columns, (panel + 1) * 64, 0);
    for (std::int64_t at = panel_byte(bits, columns, panel * 64, 0); at < end; at += 256) {
      std::memset(plane + at + rows * 4, value, 256 - rows * 4);
    }
  }

  // Sets the codes of padding rows to value 0 and their sums to 0.
  void clear_pads(std::int64_t panel) const {
    const auto rows = static_cast<std::size_t>(view_.rows - panel * 64);
    const CodePlanes planes = code_planes(view_.scheme, view_.rows, view_.columns);
    const ZeroBytes zero = zero_bytes(view_.scheme);
    clear_rows(codes_, planes.low_bits, panel, zero.low);
    if (planes.high_bits > 0) {
      clear_rows(codes_ + planes.high_at, planes.high_bits, panel, zero.high);
    }
    if (sums_ == nullptr) return;
    const std::size_t groups =
        sums_by_row() ? 1 : static_cast<std::size_t>(view_.padded_columns() / sum_columns());
    const std::size_t bytes = sums_by_row() ? 4 : 2;
    for (std::size_t group = 0; group < groups; ++group) {
      const std::size_t first = (static_cast<std::size_t>(panel) * groups + group) * 64 + rows;
      std::memset(sums_ + first * bytes, 0, (64 - rows) * bytes);
    }
  }

  WeightView& view_;
  std::uint64_t key_;
  const std::vector<RandomBlock>& blocks_;
  std::byte* codes_;
  std::byte* scales_;
  std::byte* zeros_;
  std::byte* sums_;
  float scale_ = 1.0f;
};

void fill_vector(const StoredTensor& tensor, std::uint64_t key, float* out) {
  const bool gain = tensor.name.ends_with("norm") || tensor.name.ends_with("_scale") ||
                    tensor.name.ends_with("_scales");
  Random random(key);
  for (std::int64_t i = 0; i < tensor.view.columns; ++i) {
    out[i] = gain ? 1.0f + 0.1f * random.normal() : 0.02f * random.normal();
  }
}

// Fills rows with values from random offsets of a pool.
void fill_float_rows(const WeightView& view, std::uint64_t key, std::int64_t panel,
                     const std::vector<std::byte>& pool, std::byte* out) {
  const std::size_t value_bytes = pool.size() / kPoolFloats;
  const auto columns = static_cast<std::size_t>(view.columns);
  const std::int64_t end = std::min(view.rows, panel * 64 + 64);
  for (std::int64_t row = panel * 64; row < end; ++row) {
    const auto bits = philox(key, {static_cast<std::uint32_t>(row), 0, 2, 0})[0];
    const std::size_t first = bits % (kPoolFloats - columns);
    std::memcpy(out + static_cast<std::size_t>(row) * columns * value_bytes,
                pool.data() + first * value_bytes, columns * value_bytes);
  }
}

}  // namespace

void fill_random(std::vector<StoredTensor>& tensors, std::byte* memory, ThreadPool& pool) {
  std::map<std::pair<CodeKind, int>, std::vector<RandomBlock>> blocks;         // by kind and bits
  std::map<std::pair<CodeKind, std::int64_t>, std::vector<std::byte>> floats;  // kind and columns
  std::uint64_t key = 0;
  for (StoredTensor& tensor : tensors) {
    ++key;
    const WeightView& view = tensor.view;
    std::byte* codes = plane_of(tensor, "codes", memory);
    if (tensor.shape.size() == 1) {
      fill_vector(tensor, key, reinterpret_cast<float*>(codes));
      continue;
    }
    const std::int64_t panels = (view.rows + 63) / 64;
    if (view.scheme.is_float()) {
      require(view.columns < static_cast<std::int64_t>(kPoolFloats), tensor.name,
              ": too wide for synthetic values");
      // Embeddings are not summed over columns, so their values are about one, as in MatrixFiller.
      const std::int64_t fan_in = tensor.name == "token_embedding" ? 1 : view.columns;
      auto& values = floats[{view.scheme.kind, fan_in}];
      if (values.empty()) values = random_floats(view.scheme.kind, fan_in);
      pool.run(panels,
               [&](std::int64_t panel, int) { fill_float_rows(view, key, panel, values, codes); });
      continue;
    }
    // A short group of uint would need its zero point as the code of padding.
    const std::int64_t unit = view.scheme.kind != CodeKind::uint_     ? kSumColumns
                              : view.scheme.scaling == Scaling::group ? view.scheme.group
                                                                      : kBlockColumns;
    require(view.columns % unit == 0, tensor.name, ": synthetic weights of ", view.columns,
            " columns: expected a multiple of ", unit);
    auto& known = blocks[{view.scheme.kind, view.scheme.bits}];
    if (known.empty()) known = random_blocks(view.scheme);
    const MatrixFiller filler(tensor, key, known, memory);
    pool.run(panels, [&](std::int64_t panel, int) { filler.panel(panel); });
  }
}

}  // namespace leq

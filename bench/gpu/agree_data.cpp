#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "bench/gpu/agree.h"
#include "bench/gpu/random.h"
#include "bench/gpu/timing.h"

namespace leq::LEQ_GPU::bench {

int CodeFormat::sum_group(std::int64_t padded) const {
  const int tokens = std::max(token_group, 0);
  if (weight_group == 0 && tokens == 0) return static_cast<int>(padded);
  if (weight_group == 0 || tokens == 0) return std::max(weight_group, tokens);
  return std::min(weight_group, tokens);
}

CodeRows CodeFormat::rows(std::int64_t padded, std::int8_t* codes, float* scales,
                          std::int32_t* sums) const {
  CodeRows x;
  x.codes = codes;
  x.scales = scales;
  x.sums = bits == 8 && !has_zeros ? nullptr : sums;
  x.group = std::max(token_group, 0);
  x.sum_group = sum_group(padded);
  x.code_stride = padded;
  x.scale_stride = x.group == 0 ? 1 : padded / x.group;
  x.sum_stride = padded / x.sum_group;
  return x;
}

RandomWeights::RandomWeights(const CodeFormat& format, std::int64_t rows, std::int64_t columns,
                             rt::Stream& stream)
    : format_(format),
      rows_(rows),
      columns_(float_stride(columns)),
      padded_(padded_columns(columns)),
      groups_(format.weight_group == 0 ? 1 : padded_ / format.weight_group),
      codes_(numbers_of(stream)),
      scales_(numbers<float>(scales(), stream,
                             [](std::uint32_t r) { return between(r, 0.001f, 0.002f); })),
      group_scales_(numbers<std::uint16_t>(
          scales(), stream,
          [](std::uint32_t r) { return static_cast<std::uint16_t>(0x1800 + r % 0x800); })),
      zeros_(numbers<std::uint8_t>(scales(), stream, [bits = format.bits](std::uint32_t r) {
        return static_cast<std::uint8_t>((r >> 8) % (1u << std::min(bits, 8)));
      })) {}

Memory RandomWeights::numbers_of(rt::Stream& stream) const {
  if (format_.bits == 16) {
    return numbers<std::uint16_t>(
        static_cast<std::size_t>(rows_ * columns_), stream, [](std::uint32_t r) {
          return static_cast<std::uint16_t>((r & 0x83ffu) | (0x1c00u + (r >> 10 & 7) * 0x400u));
        });
  }
  return numbers<std::uint8_t>(static_cast<std::size_t>(rows_ * padded_ * format_.bits) / 8, stream,
                               [](std::uint32_t r) { return static_cast<std::uint8_t>(r >> 9); });
}

CodeSegment RandomWeights::codes(std::int64_t first_row, int rows) const {
  CodeSegment segment;
  segment.rows = rows;
  CodeWeight& w = segment.weight;
  w.bits = format_.bits;
  w.codes = codes_.as<std::uint8_t>(static_cast<std::size_t>(first_row * padded_ * w.bits) / 8);
  w.zero = w.bits == 8 || format_.has_zeros ? 0 : 1 << (w.bits - 1);
  const auto at = static_cast<std::size_t>(first_row * groups_);
  w.zeros = format_.has_zeros ? zeros_.as<std::uint8_t>(at) : nullptr;
  w.group = format_.weight_group;
  w.row_scales = w.group == 0 ? scales_.as<float>(at * 4) : nullptr;
  w.group_scales = w.group == 0 ? nullptr : group_scales_.as<std::uint16_t>(at * 2);
  return segment;
}

FloatSegment RandomWeights::halves(std::int64_t first_row, int rows) const {
  const auto at = static_cast<std::size_t>(first_row * columns_) * 2;
  return {{codes_.as<std::uint16_t>(at), FloatType::f16}, nullptr, rows};
}

void Tally::compare(std::span<const std::uint32_t> found, std::span<const std::uint32_t> wanted,
                    std::int64_t stride, const std::string& what) {
  require(found.size() == wanted.size(), what, ": ", found.size(), " numbers");
  ++runs;
  if (std::memcmp(found.data(), wanted.data(), found.size_bytes()) == 0) return;
  std::int64_t shown = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == wanted[i]) continue;
    ++wrong;
    if (++shown > 3) continue;
    const auto at = static_cast<std::int64_t>(i);
    std::printf("WRONG %s: row %lld, column %lld: %08x, not %08x\n", what.c_str(),
                static_cast<long long>(at / stride), static_cast<long long>(at % stride), found[i],
                wanted[i]);
  }
}

void Tally::add(const Tally& other) {
  runs += other.runs;
  wrong += other.wrong;
}

void print(const CodeFormat& format, const std::string& layer, std::int64_t outputs,
           std::int64_t columns, const Tally& tally) {
  const auto whole = [](std::int64_t value) { return number(static_cast<double>(value), 0); };
  print_row({format.name, format.act(), layer, whole(outputs) + " x " + whole(columns),
             whole(tally.runs), whole(tally.wrong)});
}

}  // namespace leq::LEQ_GPU::bench

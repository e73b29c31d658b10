#include "bench/gpu/data.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/error.h"
#include "cuda/layout/layout.h"

namespace leq::LEQ_GPU::bench {
namespace {

constexpr int kBelowOne = 0x3b;                            // largest high byte of f16 below 1
constexpr std::size_t kBlockBytes = std::size_t{4} << 20;  // repeated to fill a larger memory

std::size_t padded_code_bytes(const LinearShape& shape, int bits) {
  std::size_t bytes = 0;
  for (const int rows : shape.rows) {
    bytes += static_cast<std::size_t>(padded_rows(rows) * padded_columns(shape.columns) * bits / 8);
  }
  return bytes;
}

std::size_t padded_scale_bytes(const LinearShape& shape, int group) {
  std::size_t bytes = 0;
  for (const int rows : shape.rows) {
    bytes += static_cast<std::size_t>(
        padded_rows(rows) * (group == 0 ? 4 : 2 * (padded_columns(shape.columns) / group)));
  }
  return bytes;
}

}  // namespace

Memory::Memory(std::size_t bytes) : data_(rt::allocate(0, bytes)) {
  require(data_ != nullptr, "no room on the device for ", bytes >> 20, " MB");
}

Memory::~Memory() {
  if (data_ != nullptr) rt::release(0, data_);
}

void Memory::repeat(std::span<const std::byte> block, std::size_t bytes, rt::Stream& stream) const {
  rt::copy_to_device(data_, block.data(), std::min(block.size(), bytes), stream);
  for (std::size_t done = block.size(); done < bytes; done *= 2) {
    rt::copy_on_device(as<void>(done), data_, std::min(done, bytes - done), stream);
  }
  rt::synchronize(stream);
}

Memory::Memory(std::size_t bytes, int largest, rt::Stream& stream) : Memory(bytes) {
  std::mt19937 random(static_cast<unsigned>(bytes));
  std::vector<std::byte> block(std::min(bytes, kBlockBytes));
  for (std::byte& byte : block) {
    byte = static_cast<std::byte>(random() % static_cast<unsigned>(largest + 1));
  }
  repeat(block, bytes, stream);
}

Memory Memory::filled(std::size_t bytes, std::uint32_t pattern, rt::Stream& stream) {
  std::vector<std::byte> block((std::min(bytes, kBlockBytes) + 3) / 4 * 4);
  for (std::size_t at = 0; at < block.size(); at += 4) std::memcpy(&block[at], &pattern, 4);
  return repeated(block, bytes, stream);
}

Memory Memory::repeated(std::span<const std::byte> block, std::size_t bytes, rt::Stream& stream) {
  Memory memory(bytes);
  memory.repeat(block, bytes, stream);
  return memory;
}

int LinearShape::outputs() const {
  int count = 0;
  for (const int n : rows) count += n;
  return count;
}

std::vector<LinearShape> llama_linears(bool tiny) {
  const int n = tiny ? 32 : 1;
  return {{"qkv", {4096 / n, 4096 / n, 4096 / n}, 4096 / n, Finish::store, 128},
          {"o", {4096 / n}, 4096 / n, Finish::add, 128},
          {"gate_up", {11008 / n, 11008 / n}, 4096 / n, Finish::swiglu, 128},
          {"down", {4096 / n}, 11008 / n, Finish::add, 128},
          {"head", {32000 / n}, 4096 / n, Finish::store, 128}};
}

int copies_filling(std::size_t bytes, std::size_t each) {
  return static_cast<int>(std::clamp<std::size_t>(bytes / each, 1, 64));
}

IntLinear::IntLinear(const LinearShape& shape, int bits, int group, std::int64_t tokens,
                     std::size_t bytes, rt::Stream& stream)
    : shape_(shape),
      bits_(bits),
      group_(group),
      tokens_(tokens),
      copy_bytes_(padded_code_bytes(shape, bits)),
      scale_bytes_(padded_scale_bytes(shape, group)),
      copies_(copies_filling(bytes, weight_bytes())),
      codes_(copy_bytes_ * static_cast<std::size_t>(copies_), bits == 16 ? kBelowOne : 255, stream),
      scales_(Memory::filled(scale_bytes_ * static_cast<std::size_t>(copies_),
                             group == 0 ? 0x3c000000u : 0x20002000u, stream)),
      x_(static_cast<std::size_t>(tokens * padded_columns(shape.columns)), 255, stream),
      x_scales_(Memory::filled(
          static_cast<std::size_t>(tokens * (padded_columns(shape.columns) / 128)) * 4, 0x3c000000u,
          stream)),
      x_sums_(Memory::filled(
          static_cast<std::size_t>(tokens * (padded_columns(shape.columns) / 128)) * 4, 0, stream)),
      pieces_(static_cast<std::size_t>(tokens * padded_columns(shape.columns)) * 4, kBelowOne,
              stream),
      piece_scales_(Memory::filled(static_cast<std::size_t>(tokens) * 8, 0x3f800000u, stream)),
      out_(Memory::filled(static_cast<std::size_t>(tokens * float_stride(shape.outputs())) * 4, 0,
                          stream)) {}

IntMatmul IntLinear::arguments(int copy) const {
  const std::int64_t padded = padded_columns(shape_.columns);
  IntMatmul a;
  std::size_t code = copy_bytes_ * static_cast<std::size_t>(copy);
  std::size_t scale = scale_bytes_ * static_cast<std::size_t>(copy);
  for (const int rows : shape_.rows) {
    CodeSegment& segment = a.segments[a.segment_count++];
    segment.rows = rows;
    segment.weight.codes = codes_.as<std::uint8_t>(code);
    code += static_cast<std::size_t>(padded_rows(rows) * padded * bits_ / 8);
    segment.weight.bits = bits_;
    segment.weight.zero = bits_ == 8 ? 0 : 1 << (bits_ - 1);
    segment.weight.group = group_;
    segment.weight.row_scales = group_ == 0 ? scales_.as<float>(scale) : nullptr;
    segment.weight.group_scales = group_ == 0 ? nullptr : scales_.as<std::uint16_t>(scale);
    scale +=
        static_cast<std::size_t>(padded_rows(rows) * (group_ == 0 ? 4 : 2 * (padded / group_)));
  }
  a.tokens = tokens_;
  a.columns = shape_.columns;
  a.x.codes = x_.as<std::int8_t>();
  a.x.scales = x_scales_.as<float>();
  a.x.sums = group_ == 0 ? nullptr : x_sums_.as<std::int32_t>();
  a.x.code_stride = padded;
  a.x.group = shape_.act_group;
  a.x.scale_stride = shape_.act_group == 0 ? 1 : padded / 128;
  a.x.sum_stride = padded / 128;
  a.x.sum_group = 128;
  a.finish = shape_.finish;
  a.out = {out_.as<float>(), float_stride(shape_.outputs())};
  return a;
}

TermRows IntLinear::terms() const {
  return {pieces_.as<std::uint16_t>(), piece_scales_.as<float>(),
          padded_columns(shape_.columns) * 2, 2};
}

WeightOnlyMatmul IntLinear::weight_only(int copy) const {
  const IntMatmul whole = arguments(copy);
  WeightOnlyMatmul a;
  std::copy_n(whole.segments, whole.segment_count, a.segments);
  a.segment_count = whole.segment_count;
  a.tokens = whole.tokens;
  a.columns = whole.columns;
  a.x = terms();
  a.finish = whole.finish;
  a.out = whole.out;
  return a;
}

FloatMatmul IntLinear::f16(int copy) const {
  FloatMatmul a;
  std::size_t at = copy_bytes_ * static_cast<std::size_t>(copy);
  for (const int rows : shape_.rows) {
    a.segments[a.segment_count++] = {{codes_.as<std::uint16_t>(at), FloatType::f16}, nullptr, rows};
    at += static_cast<std::size_t>(padded_rows(rows) * padded_columns(shape_.columns)) * 2;
  }
  a.tokens = tokens_;
  a.columns = shape_.columns;
  a.x = terms();
  a.finish = shape_.finish;
  a.out = {out_.as<float>(), float_stride(shape_.outputs())};
  return a;
}

}  // namespace leq::LEQ_GPU::bench

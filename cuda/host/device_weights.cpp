#include "cuda/host/device_weights.h"

#include <cstring>

#include "base/error.h"
#include "cuda/host/row_blocks.h"
#include "cuda/layout/weight_bytes.h"
#include "tensor/table_codes.h"

namespace leq::LEQ_GPU {
namespace {

constexpr std::int64_t kPanelRows = 64;

bool is_grouped(const WeightView& weight) { return weight.scheme.scaling == Scaling::group; }

// `from` is a plane with `plane_bits` bits of each code: all bits of the code, or a part of them.
void upload_plane(Uploader& uploader, const std::byte* from, int plane_bits, bool thirds,
                  const WeightView& weight, std::byte* to, rt::Stream& stream) {
  const std::int64_t columns = weight.padded_columns(), panel = kPanelRows * columns;
  UploadCodes a;
  a.bits = weight.scheme.bits;
  a.padded_columns = columns;
  a.thirds = thirds;
  uploader.run(from, weight.padded_rows() / kPanelRows, panel * plane_bits / 8,
               [&](const std::byte* there, std::int64_t first, std::int64_t count) {
                 a.from = reinterpret_cast<const std::uint8_t*>(there);
                 a.to = reinterpret_cast<std::uint8_t*>(to + first * panel * a.bits / 8);
                 a.padded_rows = count * kPanelRows;
                 launch_upload_codes(a, stream);
               });
}

void upload_groups(Uploader& uploader, const void* from, int size, const WeightView& weight,
                   std::byte* to, rt::Stream& stream) {
  const std::int64_t groups = groups_of(weight), panel = kPanelRows * groups * size;
  const bool halves = weight.scheme.has_byte_scales();
  uploader.run(from, weight.padded_rows() / kPanelRows, panel / (halves ? 2 : 1),
               [&](const std::byte* there, std::int64_t first, std::int64_t count) {
                 launch_upload_groups(
                     {there, to + first * panel, size, halves, count * kPanelRows, groups}, stream);
               });
}

void upload_floats(Uploader& uploader, const WeightView& weight, std::byte* to,
                   rt::Stream& stream) {
  const std::int64_t size = number_bytes(weight);
  const std::int64_t row = float_stride(weight.columns) * size;
  uploader.run(weight.codes, weight.rows, weight.columns * size,
               [&](const std::byte* there, std::int64_t first, std::int64_t count) {
                 launch_upload_floats(
                     {there, to + first * row, static_cast<int>(size), count, weight.columns},
                     stream);
               });
}

void upload_codes(Uploader& uploader, const WeightView& weight, const WeightBytes& at,
                  std::byte* to, rt::Stream& stream) {
  const CodePlanes planes = code_planes(weight);
  upload_plane(uploader, weight.codes, planes.low_bits, false, weight, to, stream);
  if (planes.high_bits > 0) {
    upload_plane(uploader, weight.codes + planes.high_at, planes.high_bits, true, weight, to,
                 stream);
  }
  if (is_grouped(weight)) {
    upload_groups(uploader, weight.scales, 2, weight, to + at.scales_at, stream);
  } else {
    uploader.copy(weight.scales, to + at.scales_at, weight.padded_rows() * 4);
  }
  if (weight.scheme.kind == CodeKind::uint_) {
    upload_groups(uploader, weight.zeros, 1, weight, to + at.zeros_at, stream);
  }
}

// Copies the planes unchanged, and puts the planes of codes next to each other.
void upload_super(Uploader& uploader, const WeightView& weight, const WeightBytes& at,
                  std::byte* to) {
  const CodePlanes planes = code_planes(weight);
  const std::int64_t codes = weight.padded_rows() * weight.padded_columns();
  const auto bytes = [&](int bits) { return codes * bits / 8; };
  uploader.copy(weight.codes, to, bytes(planes.low_bits));
  if (planes.high_bits > 0) {
    uploader.copy(weight.codes + planes.high_at, to + bytes(planes.low_bits),
                  bytes(planes.high_bits));
  }
  const PlaneBytes all = plane_bytes(weight.scheme, weight.act, weight.rows, weight.columns);
  uploader.copy(weight.scales, to + at.scales_at, static_cast<std::int64_t>(all.scales));
  uploader.copy(weight.zeros, to + at.zeros_at, static_cast<std::int64_t>(all.zeros));
}

}  // namespace

WeightView upload_weight(const WeightView& weight, std::byte* to, Uploader& uploader,
                         rt::Stream& stream) {
  const WeightBytes at = weight_bytes(weight);
  WeightView there = weight;
  there.codes = to;
  there.scales = nullptr;
  there.zeros = nullptr;
  there.sums = nullptr;
  there.high_at = 0;  // on the device, codes are one plane
  if (weight.rows == 0) return there;
  if (weight.scheme.is_float()) {
    upload_floats(uploader, weight, to, stream);
    return there;
  }
  there.scales = to + at.scales_at;
  if (weight.scheme.is_super()) {
    upload_super(uploader, weight, at, to);
  } else {
    upload_codes(uploader, weight, at, to, stream);
  }
  if (weight.scheme.kind == CodeKind::uint_ || weight.scheme.is_super()) {
    there.zeros = reinterpret_cast<const std::uint8_t*>(to + at.zeros_at);
  }
  return there;
}

FloatWeight float_weight(const WeightView& weight) {
  const CodeKind kind = weight.scheme.kind;
  return {weight.codes, kind == CodeKind::f32   ? FloatType::f32
                        : kind == CodeKind::f16 ? FloatType::f16
                                                : FloatType::bf16};
}

SuperWeight super_weight(const WeightView& weight) {
  SuperWeight made;
  made.codes = reinterpret_cast<const std::uint8_t*>(weight.codes);
  made.high = made.codes + weight.padded_rows() * weight.padded_columns() / 2;
  made.supers = static_cast<const std::uint16_t*>(weight.scales);
  made.subs = weight.zeros;
  made.bits = weight.scheme.bits;
  return made;
}

CodeWeight code_weight(const WeightView& weight) {
  CodeWeight made;
  made.codes = reinterpret_cast<const std::uint8_t*>(weight.codes);
  made.bits = weight.scheme.bits;
  made.has_table = weight.scheme.has_table();
  if (made.has_table) {
    std::memcpy(made.table.data(), table_numbers(weight.scheme.kind).data(), sizeof(made.table));
  }
  made.zero = weight.scheme.bias();
  made.zeros = weight.zeros;
  if (is_grouped(weight)) {
    made.group = weight.scheme.group;
    made.group_scales = static_cast<const std::uint16_t*>(weight.scales);
    made.scale_mul = weight.scale_mul;
  } else {
    made.row_scales = static_cast<const float*>(weight.scales);
  }
  return made;
}

void gather_table(const WeightView& table, const std::int32_t* ids, const std::int32_t* drawn,
                  std::size_t count, Rows& x, Gather gather, float scale, rt::Stream& stream) {
  const auto tokens = static_cast<std::int64_t>(count);
  if (table.scheme.is_super()) {
    ensure(gather == Gather::store, "embedding: positions of type ", scheme_name(table.scheme));
    return launch_super_embed(
        {super_weight(table), table.columns, ids, drawn, tokens, float_rows(x), scale}, stream);
  }
  EmbedArguments a;
  a.is_float = table.scheme.is_float();
  if (a.is_float) {
    a.floats = float_weight(table);
  } else {
    a.codes = code_weight(table);
  }
  a.width = table.columns;
  a.ids = ids;
  a.drawn = drawn;
  a.tokens = tokens;
  a.x = float_rows(x);
  a.add = gather == Gather::add;
  a.scale = scale;
  launch_embed(a, stream);
}

}  // namespace leq::LEQ_GPU

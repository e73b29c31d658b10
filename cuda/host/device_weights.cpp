#include "cuda/host/device_weights.h"

#include "cuda/layout/weight_bytes.h"

namespace leq::LEQ_GPU {
namespace {

constexpr std::int64_t kPanelRows = 64;

bool is_grouped(const WeightView& weight) { return weight.scheme.scaling == Scaling::group; }

// A panel takes as many bytes in the file as its rows do in the planes.
void upload_plane(Uploader& uploader, const std::byte* from, int bits, const WeightView& weight,
                  std::byte* to, rt::Stream& stream) {
  const std::int64_t panel = kPanelRows * weight.padded_columns() * bits / 8;
  uploader.run(from, weight.padded_rows() / kPanelRows, panel,
               [&](const std::byte* there, std::int64_t first, std::int64_t count) {
                 launch_upload_codes({reinterpret_cast<const std::uint8_t*>(there),
                                      reinterpret_cast<std::uint8_t*>(to + first * panel), bits,
                                      count * kPanelRows, weight.padded_columns()},
                                     stream);
               });
}

void upload_groups(Uploader& uploader, const void* from, int size, const WeightView& weight,
                   std::byte* to, rt::Stream& stream) {
  const std::int64_t groups = groups_of(weight), panel = kPanelRows * groups * size;
  uploader.run(
      from, weight.padded_rows() / kPanelRows, panel,
      [&](const std::byte* there, std::int64_t first, std::int64_t count) {
        launch_upload_groups({there, to + first * panel, size, count * kPanelRows, groups}, stream);
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
  const CodePlanes planes = code_planes(weight.scheme, weight.rows, weight.columns);
  upload_plane(uploader, weight.codes, planes.low_bits, weight, to, stream);
  if (planes.high_bits > 0) {
    upload_plane(uploader, weight.codes + code_planes(weight).high_at, planes.high_bits, weight,
                 to + planes.high_at, stream);
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

}  // namespace

WeightView upload_weight(const WeightView& weight, std::byte* to, Uploader& uploader,
                         rt::Stream& stream) {
  const WeightBytes at = weight_bytes(weight);
  WeightView there = weight;
  there.codes = to;
  there.scales = nullptr;
  there.zeros = nullptr;
  there.sums = nullptr;
  there.high_at = 0;  // a slice's planes lie as a whole weight's
  if (weight.rows == 0) return there;
  if (weight.scheme.is_float()) {
    upload_floats(uploader, weight, to, stream);
    return there;
  }
  upload_codes(uploader, weight, at, to, stream);
  there.scales = to + at.scales_at;
  if (weight.scheme.kind == CodeKind::uint_) {
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

CodeWeight code_weight(const WeightView& weight) {
  CodeWeight made;
  const CodePlanes planes = code_planes(weight.scheme, weight.rows, weight.columns);
  made.codes = reinterpret_cast<const std::uint8_t*>(weight.codes);
  if (planes.high_bits > 0) made.high = made.codes + planes.high_at;
  made.bits = weight.scheme.bits;
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

}  // namespace leq::LEQ_GPU

#include "cuda/device_weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "cuda/layout.h"
#include "cuda/memory.h"

namespace leq::LEQ_GPU {
namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{16} << 20;
constexpr std::int64_t kPanelRows = 64;

std::int64_t element_bytes(const WeightView& weight) {
  return weight.scheme.kind == CodeKind::f32 ? 4 : 2;
}
std::int64_t groups_of(const WeightView& weight) {
  return weight.scheme.scaling == Scaling::group ? weight.padded_columns() / weight.scheme.group
                                                 : 1;
}
bool is_grouped(const WeightView& weight) { return weight.scheme.scaling == Scaling::group; }

// The way of bytes to the device, a chunk at a time.
class Uploader {
 public:
  Uploader(int device, rt::Stream& stream, std::int64_t largest_unit, std::int64_t all_bytes)
      : stream_(stream),
        chunk_(std::max(largest_unit, std::min(kChunkBytes, all_bytes))),
        host_(static_cast<std::size_t>(chunk_)),
        device_(device, static_cast<std::size_t>(chunk_)) {}

  // `units` of unit_bytes from the host; launch(from, first unit, count) re-lays what has landed.
  template <class Launch>
  void run(const void* from, std::int64_t units, std::int64_t unit_bytes, Launch launch) {
    const std::int64_t most = chunk_ / unit_bytes;
    for (std::int64_t first = 0; first < units; first += most) {
      const std::int64_t count = std::min(most, units - first);
      const auto bytes = static_cast<std::size_t>(count * unit_bytes);
      std::memcpy(host_.data(), static_cast<const std::byte*>(from) + first * unit_bytes, bytes);
      rt::copy_to_device(device_.data(), host_.data(), bytes, stream_);
      launch(device_.data(), first, count);
      rt::synchronize(stream_);
    }
  }
  void copy(const void* from, std::byte* to, std::int64_t bytes) {
    run(from, bytes, 1, [&](const std::byte* there, std::int64_t first, std::int64_t count) {
      rt::copy_on_device(to + first, there, static_cast<std::size_t>(count), stream_);
    });
  }

 private:
  rt::Stream& stream_;
  std::int64_t chunk_;
  Pinned host_;
  DeviceScratch device_;
};

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
  const std::int64_t size = element_bytes(weight);
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
    upload_plane(uploader, weight.codes + planes.high_at, planes.high_bits, weight,
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

WeightBytes weight_bytes(const WeightView& weight) {
  const auto aligned = [](std::int64_t bytes) {
    return static_cast<std::size_t>(round_up_to(bytes, 256));
  };
  require(weight.scheme.is_float() || weight.scheme.is_integer(), "weights of type ",
          scheme_name(weight.scheme), " run on the CPU alone; use -dev cpu, or quantize with",
          " --type int4 or another integer type");
  WeightBytes at;
  if (weight.scheme.is_float()) {
    at.bytes = aligned(weight.rows * float_stride(weight.columns) * element_bytes(weight));
    return at;
  }
  const std::int64_t groups = weight.padded_rows() * groups_of(weight);
  at.scales_at = aligned(weight.padded_rows() * weight.padded_columns() * weight.scheme.bits / 8);
  at.zeros_at = at.scales_at + aligned(groups * (is_grouped(weight) ? 2 : 4));
  at.bytes = at.zeros_at + (weight.scheme.kind == CodeKind::uint_ ? aligned(groups) : 0);
  return at;
}

WeightView upload_weight(const WeightView& weight, std::byte* to, int device, rt::Stream& stream) {
  const WeightBytes at = weight_bytes(weight);
  const std::int64_t panel = weight.scheme.is_float() ? weight.columns * element_bytes(weight)
                                                      : kPanelRows * weight.padded_columns() * 4;
  Uploader uploader(device, stream, panel, static_cast<std::int64_t>(at.bytes));
  WeightView there = weight;
  there.codes = to;
  there.scales = nullptr;
  there.zeros = nullptr;
  there.sums = nullptr;
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

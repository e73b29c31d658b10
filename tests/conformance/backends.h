// All backends that this machine can run, for tests of their common properties, and helpers for
// rows and weights through the interface of src/backend, so that no test accesses device memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "base/random.h"
#include "gpu_devices.h"
#include "runtime/make_backend.h"
#include "tensor/pack.h"

namespace leq::test {

struct BackendCase {
  std::string name;
  std::function<std::unique_ptr<Backend>()> make;
};
inline void PrintTo(const BackendCase& item, std::ostream* out) { *out << item.name; }

inline std::vector<BackendCase> all_backends() {
  std::vector<BackendCase> cases;
  for (const Isa isa : supported_isas()) {
    cases.push_back({test_name("cpu_" + std::string(isa_name(isa))),
                     [isa] { return make_cpu_backend({.threads = 2, .isa = isa}); }});
  }
  for (const std::string& device : gpu_devices()) {
    cases.push_back(
        {test_name(device), [device] { return make_backend({.device = device, .threads = 1}); }});
  }
  return cases;
}

class Conformance : public testing::TestWithParam<BackendCase> {
 protected:
  std::unique_ptr<Backend> backend = GetParam().make();
  std::vector<Buffer> memory;  // buffers of uploaded weights

  // Stored here, because the CPU backend references uploaded data instead of copying it.
  const float* upload_vector(std::vector<float> values) {
    vectors_.push_back(std::move(values));
    WeightView view;
    view.rows = 1;
    view.columns = std::ssize(vectors_.back());
    view.codes = reinterpret_cast<const std::byte*>(vectors_.back().data());
    return reinterpret_cast<const float*>(backend->memory().place(view, memory).codes);
  }
  // Planes in a file's layout, aligned to 64 bytes; they are kept here for the same reason.
  WeightView upload_weight(const PackedWeight& packed) {
    WeightView view = packed.view();
    view.codes = aligned(packed.codes);
    view.scales = aligned(packed.scales);
    view.zeros = reinterpret_cast<const std::uint8_t*>(aligned(packed.zeros));
    view.sums = aligned(packed.sums);
    return backend->memory().place(view, memory);
  }
  Rows rows_of(const std::vector<float>& values, std::int64_t width) {
    Rows rows = backend->allocate_rows(std::ssize(values) / width, width, {});
    backend->assign(values, rows);
    return rows;
  }
  std::vector<float> values_of(const Rows& rows, std::int64_t tokens) {
    std::vector<float> values(static_cast<std::size_t>(tokens * rows.width));
    backend->download(rows, tokens, values);
    return values;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const std::byte* aligned(const std::vector<std::byte>& bytes) {
    if (bytes.empty()) return nullptr;
    planes_.emplace_back(bytes.size() / sizeof(Line) + 1);
    std::memcpy(planes_.back().data(), bytes.data(), bytes.size());
    return planes_.back()[0].bytes;
  }

  std::deque<std::vector<float>> vectors_;
  std::deque<std::vector<Line>> planes_;
};

// Names the instance of a backend; every TEST_P(Conformance, ...) runs once for each backend.
inline std::string case_name(const testing::TestParamInfo<BackendCase>& item) {
  return item.param.name;
}

inline std::vector<float> random_numbers(std::int64_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> numbers(static_cast<std::size_t>(n));
  for (float& x : numbers) x = random.normal();
  return numbers;
}

// A row quantized in the common arithmetic: codes, and a scale for each group of columns.
struct QuantizedRow {
  std::vector<int> codes;
  std::vector<float> scales;  // one for each group
};
// The number of columns per input scale; 0: the whole row.
inline std::int64_t columns_of_scale(ActKind act) {
  return act == ActKind::g128 ? 128 : act == ActKind::g32 ? 32 : 0;
}

inline QuantizedRow quantize_row(std::span<const float> x, std::int64_t group, float known_scale) {
  QuantizedRow row;
  for (std::size_t first = 0; first < x.size(); first += static_cast<std::size_t>(group)) {
    const auto part = x.subspan(first, std::min(static_cast<std::size_t>(group), x.size() - first));
    float largest = 0;
    for (const float value : part) largest = std::max(largest, std::abs(value));
    const bool zero = largest < 1e-12f && known_scale == 0;
    const float scale = known_scale > 0 ? known_scale : zero ? 1.0f : largest / 127.0f;
    const float inverse = known_scale > 0 ? 1.0f / known_scale : zero ? 0.0f : 127.0f / largest;
    row.scales.push_back(scale);
    for (const float value : part) {
      row.codes.push_back(
          static_cast<int>(std::nearbyint(std::clamp(value * inverse, -127.0f, 127.0f))));
    }
  }
  return row;
}

}  // namespace leq::test

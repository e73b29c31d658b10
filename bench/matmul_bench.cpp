// Speed of Operations::linear on the CPU: int8 operations (2 per multiply-add) and bytes of weights
// per second, for prompt, batched and single-token shapes.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/huge_pages.h"
#include "base/random.h"
#include "tensor/weight_layout.h"

namespace leq {
namespace {

struct Shape {
  std::int64_t tokens, outputs, inputs;
};

// A weight with random codes whose scales are all small.
class SyntheticWeight {
 public:
  SyntheticWeight(const QuantScheme& scheme, ActKind act, const Shape& shape)
      : bytes_(plane_bytes(scheme, act, shape.outputs, shape.inputs)),
        codes_(bytes_.codes, "codes"),
        scales_(bytes_.scales + 64, "scales"),
        sums_(bytes_.sums + 64, "sums") {
    Random random(1);
    for (std::uint64_t i = 0; i + 4 <= bytes_.codes; i += 4) {
      // Some bits of each byte stay 0, so that no code is -128 or a very large float.
      const std::uint32_t word = random.bits() & 0x3f3f3f3fu;
      std::memcpy(codes_.data() + i, &word, sizeof word);
    }
    const bool grouped = scheme.scaling == Scaling::group;
    for (std::uint64_t i = 0; i + 4 <= bytes_.scales; i += 4) {
      const std::uint32_t word = grouped ? 0x20002000u : 0x3a83126fu;  // 2^-7, 0.001
      std::memcpy(scales_.data() + i, &word, sizeof word);
    }
    view_.scheme = scheme;
    view_.act = act;
    view_.rows = shape.outputs;
    view_.columns = shape.inputs;
    view_.codes = codes_.data();
    view_.scales = scales_.data();
    view_.sums = sums_.data();
  }

  const WeightView& view() const { return view_; }
  std::uint64_t bytes() const { return bytes_.codes + bytes_.scales + bytes_.sums; }

 private:
  PlaneBytes bytes_;
  HugeBuffer codes_, scales_, sums_;
  WeightView view_;
};

void run_linear(benchmark::State& state, const std::string& scheme_text, ActKind act, Shape shape,
                int threads) {
  const QuantScheme scheme = require_scheme(scheme_text, "bench");
  const auto backend = make_cpu_backend({.threads = threads, .isa = chosen_isa()});
  const SyntheticWeight weight(scheme, act, shape);
  Linear linear;
  linear.segments = {{weight.view(), nullptr}};
  linear.inputs = shape.inputs;
  linear.outputs = shape.outputs;
  linear.act = act;
  linear.name = "bench";
  Rows values = backend->allocate_rows(shape.tokens, shape.inputs, RowsFormat{});
  Rows x = backend->allocate_rows(shape.tokens, shape.inputs, backend->layout().format_for(linear));
  Rows out = backend->allocate_rows(shape.tokens, shape.outputs, RowsFormat{});
  if (x.codes != nullptr)
    std::memset(x.codes, 77, static_cast<std::size_t>(shape.tokens * x.code_stride));
  for (std::int64_t i = 0; x.scales != nullptr && i < shape.tokens * x.scale_stride; ++i) {
    x.scales[i] = 0.01f;
  }
  for (auto _ : state) backend->linear(x, shape.tokens, linear, Epilogue::none, out);
  const double runs = static_cast<double>(state.iterations());
  const double operations = 2.0 * static_cast<double>(shape.tokens) *
                            static_cast<double>(shape.outputs) * static_cast<double>(shape.inputs);
  state.counters["GOPS"] = benchmark::Counter(operations * runs / 1e9, benchmark::Counter::kIsRate);
  state.counters["GBps"] = benchmark::Counter(static_cast<double>(weight.bytes()) * runs / 1e9,
                                              benchmark::Counter::kIsRate);
}

void add(const std::string& scheme, ActKind act, Shape shape) {
  for (int threads = 1; threads <= 2; ++threads) {
    const std::string name = scheme + "/" + std::string(act_name(act)) + "/" +
                             std::to_string(shape.tokens) + "x" + std::to_string(shape.outputs) +
                             "x" + std::to_string(shape.inputs) +
                             "/threads:" + std::to_string(threads);
    benchmark::RegisterBenchmark(name.c_str(), run_linear, scheme, act, shape, threads)
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

void add_all() {
  constexpr Shape kPrompt[] = {{512, 2048, 5632}, {512, 5632, 2048}, {512, 4096, 4096},
                               {512, 768, 768},   {16, 4096, 4096},  {8, 4096, 4096},
                               {4, 4096, 4096}};
  for (const Shape& shape : kPrompt) {
    for (const char* scheme : {"int8", "int8-g128", "int4-g128"}) {
      add(scheme, ActKind::row, shape);
      add(scheme, ActKind::g128, shape);
    }
    for (const char* scheme : {"f32", "f16"}) add(scheme, ActKind::none, shape);
  }
  // One token: 1 GiB of weights, and layers of models with 1.1 billion and 110 million parameters.
  add("int8", ActKind::row, {1, 262144, 4096});
  add("int8", ActKind::g128, {1, 262144, 4096});
  add("int4-g128", ActKind::row, {1, 524288, 4096});
  add("int4-g128", ActKind::g128, {1, 524288, 4096});
  add("f16", ActKind::none, {1, 131072, 4096});
  for (const Shape& shape : {Shape{1, 2048, 2048}, Shape{1, 768, 768}}) {
    add("int8", ActKind::row, shape);
    add("int4-g128", ActKind::row, shape);
  }
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  leq::add_all();
  benchmark::RunSpecifiedBenchmarks();
}

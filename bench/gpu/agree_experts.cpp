#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "bench/gpu/agree.h"
#include "bench/gpu/expert_routes.h"

namespace leq::LEQ_GPU::bench {
namespace {

// One linear of all experts. Inputs of gate and up have a row per token; inputs of down have one
// for each of the R rows.
struct ExpertLinear {
  const char* name;
  int columns, outputs, segments;
  Finish finish;
  bool has_row_each;
};

// The formats for which there is an expert_gemm.
constexpr CodeFormat kFormats[] = {
    {"int8", 8, 0, false, 0},          {"int8-g128", 8, 128, false, 128},
    {"uint8-g128", 8, 128, true, 128}, {"int8-g32", 8, 32, false, 128},
    {"int4-g128", 4, 128, false, 128}, {"uint4-g128", 4, 128, true, 128},
    {"int4-g32", 4, 32, false, 128},   {"int3-g128", 3, 128, false, 128},
    {"uint3-g128", 3, 128, true, 128}, {"int2-g128", 2, 128, false, 128},
    {"uint2-g128", 2, 128, true, 128}};

// Rows of codes, on the host and on the device.
class Inputs {
 public:
  Inputs(const CodeFormat& format, std::int64_t columns, std::int64_t count, rt::Stream& stream)
      : Inputs(format, columns, random(format, columns, count), stream) {}
  // Row order[i] of `other` as row i.
  Inputs(const Inputs& other, const Numbers& order, rt::Stream& stream)
      : Inputs(other.format_, other.columns_, other.rows_in(order), stream) {}

  CodeRows rows() const {
    return format_.rows(columns_, codes_.as<std::int8_t>(), scales_.as<float>(),
                        sums_.as<std::int32_t>());
  }

 private:
  struct Host {
    std::vector<std::int8_t> codes;
    std::vector<float> scales;
    Numbers sums;
  };
  Inputs(const CodeFormat& format, std::int64_t columns, Host host, rt::Stream& stream)
      : format_(format),
        columns_(padded_columns(columns)),
        host_(std::move(host)),
        codes_(on_device(host_.codes, stream)),
        scales_(on_device(host_.scales, stream)),
        sums_(on_device(host_.sums, stream)) {}

  static Host random(const CodeFormat& format, std::int64_t columns, std::int64_t count) {
    const CodeRows x = format.rows(padded_columns(columns), nullptr, nullptr, nullptr);
    Host host;
    host.codes.resize(static_cast<std::size_t>(count * x.code_stride));
    host.scales.resize(static_cast<std::size_t>(count * x.scale_stride));
    host.sums.resize(static_cast<std::size_t>(count * x.sum_stride));
    auto state = static_cast<std::uint32_t>(count);
    const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
    for (std::int8_t& code : host.codes)
      code = static_cast<std::int8_t>(static_cast<int>(next() % 255) - 127);
    for (float& scale : host.scales) scale = between(next(), 0.005f, 0.015f);
    for (std::size_t i = 0; i < host.codes.size(); ++i) {
      host.sums[i / static_cast<std::size_t>(x.sum_group)] += host.codes[i];
    }
    return host;
  }
  Host rows_in(const Numbers& order) const {
    const CodeRows x = rows();
    return {rows_at(host_.codes, order, x.code_stride),
            rows_at(host_.scales, order, x.scale_stride), rows_at(host_.sums, order, x.sum_stride)};
  }

  CodeFormat format_;
  std::int64_t columns_;
  Host host_;
  Memory codes_, scales_, sums_;
};

class Experts {
 public:
  Experts(const ExpertLinear& linear, const CodeFormat& format, int experts, rt::Stream& stream)
      : linear_(linear),
        format_(format),
        stream_(stream),
        weights_(format, std::int64_t{experts} * linear.segments * padded_rows(linear.outputs),
                 linear.columns, stream),
        table_(on_device(table(experts), stream)) {}

  // Compares every kernel; returns the outputs [R][outputs] in groups.
  Words compare(const Routes& routes, Tally& tally) const {
    const std::string what = std::string(format_.name) + " experts " + linear_.name + ", " +
                             std::to_string(routes.tokens) + " tokens, ";
    const Inputs x(format_, linear_.columns, linear_.has_row_each ? routes.count() : routes.tokens,
                   stream_);
    const Inputs grouped(x, linear_.has_row_each ? routes.rows : routes.token_of_rows(), stream_);
    const Words wanted = one_by_one(routes, grouped);

    const DeviceRoutes there(routes, stream_);
    ExpertMatmul a = matmul(routes, there, x);
    a.has_row_each = linear_.has_row_each;
    const Words found = outputs_of(routes, a.matmul.out, [&] { launch_expert_matmul(a, stream_); });
    tally.compare(found, rows_at(wanted, routes.places, stride()), stride(), what + "expert_gemv");
    for (const bool by_tiles : {true, false}) {
      // Inputs of down are in groups already. For gate and up, group_inputs overwrites other rows.
      const Inputs moved(x, linear_.has_row_each ? routes.rows : Numbers(routes.ids.size(), 0),
                         stream_);
      const DeviceRoutes ungrouped(routes, stream_);
      const auto kernel = what + (by_tiles ? "expert_gemm" : "expert_gemv in groups");
      tally.compare(in_groups(routes, ungrouped, x, moved, by_tiles), wanted, stride(), kernel);
      ungrouped.compare(what, tally);
    }
    return wanted;
  }

 private:
  std::int64_t stride() const { return float_stride(linear_.outputs); }
  CodeSegment segment(std::int64_t i) const {
    return weights_.codes(i * padded_rows(linear_.outputs), linear_.outputs);
  }
  std::vector<CodeSegment> table(int experts) const {
    std::vector<CodeSegment> all;
    for (int i = 0; i < experts * linear_.segments; ++i) all.push_back(segment(i));
    return all;
  }
  IntMatmul of_expert(int expert) const {
    IntMatmul a;
    for (; a.segment_count < linear_.segments; ++a.segment_count) {
      a.segments[a.segment_count] = segment(expert * linear_.segments + a.segment_count);
    }
    a.columns = linear_.columns;
    a.finish = linear_.finish;
    return a;
  }
  ExpertMatmul matmul(const Routes& routes, const DeviceRoutes& there, const Inputs& x) const {
    ExpertMatmul a;
    a.matmul = of_expert(0);
    a.matmul.tokens = linear_.has_row_each ? routes.count() : routes.tokens;
    a.matmul.x = x.rows();
    a.segments = table_.as<CodeSegment>();
    a.choice = there.choice();
    a.rows = routes.count();
    return a;
  }
  // Returns what `launch` writes to `out`, which is filled with NaN before.
  template <class Launch>
  Words outputs_of(const Routes& routes, FloatRows& out, Launch launch) const {
    const auto words = static_cast<std::size_t>(routes.count() * stride());
    const Memory there = Memory::filled(words * 4, ~0u, stream_);
    out = {there.as<float>(), stride()};
    launch();
    return words_of(there.as<void>(), words, stream_);
  }

  // Computes the reference: int_gemm for each expert on its rows.
  Words one_by_one(const Routes& routes, const Inputs& grouped) const {
    FloatRows out;
    return outputs_of(routes, out, [&] {
      for (int e = 0; e + 1 < static_cast<int>(std::ssize(routes.first)); ++e) {
        const std::int64_t first = routes.first[static_cast<std::size_t>(e)];
        IntMatmul one = of_expert(e);
        one.tokens = routes.first[static_cast<std::size_t>(e) + 1] - first;
        if (one.tokens == 0) continue;
        one.x = grouped.rows();
        one.x.codes += first * one.x.code_stride;
        one.x.scales += first * one.x.scale_stride;
        if (one.x.sums != nullptr) one.x.sums += first * one.x.sum_stride;
        one.out = {out.values + first * out.stride, out.stride};
        launch_int_gemm(one, GemmTile::middle, stream_);
      }
    });
  }
  // Launches group_rows, for gate and up group_inputs, and the matmul without a pause.
  Words in_groups(const Routes& routes, const DeviceRoutes& there, const Inputs& x,
                  const Inputs& moved, bool by_tiles) const {
    ExpertMatmul a = matmul(routes, there, moved);
    a.in_groups = true;
    require(has_expert_gemm(a.matmul), format_.name, ": no expert_gemm");
    return outputs_of(routes, a.matmul.out, [&] {
      there.launch_grouping();
      if (!linear_.has_row_each) {
        launch_group_inputs({x.rows(), moved.rows(), there.choice(), routes.count()}, stream_);
      }
      if (by_tiles) launch_expert_gemm(a, there.groups(), stream_);
      if (!by_tiles) launch_expert_matmul(a, stream_);
    });
  }

  ExpertLinear linear_;
  CodeFormat format_;
  rt::Stream& stream_;
  RandomWeights weights_;
  Memory table_;
};

// x += the weighted products of each token, in ascending order of experts.
void add_products(const Routes& routes, const Words& products, int width, std::vector<float>& x) {
  const auto stride = static_cast<std::size_t>(float_stride(width));
  for (std::size_t r = 0; r < routes.places.size(); ++r) {
    float* const sum = x.data() + r / static_cast<std::size_t>(routes.active) * stride;
    for (std::size_t c = 0; c < static_cast<std::size_t>(width); ++c) {
      const float weighted =
          DeviceRoutes::weight(r) * std::bit_cast<float>(products[r * stride + c]);
      sum[c] = sum[c] + weighted;
    }
  }
}

// Compares add_experts, of products in groups and in the order of tokens, with plain sums.
void compare_sums(const Routes& routes, const Words& grouped, int width, rt::Stream& stream,
                  Tally& tally) {
  const std::int64_t stride = float_stride(width);
  const Words ordered = rows_at(grouped, routes.places, stride);
  std::vector<float> x(static_cast<std::size_t>(routes.tokens * stride));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.01f * static_cast<float>(i % 211) - 1;
  std::vector<float> sums = x;
  add_products(routes, ordered, width, sums);
  Words wanted(sums.size());
  std::memcpy(wanted.data(), sums.data(), sums.size() * 4);
  for (const bool in_groups : {false, true}) {
    const DeviceRoutes there(routes, stream);
    const Memory x_there = on_device(x, stream);
    const Memory products = on_device(in_groups ? grouped : ordered, stream);
    if (in_groups) there.launch_grouping();
    launch_add_experts({{x_there.as<float>(), stride},
                        {products.as<float>(), stride},
                        there.choice(),
                        in_groups,
                        false,
                        routes.tokens,
                        width},
                       stream);
    tally.compare(words_of(x_there.as<void>(), wanted.size(), stream), wanted, stride,
                  std::to_string(routes.tokens) + " tokens, add_experts");
  }
}

}  // namespace

Tally compare_experts(bool tiny, rt::Stream& stream) {
  const ExpertSizes sizes = tiny ? ExpertSizes{6, 2, 128, 128} : ExpertSizes{128, 8, 2048, 768};
  const ExpertLinear linears[] = {{"gate_up", sizes.width, sizes.hidden, 2, Finish::swiglu, false},
                                  {"down", sizes.hidden, sizes.width, 1, Finish::store, true}};
  std::vector<Routes> steps;
  for (const std::int64_t tokens : {1, 5, 33, 70, 300, 2048}) {
    if (!tiny || tokens == 5 || tokens == 70) steps.emplace_back(sizes, tokens);
  }
  Tally all;
  for (const CodeFormat& format : kFormats) {
    for (const ExpertLinear& linear : linears) {
      const Experts experts(linear, format, sizes.experts, stream);
      Tally tally;
      for (const Routes& routes : steps) {
        const Words outputs = experts.compare(routes, tally);
        if (linear.has_row_each) compare_sums(routes, outputs, sizes.width, stream, tally);
      }
      print(format, std::string("experts ") + linear.name, linear.segments * linear.outputs,
            linear.columns, tally);
      all.add(tally);
    }
  }
  return all;
}

}  // namespace leq::LEQ_GPU::bench

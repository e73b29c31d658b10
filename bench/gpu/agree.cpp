// Compares the kernels for one matmul at the sizes of llama-7b, bit for bit: few and many tokens,
// every width and grouping of codes, every kernel that may run on this GPU. Large grids, many
// blocks per multiprocessor and early launches expose what small tests cannot. The reference is
// int_gemm (or float_gemm), whose results the tests compare with plain loops.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "bench/gpu/agree_layers.h"
#include "bench/gpu/data.h"
#include "bench/gpu/random.h"
#include "bench/gpu/timing.h"
#include "cuda/host/float_forms.h"
#include "cuda/host/memory.h"
#include "cuda/kernels/matmul/int_matmul.h"

namespace leq::LEQ_GPU::bench {
namespace {

struct Kind {
  const char* name;
  int bits;  // 16: f16
  int weight_group;
  bool has_zeros;
  int token_group;  // -1: f32 inputs
};
constexpr Kind kKinds[] = {{"int8", 8, 0, false, 0},
                           {"int8", 8, 0, false, 128},
                           {"int8-g128", 8, 128, false, 0},
                           {"int8-g128", 8, 128, false, 128},
                           {"int8-g32", 8, 32, false, 128},
                           {"uint8", 8, 0, true, 0},
                           {"uint8", 8, 0, true, 128},
                           {"uint8-g128", 8, 128, true, 0},
                           {"uint8-g128", 8, 128, true, 128},
                           {"int4-g128", 4, 128, false, 0},
                           {"int4-g128", 4, 128, false, 128},
                           {"uint4-g128", 4, 128, true, 0},
                           {"uint4-g128", 4, 128, true, 128},
                           {"int4-g64", 4, 64, false, 0},
                           {"int4-g64", 4, 64, false, 128},
                           {"uint4-g32", 4, 32, true, 128},
                           {"int3-g128", 3, 128, false, 0},
                           {"int3-g128", 3, 128, false, 128},
                           {"uint3-g128", 3, 128, true, 128},
                           {"int2-g128", 2, 128, false, 0},
                           {"int2-g128", 2, 128, false, 128},
                           {"uint2-g128", 2, 128, true, 128},
                           {"int8, act none", 8, 0, false, -1},
                           {"int4-g128, act none", 4, 128, false, -1},
                           {"f16", 16, 0, false, -1}};

// One linear of one kind, its inputs, and its outputs for `most_tokens` tokens.
class Problem {
 public:
  Problem(const LinearShape& shape, const Kind& kind, std::int64_t most_tokens, rt::Stream& stream)
      : shape_(shape),
        kind_(kind),
        stream_(stream),
        padded_(padded_columns(shape.columns)),
        groups_(kind.weight_group == 0 ? 1 : padded_ / kind.weight_group),
        stride_(float_stride(shape.outputs())),
        columns_(float_stride(shape.columns)),
        x_(numbers<float>(static_cast<std::size_t>((most_tokens + 1) * columns_), stream,
                          [](std::uint32_t r) { return between(r, -2, 2); })),
        codes_(weights(kind, stream)),
        scales_(numbers<float>(code_scales(), stream,
                               [](std::uint32_t r) { return between(r, 0.001f, 0.002f); })),
        group_scales_(numbers<std::uint16_t>(
            code_scales(), stream,
            [](std::uint32_t r) { return static_cast<std::uint16_t>(0x1800 + r % 0x800); })),
        zeros_(numbers<std::uint8_t>(code_scales(), stream,
                                     [bits = kind.bits](std::uint32_t r) {
                                       return static_cast<std::uint8_t>((r >> 8) %
                                                                        (1u << std::min(bits, 8)));
                                     })),
        x_codes_(zeroed(most_tokens * padded_)),
        x_scales_(zeroed(most_tokens * (padded_ / 128) * 4)),
        x_sums_(zeroed(most_tokens * (padded_ / 32) * 4)),
        pieces_(zeroed(most_tokens * padded_ * 4)),
        piece_scales_(zeroed(most_tokens * 8)),
        start_(numbers<float>(static_cast<std::size_t>(most_tokens * stride_), stream,
                              [](std::uint32_t r) { return between(r, -1, 1); })),
        out_(zeroed(most_tokens * stride_ * 4)),
        found_(static_cast<std::size_t>(most_tokens * stride_) * 4),
        wanted_(found_.size()) {}

  bool has_f32_inputs() const { return kind_.token_group < 0; }

  // The kernel's arguments for `tokens` tokens.
  IntMatmul int_matmul(std::int64_t tokens) const {
    IntMatmul a;
    add_segments(a);
    a.tokens = tokens;
    a.columns = shape_.columns;
    a.x = x_codes();
    a.finish = shape_.finish;
    a.out = out();
    return a;
  }
  void launch_f32_inputs(std::int64_t tokens, TermOrder order) const {
    if (kind_.bits == 16) {
      FloatMatmul a;
      std::int64_t row = 0;
      for (const int rows : shape_.rows) {
        a.segments[a.segment_count++] = {
            {codes_.as<std::uint16_t>(static_cast<std::size_t>(row * columns_) * 2),
             FloatType::f16},
            nullptr,
            rows};
        row += padded_rows(rows);
      }
      fill(a, tokens, order);
      return launch_float_matmul(a, stream_);
    }
    WeightOnlyMatmul a;
    add_segments(a);
    fill(a, tokens, order);
    launch_weight_only_matmul(a, stream_);
  }

  // Runs the quantization and `launch` twice without a pause, first on different inputs. A kernel
  // that reads its inputs too early then computes with the wrong ones.
  void run(std::int64_t tokens, TermOrder order, const std::function<void()>& launch) const {
    for (const std::int64_t first : {1, 0}) {
      rt::copy_on_device(out_.as<void>(), start_.as<void>(), out_bytes(tokens), stream_);
      QuantizeArguments q;
      q.x = {x_.as<float>(static_cast<std::size_t>(first * columns_) * 4), columns_};
      q.tokens = tokens;
      q.width = shape_.columns;
      if (has_f32_inputs()) {
        q.quantize.terms = terms(order);
      } else {
        q.quantize.out = x_codes();
      }
      launch_quantize(q, stream_);
      launch();
    }
  }
  void keep_as_wanted(std::int64_t tokens) { fetch(wanted_, tokens); }

  // Counts the outputs that differ from the expected ones; prints the first few.
  std::int64_t differences(std::int64_t tokens, const char* kernel) {
    fetch(found_, tokens);
    if (std::memcmp(found_.data(), wanted_.data(), out_bytes(tokens)) == 0) return 0;
    const auto* found = reinterpret_cast<const std::uint32_t*>(found_.data());
    const auto* wanted = reinterpret_cast<const std::uint32_t*>(wanted_.data());
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < tokens * stride_; ++i) {
      if (found[i] == wanted[i] || ++wrong > 3) continue;
      std::printf("WRONG %s x%d %s, %lld tokens, %s: token %lld, column %lld: %08x, not %08x\n",
                  kind_.name, kind_.token_group, shape_.name.c_str(),
                  static_cast<long long>(tokens), kernel, static_cast<long long>(i / stride_),
                  static_cast<long long>(i % stride_), found[i], wanted[i]);
    }
    return wrong;
  }

 private:
  Memory zeroed(std::int64_t bytes) const {
    return Memory::filled(static_cast<std::size_t>(bytes), 0, stream_);
  }
  std::int64_t padded_outputs() const {
    std::int64_t rows = 0;
    for (const int n : shape_.rows) rows += padded_rows(n);
    return rows;
  }
  std::size_t code_scales() const { return static_cast<std::size_t>(padded_outputs() * groups_); }
  std::size_t out_bytes(std::int64_t tokens) const {
    return static_cast<std::size_t>(tokens * stride_) * 4;
  }
  Memory weights(const Kind& kind, rt::Stream& stream) const {
    if (kind.bits == 16) {
      return numbers<std::uint16_t>(
          static_cast<std::size_t>(padded_outputs() * columns_), stream, [](std::uint32_t r) {
            return static_cast<std::uint16_t>((r & 0x83ffu) | (0x1c00u + (r >> 10 & 7) * 0x400u));
          });
    }
    return numbers<std::uint8_t>(
        static_cast<std::size_t>(padded_outputs() * padded_ * kind.bits) / 8, stream,
        [](std::uint32_t r) { return static_cast<std::uint8_t>(r >> 9); });
  }
  FloatRows out() const { return {out_.as<float>(), stride_}; }
  CodeRows x_codes() const {
    CodeRows x;
    x.codes = x_codes_.as<std::int8_t>();
    x.scales = x_scales_.as<float>();
    x.sums = kind_.bits == 8 && !kind_.has_zeros ? nullptr : x_sums_.as<std::int32_t>();
    x.group = std::max(kind_.token_group, 0);
    x.sum_group = static_cast<int>(padded_);
    if (kind_.weight_group > 0 || x.group > 0) {
      x.sum_group = kind_.weight_group == 0 ? x.group
                    : x.group == 0          ? kind_.weight_group
                                            : std::min(kind_.weight_group, x.group);
    }
    x.code_stride = padded_;
    x.scale_stride = x.group == 0 ? 1 : padded_ / x.group;
    x.sum_stride = padded_ / x.sum_group;
    return x;
  }
  TermRows terms(TermOrder order) const {
    return {pieces_.as<std::uint16_t>(), piece_scales_.as<float>(), padded_ * 2, 2, order};
  }
  template <class Matmul>
  void add_segments(Matmul& a) const {
    std::int64_t row = 0;
    for (const int rows : shape_.rows) {
      CodeSegment& segment = a.segments[a.segment_count++];
      segment.rows = rows;
      CodeWeight& w = segment.weight;
      w.codes = codes_.as<std::uint8_t>(static_cast<std::size_t>(row * padded_ * kind_.bits) / 8);
      w.bits = kind_.bits;
      w.zero = kind_.bits == 8 || kind_.has_zeros ? 0 : 1 << (kind_.bits - 1);
      const auto at = static_cast<std::size_t>(row * groups_);
      w.zeros = kind_.has_zeros ? zeros_.as<std::uint8_t>(at) : nullptr;
      w.group = kind_.weight_group;
      w.row_scales = kind_.weight_group == 0 ? scales_.as<float>(at * 4) : nullptr;
      w.group_scales = kind_.weight_group == 0 ? nullptr : group_scales_.as<std::uint16_t>(at * 2);
      row += padded_rows(rows);
    }
  }
  template <class Matmul>
  void fill(Matmul& a, std::int64_t tokens, TermOrder order) const {
    a.tokens = tokens;
    a.columns = shape_.columns;
    a.x = terms(order);
    a.finish = shape_.finish;
    a.out = out();
  }
  void fetch(const Pinned& to, std::int64_t tokens) const {
    rt::copy_to_host(to.data(), out_.as<void>(), out_bytes(tokens), stream_);
    rt::synchronize(stream_);
  }

  LinearShape shape_;
  Kind kind_;
  rt::Stream& stream_;
  std::int64_t padded_, groups_, stride_, columns_;
  Memory x_, codes_, scales_, group_scales_, zeros_, x_codes_, x_scales_, x_sums_, pieces_,
      piece_scales_, start_, out_;
  Pinned found_, wanted_;
};

void compare_int(Problem& problem, const Kind& kind, const std::vector<std::int64_t>& counts,
                 rt::Stream& stream, Tally& tally) {
  const auto gemm = kind.bits == 8   ? launch_int_gemm_8
                    : kind.bits == 4 ? launch_int_gemm_4
                    : kind.bits == 3 ? launch_int_gemm_3
                                     : launch_int_gemm_2;
  struct Tile {
    const char* name;
    GemmTile tile;
    std::int64_t most_tokens;
  };
  constexpr Tile kTiles[] = {{"int_gemm few", GemmTile::few, 64},
                             {"int_gemm small", GemmTile::small, 64},
                             {"int_gemm large", GemmTile::large, 300}};
  const auto with_tile = [&](std::int64_t tokens, GemmTile tile) {
    problem.run(tokens, TermOrder::lanes, [&] { gemm(problem.int_matmul(tokens), tile, stream); });
  };
  with_tile(counts.back(), GemmTile::middle);
  problem.keep_as_wanted(counts.back());
  const bool fine = kind.weight_group == 32 || kind.weight_group == 64;  // have only tile `middle`
  for (const std::int64_t tokens : counts) {
    problem.run(tokens, TermOrder::lanes,
                [&] { launch_int_matmul(problem.int_matmul(tokens), stream); });
    tally.wrong += problem.differences(tokens, "what launch_int_matmul chooses");
    ++tally.runs;
    for (const Tile& tile : kTiles) {
      if (fine || tokens > tile.most_tokens) continue;
      with_tile(tokens, tile.tile);
      tally.wrong += problem.differences(tokens, tile.name);
      ++tally.runs;
    }
  }
}

void compare_f32_inputs(Problem& problem, const std::vector<std::int64_t>& counts, bool has_steps,
                        Tally& tally) {
  const auto with_order = [&](std::int64_t tokens, TermOrder order) {
    problem.run(tokens, order, [&] { problem.launch_f32_inputs(tokens, order); });
  };
  with_order(counts.back(), TermOrder::lanes);
  problem.keep_as_wanted(counts.back());
  for (const std::int64_t tokens : counts) {
    with_order(tokens, TermOrder::lanes);
    tally.wrong += problem.differences(tokens, "mma");
    ++tally.runs;
    if (!has_steps || tokens <= 128) continue;
    with_order(tokens, TermOrder::steps);
    tally.wrong += problem.differences(tokens, "wgmma");
    ++tally.runs;
  }
}

std::vector<LinearShape> shapes(bool tiny) {
  if (!tiny) return llama_linears(false);
  return {{"qkv", {128, 64, 64}, 256, Finish::store, 0},
          {"o", {128}, 256, Finish::add, 128},
          {"gate_up", {192, 192}, 256, Finish::swiglu, 0},
          {"down", {128}, 384, Finish::add, 128},
          {"head", {320}, 256, Finish::store, 128}};
}

void body(const Options& options, rt::Stream& stream) {
  const bool has_steps = finds_equal_forms(0, stream);
  std::printf("wgmma adds products of 16-bit floats as mma does: %s\n\n", has_steps ? "yes" : "no");
  print_head({"weights", "act", "linear", "outputs x inputs", "runs", "numbers that differ"});
  Tally all;
  for (const Kind& kind : kKinds) {
    for (const LinearShape& shape : shapes(options.tiny)) {
      // Models use this pair of groupings, so prompts are tested with it, too.
      const bool usual = kind.token_group < 0 || kind.token_group == shape.act_group;
      std::vector<std::int64_t> counts = {1, 2, 4, 8, 9, 16, 33, 64, 65, 128, 129};
      if (options.tiny) counts = {1, 5, 9, 33};
      if (!options.tiny) counts.push_back(300);
      if (!options.tiny && usual) counts.push_back(2048);
      Problem problem(shape, kind, counts.back(), stream);
      Tally tally;
      if (problem.has_f32_inputs()) {
        compare_f32_inputs(problem, counts, has_steps, tally);
      } else {
        compare_int(problem, kind, counts, stream, tally);
      }
      print_row({kind.name,
                 kind.token_group < 0    ? "none"
                 : kind.token_group == 0 ? "row"
                                         : "g128",
                 shape.name, number(shape.outputs(), 0) + " x " + number(shape.columns, 0),
                 number(static_cast<double>(tally.runs), 0),
                 number(static_cast<double>(tally.wrong), 0)});
      all.runs += tally.runs;
      all.wrong += tally.wrong;
    }
  }
  for (const Tally& tally :
       {compare_experts(options.tiny, stream), compare_delta_net(options.tiny, stream)}) {
    all.runs += tally.runs;
    all.wrong += tally.wrong;
  }
  std::printf("\n%lld runs\n", static_cast<long long>(all.runs));
  require(all.wrong == 0, "kernels do not agree: ", all.wrong, " numbers differ");
}

}  // namespace
}  // namespace leq::LEQ_GPU::bench

int main(int argc, char** argv) {
  return leq::LEQ_GPU::bench::run_bench(argc, argv, leq::LEQ_GPU::bench::body);
}

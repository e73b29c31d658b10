// Compares the kernels for one matmul at the sizes of llama-7b, bit for bit: few and many tokens,
// every width and grouping of codes, every kernel that may run on this GPU. Large grids, many
// blocks per multiprocessor and early launches expose what small tests cannot. The reference is
// int_gemm (or float_gemm), whose results the tests compare with plain loops. --only names one of
// the sections joined, experts, delta (agree.h) and linears.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "bench/gpu/agree.h"
#include "bench/gpu/data.h"
#include "bench/gpu/random.h"
#include "bench/gpu/timing.h"
#include "cuda/host/memory.h"

namespace leq::LEQ_GPU::bench {
namespace {

constexpr CodeFormat kFormats[] = {{"int8", 8, 0, false, 0},
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

// One linear of one format, its inputs, and its outputs for `most_tokens` tokens.
class Problem {
 public:
  Problem(const LinearShape& shape, const CodeFormat& format, std::int64_t most_tokens,
          rt::Stream& stream)
      : shape_(shape),
        format_(format),
        stream_(stream),
        padded_(padded_columns(shape.columns)),
        stride_(float_stride(shape.outputs())),
        columns_(float_stride(shape.columns)),
        weights_(format, padded_outputs(), shape.columns, stream),
        x_(numbers<float>(static_cast<std::size_t>((most_tokens + 1) * columns_), stream,
                          [](std::uint32_t r) { return between(r, -2, 2); })),
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

  bool has_f32_inputs() const { return format_.token_group < 0; }

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
  void launch_f32_inputs(std::int64_t tokens) const {
    if (format_.bits == 16) {
      FloatMatmul a;
      std::int64_t row = 0;
      for (const int rows : shape_.rows) {
        a.segments[a.segment_count++] = weights_.halves(row, rows);
        row += padded_rows(rows);
      }
      fill(a, tokens);
      return launch_float_matmul(a, stream_);
    }
    WeightOnlyMatmul a;
    add_segments(a);
    fill(a, tokens);
    launch_weight_only_matmul(a, stream_);
  }

  // Runs the quantization and `launch` twice without a pause, first on different inputs. A kernel
  // that reads its inputs too early then computes with the wrong ones.
  void run(std::int64_t tokens, const std::function<void()>& launch) const {
    for (const std::int64_t first : {1, 0}) {
      rt::copy_on_device(out_.as<void>(), start_.as<void>(), out_bytes(tokens), stream_);
      QuantizeArguments q;
      q.x = {x_.as<float>(static_cast<std::size_t>(first * columns_) * 4), columns_};
      q.tokens = tokens;
      q.width = shape_.columns;
      if (has_f32_inputs()) {
        q.quantize.terms = terms();
      } else {
        q.quantize.out = x_codes();
      }
      launch_quantize(q, stream_);
      launch();
    }
  }
  void keep_as_wanted(std::int64_t tokens) { fetch(wanted_, tokens); }

  // Compares the outputs with the kept ones.
  void compare(std::int64_t tokens, const char* kernel, Tally& tally) {
    fetch(found_, tokens);
    tally.compare(words(found_, tokens), words(wanted_, tokens), stride_,
                  std::string(format_.name) + " x " + format_.act() + " " + shape_.name + ", " +
                      std::to_string(tokens) + " tokens, " + kernel);
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
  std::size_t out_bytes(std::int64_t tokens) const {
    return static_cast<std::size_t>(tokens * stride_) * 4;
  }
  FloatRows out() const { return {out_.as<float>(), stride_}; }
  CodeRows x_codes() const {
    return format_.rows(padded_, x_codes_.as<std::int8_t>(), x_scales_.as<float>(),
                        x_sums_.as<std::int32_t>());
  }
  TermRows terms() const {
    return {pieces_.as<std::uint16_t>(), piece_scales_.as<float>(), padded_ * 2, 2};
  }
  template <class Matmul>
  void add_segments(Matmul& a) const {
    std::int64_t row = 0;
    for (const int rows : shape_.rows) {
      a.segments[a.segment_count++] = weights_.codes(row, rows);
      row += padded_rows(rows);
    }
  }
  template <class Matmul>
  void fill(Matmul& a, std::int64_t tokens) const {
    a.tokens = tokens;
    a.columns = shape_.columns;
    a.x = terms();
    a.finish = shape_.finish;
    a.out = out();
  }
  std::span<const std::uint32_t> words(const Pinned& from, std::int64_t tokens) const {
    return {reinterpret_cast<const std::uint32_t*>(from.data()), out_bytes(tokens) / 4};
  }
  void fetch(const Pinned& to, std::int64_t tokens) const {
    rt::copy_to_host(to.data(), out_.as<void>(), out_bytes(tokens), stream_);
    rt::synchronize(stream_);
  }

  LinearShape shape_;
  CodeFormat format_;
  rt::Stream& stream_;
  std::int64_t padded_, stride_, columns_;
  RandomWeights weights_;
  Memory x_, x_codes_, x_scales_, x_sums_, pieces_, piece_scales_, start_, out_;
  Pinned found_, wanted_;
};

void compare_int(Problem& problem, const CodeFormat& format,
                 const std::vector<std::int64_t>& counts, rt::Stream& stream, Tally& tally) {
  struct Tile {
    const char* name;
    GemmTile tile;
    std::int64_t most_tokens;
  };
  constexpr Tile kTiles[] = {{"int_gemm few", GemmTile::few, 64},
                             {"int_gemm small", GemmTile::small, 64},
                             {"int_gemm large", GemmTile::large, 300}};
  const auto with_tile = [&](std::int64_t tokens, GemmTile tile) {
    problem.run(tokens, [&] { launch_int_gemm(problem.int_matmul(tokens), tile, stream); });
  };
  with_tile(counts.back(), GemmTile::middle);
  problem.keep_as_wanted(counts.back());
  const bool fine =
      format.weight_group == 32 || format.weight_group == 64;  // have only tile `middle`
  for (const std::int64_t tokens : counts) {
    problem.run(tokens, [&] { launch_int_matmul(problem.int_matmul(tokens), stream); });
    problem.compare(tokens, "what launch_int_matmul chooses", tally);
    for (const Tile& tile : kTiles) {
      if (fine || tokens > tile.most_tokens) continue;
      with_tile(tokens, tile.tile);
      problem.compare(tokens, tile.name, tally);
    }
  }
}

void compare_f32_inputs(Problem& problem, const std::vector<std::int64_t>& counts, Tally& tally) {
  const auto run = [&](std::int64_t tokens) {
    problem.run(tokens, [&] { problem.launch_f32_inputs(tokens); });
  };
  run(counts.back());
  problem.keep_as_wanted(counts.back());
  for (const std::int64_t tokens : counts) {
    run(tokens);
    problem.compare(tokens, "mma", tally);
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

Tally compare_linears(bool tiny, rt::Stream& stream) {
  Tally all;
  for (const CodeFormat& format : kFormats) {
    for (const LinearShape& shape : shapes(tiny)) {
      // Models use these pairs of groupings (the second with --act row), so prompts are tested
      // with them, too.
      const bool usual = format.token_group < 0 || format.token_group == shape.act_group ||
                         (format.token_group == 0 && shape.finish != Finish::add);
      std::vector<std::int64_t> counts = {1, 2, 4, 8, 9, 16, 33, 64, 65, 128, 129};
      if (tiny) counts = {1, 5, 9, 33};
      if (!tiny) counts.push_back(300);
      if (!tiny && usual) counts.push_back(2048);
      Problem problem(shape, format, counts.back(), stream);
      Tally tally;
      if (problem.has_f32_inputs()) {
        compare_f32_inputs(problem, counts, tally);
      } else {
        compare_int(problem, format, counts, stream, tally);
      }
      print(format, shape.name, shape.outputs(), shape.columns, tally);
      all.add(tally);
    }
  }
  return all;
}

void body(const Options& options, rt::Stream& stream) {
  const auto wants = [&](const char* section) {
    return options.only.empty() || options.only == section;
  };
  print_head({"weights", "act", "linear", "outputs x inputs", "runs", "numbers that differ"});
  Tally all;
  if (wants("joined")) all.add(compare_joined(options.tiny, stream));
  if (wants("experts")) all.add(compare_experts(options.tiny, stream));
  if (wants("delta")) all.add(compare_delta_net(options.tiny));
  if (wants("linears")) all.add(compare_linears(options.tiny, stream));
  require(all.runs > 0, "--only ", options.only, ": expected joined, experts, delta or linears");
  std::printf("\n%lld runs\n", static_cast<long long>(all.runs));
  require(all.wrong == 0, "kernels do not agree: ", all.wrong, " numbers differ");
}

}  // namespace
}  // namespace leq::LEQ_GPU::bench

int main(int argc, char** argv) {
  return leq::LEQ_GPU::bench::run_bench(argc, argv, leq::LEQ_GPU::bench::body);
}

// Many tokens times the weights of llama-7b: operations per second as a share of the rate of a
// loop that contains only tensor-core instructions (wgmma if available), next to the vendor's
// library.
#include <cstdio>

#include "bench/gpu/data.h"
#include "bench/gpu/library_gemm.h"
#include "bench/gpu/timing.h"

namespace leq::LEQ_GPU::bench {
namespace {

struct Kind {
  const char* name;
  int bits, group;
  bool f32_inputs = false;
};
constexpr Kind kKinds[] = {{"int8", 8, 0},
                           {"int8-g128", 8, 128},
                           {"int4-g128", 4, 128},
                           {"int4-g128, act none", 4, 128, true},
                           {"f16", 16, 0, true}};

// Up to this many tokens, launches use copies in turn, because L2 would otherwise cache weights.
constexpr std::int64_t kReadingTokens = 256;

void launch(const Kind& kind, const IntLinear& linear, int copy, rt::Stream& stream) {
  if (kind.bits == 16) return launch_float_matmul(linear.f16(copy), stream);
  if (kind.f32_inputs) return launch_weight_only_matmul(linear.weight_only(copy), stream);
  launch_int_matmul(linear.arguments(copy), stream);
}

// The share of the loop's rate; a product with an f32 input counts as two products of f16.
std::string of_loop(const Options& options, const Kind& kind, double tops) {
  if (kind.f32_inputs) return share(options, "mma_f16_tflops", 2 * tops);
  const bool wgmma = options.ceilings.contains("wgmma_s8_tops");
  return share(options, wgmma ? "wgmma_s8_tops" : "mma_s8_tops", tops);
}

double tops(const LinearShape& shape, std::int64_t tokens, double us) {
  return us > 0 ? 2 * shape.products(tokens) / us * 1e-6 : 0;
}
std::string cell(double value, int digits) { return value > 0 ? number(value, digits) : "n/a"; }

void body(const Options& options, rt::Stream& stream) {
  print_head({"type", "linear", "act", "outputs x inputs", "tokens", "us", "TOPS",
              "of the tensor cores' loop", "library us", "library TOPS", "of the library"});
  for (const std::int64_t tokens : {32, 64, 128, 256, 512, 2048, 4096}) {
    if (options.tiny && tokens > 64) break;
    const std::size_t bytes = !options.tiny && tokens <= kReadingTokens ? kRotatedBytes : 0;
    for (const LinearShape& shape : llama_linears(options.tiny)) {
      const double library = library_gemm_us(tokens, shape.outputs(), shape.columns, bytes, stream);
      for (const Kind& kind : kKinds) {
        const IntLinear linear(shape, kind.bits, kind.group, tokens, bytes, stream);
        const double us = microseconds(stream, linear.copies(),
                                       [&](int copy) { launch(kind, linear, copy, stream); });
        const double done = tops(shape, tokens, us);
        print_row({kind.name, shape.name, kind.f32_inputs ? "none" : shape.act(),
                   number(shape.outputs(), 0) + " x " + number(shape.columns, 0),
                   number(static_cast<double>(tokens), 0), number(us, 1), number(done, 1),
                   of_loop(options, kind, done), cell(library, 1),
                   cell(tops(shape, tokens, library), 1),
                   library > 0 ? number(100 * library / us, 1) + " %" : "n/a"});
      }
    }
  }
  if (!has_library_gemm()) std::printf("\ncuBLASLt was not found when this was built.\n");
}

}  // namespace
}  // namespace leq::LEQ_GPU::bench

int main(int argc, char** argv) {
  return leq::LEQ_GPU::bench::run_bench(argc, argv, leq::LEQ_GPU::bench::body);
}

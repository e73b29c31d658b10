// Few tokens times the weights of llama-7b: bytes of weights per second, as a share of this GPU's
// read bandwidth.
#include "bench/gpu/data.h"
#include "bench/gpu/timing.h"

namespace leq::LEQ_GPU::bench {
namespace {

void body(const Options& options, rt::Stream& stream) {
  print_head(
      {"bits", "linear", "act", "outputs x inputs", "tokens", "kernel", "us", "GB/s", "of read"});
  for (const int bits : {8, 4, 3, 2}) {
    for (const LinearShape& shape : llama_linears(options.tiny)) {
      const int group = bits == 8 ? 0 : 128;
      for (const int tokens : {1, 2, 4, 8, 16}) {
        const IntLinear linear(shape, bits, group, tokens, options.tiny ? 0 : kRotatedBytes,
                               stream);
        const double us = microseconds(stream, linear.copies(), [&](int copy) {
          launch_int_matmul(linear.arguments(copy), stream);
        });
        const double gbps = static_cast<double>(linear.weight_bytes()) / us * 1e-3;
        print_row({number(bits, 0), shape.name, shape.act(),
                   number(shape.outputs(), 0) + " x " + number(shape.columns, 0), number(tokens, 0),
                   describe_int_matmul(linear.arguments(0)), number(us, 2), number(gbps, 0),
                   share(options, "read_gbps", gbps)});
      }
    }
  }
}

}  // namespace
}  // namespace leq::LEQ_GPU::bench

int main(int argc, char** argv) {
  return leq::LEQ_GPU::bench::run_bench(argc, argv, leq::LEQ_GPU::bench::body);
}

#include "cuda/host/device_matmul.h"

#include "backend/rows_slice.h"
#include "base/error.h"
#include "cuda/host/matmul_arguments.h"

namespace leq::LEQ_GPU {

namespace {

void launch_matmul(std::monostate, rt::Stream&) {}
void launch_matmul(const IntMatmul& a, rt::Stream& stream) { launch_int_matmul(a, stream); }
void launch_matmul(const SuperMatmul& a, rt::Stream& stream) { launch_super_matmul(a, stream); }

}  // namespace

void DeviceMatmul::launch_held() {
  std::visit([&](const auto& matmul) { launch_matmul(matmul, stream_); }, held_);
  held_ = {};
}

template <class Matmul>
bool DeviceMatmul::launch(Matmul a, const RowsFor& target, std::string_view site) {
  if (makes_codes(a)) a.codes = rows_.codes_of_outputs(target, site);
  if (holds_ && a.tokens == 1 && !a.codes.exist()) {
    held_ = a;
  } else {
    launch_matmul(a, stream_);
  }
  return a.codes.exist();
}

bool DeviceMatmul::multiply(const Rows& x, std::int64_t tokens, const Linear& linear,
                            Epilogue epilogue, const RowsFor& target) {
  const Rows& out = target.rows;
  const auto span = clock_.in(StepPart::gemm, [&] { return moved_bytes(linear); });
  const QuantScheme& scheme = linear.segments[0].weight.scheme;
  launch_held();
  if (!is_one_launch(linear)) {
    multiply_segments(x, tokens, linear, epilogue, out);
  } else if (scheme.is_super()) {
    auto a = matmul_arguments<SuperMatmul>(linear, tokens, epilogue, out);
    a.x = code_rows(x);
    return launch(a, target, linear.name);
  } else if (is_coded(linear.act)) {
    auto a = matmul_arguments<IntMatmul>(linear, tokens, epilogue, out);
    a.x = code_rows(x);
    return launch(a, target, linear.name);
  } else if (scheme.is_float()) {
    auto a = matmul_arguments<FloatMatmul>(linear, tokens, epilogue, out);
    a.values = float_rows(x);
    a.x = term_rows(x);
    launch_float_matmul(a, stream_);
  } else {
    auto a = matmul_arguments<WeightOnlyMatmul>(linear, tokens, epilogue, out);
    a.x = term_rows(x);
    launch_weight_only_matmul(a, stream_);
  }
  return false;
}

// If the weights that share an input have several types (as in GGUF files), or are more than a
// kernel supports, each launch computes a few consecutive weights of one type.
void DeviceMatmul::multiply_segments(const Rows& x, std::int64_t tokens, const Linear& linear,
                                     Epilogue epilogue, const Rows& out) {
  require(!epilogue.is_gated(), linear.name, ": gate and up of two types run on the CPU ",
          "only; use ", Setting{"device"}, " cpu");
  std::int64_t column = 0;
  for (const Linear& part : launched_parts(linear)) {
    Rows columns = slice_columns(plain_rows(out), {column, column + part.outputs});
    multiply(x, tokens, part, epilogue, columns);
    column += part.outputs;
  }
}

}  // namespace leq::LEQ_GPU

// Runs cuBLASLt's int8 matmul with the first algorithm of its heuristic that works.
#include "bench/gpu/library_gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <limits>

#include "bench/gpu/data.h"
#include "bench/gpu/timing.h"
#include "cuda/intrinsics/run.h"

namespace leq::LEQ_GPU::bench {
namespace {

constexpr std::size_t kWorkspace = std::size_t{64} << 20;
constexpr int kCandidates = 4;

// C [N][T] = A^T B with A [K][N] and B [K][T] in column-major order is our row-major layout.
struct Problem {
  cublasLtHandle_t library = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;

  Problem(std::int64_t tokens, std::int64_t outputs, std::int64_t columns) {
    cublasLtCreate(&library);
    cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32I, CUDA_R_32I);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                   sizeof transposed);
    const auto k = static_cast<std::uint64_t>(columns), n = static_cast<std::uint64_t>(outputs);
    cublasLtMatrixLayoutCreate(&a, CUDA_R_8I, k, n, columns);
    cublasLtMatrixLayoutCreate(&b, CUDA_R_8I, k, static_cast<std::uint64_t>(tokens), columns);
    cublasLtMatrixLayoutCreate(&c, CUDA_R_32I, n, static_cast<std::uint64_t>(tokens), outputs);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &kWorkspace, sizeof kWorkspace);
  }
  ~Problem() {
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(a);
    cublasLtMatrixLayoutDestroy(b);
    cublasLtMatrixLayoutDestroy(c);
    cublasLtMatmulDescDestroy(operation);
    cublasLtDestroy(library);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;
};

}  // namespace

bool has_library_gemm() { return true; }

double library_gemm_us(std::int64_t tokens, std::int64_t outputs, std::int64_t columns,
                       std::size_t rotated, rt::Stream& stream) {
  const Problem problem(tokens, outputs, columns);
  cublasLtMatmulHeuristicResult_t found[kCandidates];
  int count = 0;
  if (cublasLtMatmulAlgoGetHeuristic(problem.library, problem.operation, problem.a, problem.b,
                                     problem.c, problem.c, problem.preference, kCandidates, found,
                                     &count) != CUBLAS_STATUS_SUCCESS) {
    return 0;
  }
  const auto bytes = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const std::size_t each = bytes(outputs * columns);
  const int copies = copies_filling(rotated, each);
  const Memory a(each * static_cast<std::size_t>(copies), 255, stream),
      b(bytes(tokens * columns), 255, stream);
  const Memory c(bytes(tokens * outputs * 4), 0, stream), workspace(kWorkspace, 0, stream);
  double best = 0;
  for (int i = 0; i < count; ++i) {
    const std::int32_t one = 1, zero = 0;
    const auto multiply = [&](int copy) {
      return cublasLtMatmul(problem.library, problem.operation, &one,
                            a.as<void>(each * static_cast<std::size_t>(copy)), problem.a,
                            b.as<void>(), problem.b, &zero, c.as<void>(), problem.c, c.as<void>(),
                            problem.c, &found[i].algo, workspace.as<void>(), kWorkspace,
                            rt::handle(stream));
    };
    if (multiply(0) != CUBLAS_STATUS_SUCCESS) continue;
    const double us = microseconds(stream, copies, [&](int copy) { multiply(copy); });
    best = best == 0 ? us : std::min(best, us);
  }
  return best;
}

}  // namespace leq::LEQ_GPU::bench

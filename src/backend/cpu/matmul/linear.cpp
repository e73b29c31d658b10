#include "backend/cpu/matmul/linear.h"

#include "backend/backend.h"
#include "backend/cpu/matmul/linear_job.h"
#include "backend/cpu/rows/quantize_rows.h"

namespace leq::cpu {

void run_linear(const LinearContext& context, const Rows& x, std::int64_t tokens,
                const Linear& linear, Epilogue epilogue, const RowsFor& out) {
  if (tokens <= 0 || linear.outputs == 0) return;  // all outputs may be on other ranks
  LinearJob job{context, x, tokens, linear, epilogue, out, out.rows};
  check_job(job);
  plan(job);
  context.pool.run(task_count(job),
                   [&](std::int64_t task, int worker) { run_task(job, task, worker); });
  job.bad_row.check(linear.name);
  quantize_whole_rows(context.pool, context.rows, tokens, linear.name, out);
}

std::string describe_linear(const MatmulKernels& matmul, const Linear& linear) {
  const char* tile = is_coded(linear.act) ? matmul.int_tile : matmul.float_tile;
  return std::string(isa_name(matmul.isa)) + " " + linear_text(linear, tile);
}

}  // namespace leq::cpu

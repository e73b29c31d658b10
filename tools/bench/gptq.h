// Speed of second-order quantization: its linear algebra beside the machine's peak, and whole
// linears in seconds.
#pragma once

#include <string>
#include <vector>

#include "eval/limits/limits.h"
#include "report/table.h"

namespace leq {

// Rows of one linear of random weights. `shape` is "4096" or "ROWSxCOLUMNS". X^T X and the products
// that feed errors back are held against the f32 peak, the factor against the f64 peak, each
// measured before and after; gptq and gptq+ (int4-g128) in seconds. Best of `runs`. Throws Error
// where the shape is none.
std::vector<Row> bench_gptq(const std::string& shape, int threads, int runs,
                            cpu::LimitMeter& meter);

}  // namespace leq

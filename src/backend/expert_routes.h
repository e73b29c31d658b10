// The experts to which the rows of a step are routed, and the rows grouped by expert.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "backend/decoder_parts.h"
#include "backend/rows.h"

namespace leq {

struct Routing {
  std::int64_t experts = 0;  // E
  std::int64_t active = 0;   // k
  bool normalized = false;   // weights are divided by their sum
  bool by_sigmoid = false;   // a single expert for all rows, with the weight sigmoid(logit)
};

// The rows of a step: each token has one row for each of its experts, R = T k in total. Rows are
// grouped by ascending expert; within a group tokens are in ascending order.
struct ExpertRoutes {
  std::int64_t tokens = 0;            // T
  std::vector<std::int64_t> first;    // [E + 1]; group e has rows [first[e], first[e + 1])
  std::vector<std::int32_t> experts;  // experts that have rows, ascending
  std::vector<std::int32_t> token;    // [R]
  std::vector<float> weight;          // [R]

  std::int64_t rows() const { return static_cast<std::int64_t>(token.size()); }
  std::int64_t rows_of(std::int64_t expert) const {
    const auto e = static_cast<std::size_t>(expert);
    return first[e + 1] - first[e];
  }
  // Whether row r is token r, because one expert has all tokens.
  bool in_place() const { return experts.size() == 1 && rows() == tokens; }
};

// Routes rows by a router's logits, [T][E] f32 rows on the host: p = softmax(logits), and the k
// largest p are chosen (of equal ones the lower id; docs/numerics.md has the order of sums), or one
// expert for all rows (by_sigmoid). Throws Error with `site` and the row if a logit is not finite.
void route_rows(const Rows& logits, std::int64_t tokens, const Routing& routing,
                std::string_view site, ExpertRoutes& routes);

// The linear of an expert; and the parameters of the linear that reads an expert's outputs.
using ExpertLinear = std::function<const Linear&(std::int64_t expert)>;
using ExpertReader = std::function<RowsConsumer(std::int64_t expert)>;
struct ExpertLinears {
  ExpertLinear gate_up;  // segments gate, up
  ExpertReader down;
};

}  // namespace leq

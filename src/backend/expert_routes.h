// Which experts the rows of a step go to, and the rows in groups by expert.
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
  bool by_sigmoid = false;   // one expert of all rows: its weight is sigmoid(logit)
};

// Rows of a token for each of its experts, in groups by ascending expert and within a group by
// ascending token: R = T k of them.
struct ExpertRoutes {
  std::int64_t tokens = 0;            // T
  std::vector<std::int64_t> first;    // [E + 1] group e is rows [first[e], first[e + 1])
  std::vector<std::int32_t> experts;  // those with rows, ascending
  std::vector<std::int32_t> token;    // [R]
  std::vector<float> weight;          // [R]

  std::int64_t rows() const { return static_cast<std::int64_t>(token.size()); }
  std::int64_t rows_of(std::int64_t expert) const {
    const auto e = static_cast<std::size_t>(expert);
    return first[e + 1] - first[e];
  }
  // Whether row r is token r: one expert takes all of them.
  bool in_place() const { return experts.size() == 1 && rows() == tokens; }
};

// By the logits of a router, [T][E] f32 rows on the host: p = softmax(logits), the k largest p,
// equal ones by the lower id (docs/numerics.md has the order of the sums); or one expert of all
// rows. Throws Error naming `site` and the row where a logit is not finite.
void route_rows(const Rows& logits, std::int64_t tokens, const Routing& routing,
                std::string_view site, ExpertRoutes& routes);

// The linear of an expert, and of its rows' next reader what it wants of them.
using ExpertLinear = std::function<const Linear&(std::int64_t expert)>;
using ExpertReader = std::function<RowsConsumer(std::int64_t expert)>;
struct ExpertLinears {
  ExpertLinear gate_up;  // segments gate, up
  ExpertReader down;
};

}  // namespace leq

// The join of attention's spans against plain loops over one span after another, bit for bit: any
// number of spans and queries, and shared memory for all of their factors, for some queries at a
// time, or for a part of one query's.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/float_math.h"
#include "cuda/kernels/attention/attention_exact.cuh"
#include "cuda/words/run.h"
#include "tests/cuda/device_memory.h"

namespace leq::LEQ_GPU {
namespace {

struct JoinCase {
  int queries, dims;
  int most;  // spans; query q has those from q on
  int room;  // factors

  int spans(int query) const { return most - query; }
  friend void PrintTo(const JoinCase& c, std::ostream* out) {
    *out << c.queries << " queries of " << c.dims << ", " << c.most << " spans, room for "
         << c.room;
  }
};

// records [queries][most][dims + 2], out [queries][dims]
__global__ void join_records(const float* records, const JoinCase c, float* out) {
  LEQ_DYNAMIC_SHARED(SpanFactors, factors);
  join_spans<ExactJoin>(
      c.queries, c.dims, c.most, {factors, c.room},
      [&](int query) {
        return SpanRecords{records + std::int64_t{query} * (c.most + 1) * (c.dims + 2), c.dims,
                           c.spans(query)};
      },
      [&](int query, int column, float number) { out[query * c.dims + column] = number; });
}

// One column by docs/numerics.md.
float joined(const float* record, int stride, int dims, int spans, int column) {
  float out = 0, total = 0, largest = 0;
  for (int span = 0; span < spans; ++span, record += stride) {
    const float m = record[dims], l = record[dims + 1];
    const float next = span == 0 ? m : std::max(largest, m);
    const float keep = span == 0 ? 0.0f : leq_exp(largest - next), take = leq_exp(m - next);
    out = std::fma(record[column], take, out * keep);
    total = std::fma(l, take, total * keep);
    largest = next;
  }
  return out * (1.0f / total);
}

class AttentionJoin : public testing::TestWithParam<JoinCase> {};

TEST_P(AttentionJoin, IsThatOfOneSpanAfterAnother) {
  const JoinCase c = GetParam();
  const int stride = c.dims + 2;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> records(static_cast<std::size_t>(c.queries * c.most * stride));
  for (std::size_t i = 0; i < records.size(); ++i) {
    const int place = static_cast<int>(i) % stride;
    records[i] = place == c.dims       ? 3 * normal(random)
                 : place == c.dims + 1 ? 1 + std::abs(normal(random))
                                       : normal(random);
  }
  const DeviceArray<float> there(records);
  const DeviceArray<float> out(static_cast<std::size_t>(c.queries * c.dims));
  rt::run(test_stream(),
          {"join_records", dim3(1), dim3(kJoinThreads),
           static_cast<std::size_t>(c.room) * sizeof(SpanFactors)},
          join_records, there.data(), c, out.data());
  const auto found = out.host();
  for (int query = 0; query < c.queries; ++query) {
    const float* const first = records.data() + std::ptrdiff_t{query} * (c.most + 1) * stride;
    for (int column = 0; column < c.dims; ++column) {
      ASSERT_EQ(found[static_cast<std::size_t>(query * c.dims + column)],
                joined(first, stride, c.dims, c.spans(query), column))
          << "query " << query << ", column " << column;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rooms, AttentionJoin,
                         testing::Values(JoinCase{1, 128, 1, 16}, JoinCase{1, 96, 5, 5},
                                         JoinCase{1, 128, 128, 128}, JoinCase{1, 128, 129, 300},
                                         JoinCase{1, 256, 300, 128}, JoinCase{1, 256, 64, 16},
                                         JoinCase{8, 128, 33, 400}, JoinCase{8, 80, 33, 100},
                                         JoinCase{7, 16, 40, 500}, JoinCase{3, 256, 20, 19},
                                         JoinCase{5, 64, 31, 8}));

}  // namespace
}  // namespace leq::LEQ_GPU

// Attention over 32,768 positions whose keys have outlier channels, for every KV type, compared
// with softmax in double over the unrounded numbers. Checks the error of the outputs, and whether a
// query whose key is stored at some position finds this position anywhere in the context.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/random.h"
#include "cache/kv_cache.h"

namespace leq {
namespace {

constexpr int kDims = 64, kHeads = 2;
constexpr std::int64_t kPositions = 32768, kBatch = 512, kQueries = 3;
constexpr double kRopeBase = 1e6;

// Rows of q (two heads), k and v. Three channels of the keys are ten times as large as the others,
// and are in rotary pairs that hardly rotate, like channels with large biases in trained models.
struct Text {
  std::vector<std::vector<float>> rows;  // [positions][(H + 2) d]
  std::vector<float> bias;               // [d]

  Text() : bias(kDims, 0.0f) {
    bias[28] = 30.0f;
    bias[30] = -40.0f;
    bias[62] = 25.0f;
    Random random(7);
    for (std::int64_t at = 0; at < kPositions; ++at) {
      std::vector<float> row;
      for (int i = 0; i < (kHeads + 2) * kDims; ++i) row.push_back(random.normal());
      rows.push_back(row);
    }
    hide_answers();
    for (auto& row : rows) {
      for (int c = 0; c < kDims; ++c) row[key(c)] += bias[static_cast<std::size_t>(c)];
    }
  }

  static std::size_t key(int c) { return static_cast<std::size_t>(kHeads * kDims + c); }
  static std::size_t value(int c) { return static_cast<std::size_t>((kHeads + 1) * kDims + c); }
  static std::int64_t asked(std::int64_t query) { return 1000 + query * 15000; }
  static double angle(std::int64_t at, int pair) {
    return static_cast<double>(at) * std::pow(kRopeBase, -2.0 * pair / kDims);
  }

  // Sets each of the last queries of head 0 to the key of one position, rotated by the distance.
  void hide_answers() {
    for (std::int64_t query = 0; query < kQueries; ++query) {
      const std::int64_t from = kPositions - kQueries + query, to = asked(query);
      auto& row = rows[static_cast<std::size_t>(from)];
      const auto& answer = rows[static_cast<std::size_t>(to)];
      for (int i = 0; i < kDims / 2; ++i) {
        const double a = angle(to, i) - angle(from, i);
        const double x = static_cast<double>(answer[key(i)]);
        const double y = static_cast<double>(answer[key(i + kDims / 2)]);
        row[static_cast<std::size_t>(i)] =
            static_cast<float>(3.0 * (x * std::cos(a) - y * std::sin(a)));
        row[static_cast<std::size_t>(i + kDims / 2)] =
            static_cast<float>(3.0 * (x * std::sin(a) + y * std::cos(a)));
      }
    }
  }

  // Returns k or q of a position after rotation, in double.
  std::vector<double> turned(std::int64_t at, std::size_t first) const {
    const auto& row = rows[static_cast<std::size_t>(at)];
    std::vector<double> out(kDims);
    for (int i = 0; i < kDims / 2; ++i) {
      const auto low = static_cast<std::size_t>(i), high = static_cast<std::size_t>(i + kDims / 2);
      const double a = angle(at, i);
      const double x = static_cast<double>(row[first + low]);
      const double y = static_cast<double>(row[first + high]);
      out[low] = x * std::cos(a) - y * std::sin(a);
      out[high] = x * std::sin(a) + y * std::cos(a);
    }
    return out;
  }

  std::vector<double> attention(std::int64_t at, int head) const {
    const auto q = turned(at, static_cast<std::size_t>(head * kDims));
    std::vector<double> scores, out(kDims, 0.0);
    double most = -1e300, total = 0;
    for (std::int64_t j = 0; j <= at; ++j) {
      const auto k = turned(j, key(0));
      double score = 0;
      for (std::size_t c = 0; c < kDims; ++c) score += q[c] * k[c];
      scores.push_back(score / std::sqrt(double{kDims}));
      most = std::max(most, scores.back());
    }
    for (std::int64_t j = 0; j <= at; ++j) {
      const double p = std::exp(scores[static_cast<std::size_t>(j)] - most);
      total += p;
      for (int c = 0; c < kDims; ++c) {
        out[static_cast<std::size_t>(c)] +=
            p * static_cast<double>(rows[static_cast<std::size_t>(j)][value(c)]);
      }
    }
    for (double& x : out) x /= total;
    return out;
  }
};

const Text& text() {
  static const Text kText;
  return kText;
}

// Returns outputs of the last queries, [queries][heads][d]; any `offset` is subtracted from keys.
std::vector<float> outputs(KvType keys, KvType values, const float* offset) {
  const auto backend = make_cpu_backend({2, chosen_isa()});
  KvShape kv = {1, 1, kDims, keys, values, kPositions, 1};
  kv.batch_tokens = kBatch;
  KvCache cache(backend->memory(), backend->layout(), kv);
  AttentionShape shape;
  shape.heads = kHeads;
  shape.kv_heads = 1;
  shape.head_dim = kDims;
  shape.key_offset = offset;
  std::vector<float> frequencies;
  for (int i = 0; i < kDims / 2; ++i) {
    frequencies.push_back(static_cast<float>(std::pow(kRopeBase, -2.0 * i / kDims)));
  }
  RopeTable rope = make_rope(backend->memory(), frequencies, 1.0f, kPositions);
  Rows qkv = backend->allocate_rows(kBatch, (kHeads + 2) * kDims, {});
  Rows out = backend->allocate_rows(kBatch, kHeads * kDims, {});
  backend->memory().scratch(backend->layout().scratch_bytes(kBatch, shape, kPositions));
  std::vector<float> found;
  for (std::int64_t first = 0; first < kPositions;) {
    // Outputs are computed for the last queries only.
    const bool last = first == kPositions - kQueries;
    const std::int64_t count = last ? kQueries : std::min(kBatch, kPositions - kQueries - first);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& row = text().rows[static_cast<std::size_t>(first + i)];
      std::copy(row.begin(), row.end(), qkv.values + i * qkv.value_stride);
    }
    cache.append(0, count);
    const SequenceRun run = {0, 0, count, first, cache.pages(0)};
    const BatchView batch = {count, {&run, 1}};
    const KvLayer layer = cache.layer(0);
    backend->quantize_kv_blocks(batch, shape, {&layer, 1});
    backend->rope_append(qkv, batch, shape, rope, layer);
    if (last) {
      backend->attention(qkv, batch, shape, cache.layer(0), out);
      for (std::int64_t i = 0; i < count; ++i) {
        const float* row = out.values + i * out.value_stride;
        found.insert(found.end(), row, row + kHeads * kDims);
      }
    }
    cache.settle();
    first += count;
  }
  return found;
}

const std::vector<double>& wanted() {
  static const std::vector<double> kWanted = [] {
    std::vector<double> all;
    for (std::int64_t query = 0; query < kQueries; ++query) {
      for (int head = 0; head < kHeads; ++head) {
        const auto one = text().attention(kPositions - kQueries + query, head);
        all.insert(all.end(), one.begin(), one.end());
      }
    }
    return all;
  }();
  return kWanted;
}

// |found - wanted| / |wanted| over the outputs of head 1, whose queries search for no position.
double error_of(const std::vector<float>& found) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (i / kDims % kHeads == 0) continue;
    const double off = static_cast<double>(found[i]) - wanted()[i];
    difference += off * off;
    size += wanted()[i] * wanted()[i];
  }
  return std::sqrt(difference / size);
}

// Whether each query of head 0 returns the value of the position that it searches for.
bool answers(const std::vector<float>& found) {
  for (std::int64_t query = 0; query < kQueries; ++query) {
    double difference = 0, size = 0;
    for (int c = 0; c < kDims; ++c) {
      const double want = static_cast<double>(
          text().rows[static_cast<std::size_t>(Text::asked(query))][Text::value(c)]);
      const double off =
          static_cast<double>(found[static_cast<std::size_t>(query * kHeads * kDims + c)]) - want;
      difference += off * off;
      size += want * want;
    }
    if (difference > 0.05 * size) return false;
  }
  return true;
}

TEST(LongContext, OutputsOverKeysWithOutliersKeepToTheirBounds) {
  // Queries of head 1 weigh all positions almost equally, which is the hardest case.
  const std::map<KvType, double> most = {{KvType::f32, 5e-4},
                                         {KvType::f16, 3e-3},
                                         {KvType::int8, 0.15},
                                         {KvType::simq8, 0.02},
                                         {KvType::simq4, 0.2}};
  std::map<KvType, double> errors;
  for (const KvScheme& scheme : kKvSchemes) {
    const auto found = outputs(scheme.type, scheme.type, nullptr);
    const auto centred = outputs(scheme.type, scheme.type, text().bias.data());
    errors[scheme.type] = error_of(found);
    RecordProperty(std::string(scheme.name), std::to_string(error_of(found)) + ", centred " +
                                                 std::to_string(error_of(centred)));
    std::printf("%-13s error %.5f%s, centred %.5f%s\n", std::string(scheme.name).c_str(),
                error_of(found), answers(found) ? "" : " (lost)", error_of(centred),
                answers(centred) ? "" : " (lost)");
    const auto bound = most.find(scheme.type);
    if (bound == most.end()) continue;
    EXPECT_LE(error_of(found), bound->second) << scheme.name;
    EXPECT_TRUE(answers(found)) << scheme.name;
  }
  EXPECT_GT(errors[KvType::int4], 4 * errors[KvType::simq4]);
  EXPECT_GT(errors[KvType::int8], 5 * errors[KvType::simq8]);
}

// Subtracting one vector from all keys changes all scores of a query by the same amount.
TEST(LongContext, CentredKeysGiveTheSameOutputs) {
  const auto plain = outputs(KvType::f32, KvType::f32, nullptr);
  const auto centred = outputs(KvType::f32, KvType::f32, text().bias.data());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(plain[i], centred[i], 2e-3);
  EXPECT_LT(error_of(outputs(KvType::int8, KvType::f32, text().bias.data())),
            0.3 * error_of(outputs(KvType::int8, KvType::f32, nullptr)));
}

}  // namespace
}  // namespace leq

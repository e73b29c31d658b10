// Tests rotation, the cache's pages and attention on every backend, compared with double.
#include "backends.h"

#include <algorithm>
#include <numeric>

#include "kv_numbers.h"

namespace leq {
namespace {

struct Case {
  int heads, kv_heads, head_dim, window;
  KvType keys, values;
  bool normed;
};

// Feeds the rows of one sequence in chunks; the sequence's page numbers are descending.
class AttentionConformance : public test::Conformance {
 protected:
  static constexpr float kBase = 10000.0f;

  void start(const Case& c, std::int64_t length, bool has_sinks = false) {
    c_ = c;
    sinks_ = has_sinks ? test::random_numbers(c.heads, 32) : std::vector<float>();
    shape_ = {c.heads, c.kv_heads, c.head_dim, c.window, nullptr, nullptr, true};
    norm_.gain = upload_vector(test::random_numbers(c.head_dim, 31));
    norm_.width = c.head_dim;
    if (has_sinks) shape_.sink_logits = upload_vector(sinks_);
    if (c.normed) shape_.q_norm = shape_.k_norm = &norm_;
    if (c.normed && has_sinks) shape_.v_norm = &norm_;
    inv_freq_.clear();
    for (int i = 0; i < c.head_dim / 2; ++i) {
      inv_freq_.push_back(
          1.0f / std::pow(kBase, static_cast<float>(2 * i) / static_cast<float>(c.head_dim)));
    }
    rope_ = make_rope(backend->memory(), inv_freq_, 1.0f, length);
    const std::int64_t pages = (length + 63) / 64;
    kv_.key_type = c.keys;
    kv_.value_type = c.values;
    kv_.key_page_bytes = backend->layout().page_bytes(KvPart::keys, c.keys, c.kv_heads, c.head_dim);
    kv_.value_page_bytes =
        backend->layout().page_bytes(KvPart::values, c.values, c.kv_heads, c.head_dim);
    keys_ = Buffer(backend->memory(), static_cast<std::size_t>(pages) * kv_.key_page_bytes);
    values_ = Buffer(backend->memory(), static_cast<std::size_t>(pages) * kv_.value_page_bytes);
    kv_.keys = keys_.data();
    kv_.values = values_.data();
    pages_.resize(static_cast<std::size_t>(pages));
    std::iota(pages_.rbegin(), pages_.rend(), 0);
    backend->memory().scratch(backend->layout().scratch_bytes(length, shape_, length));
  }

  // Returns outputs [length][H d] for rows qkv [length][(H + 2 H_kv) d].
  std::vector<float> run(const std::vector<float>& qkv, std::int64_t chunk) {
    const std::int64_t width = (c_.heads + 2 * c_.kv_heads) * c_.head_dim;
    const std::int64_t length = std::ssize(qkv) / width;
    std::vector<float> out;
    for (std::int64_t first = 0; first < length; first += chunk) {
      const std::int64_t rows = std::min(chunk, length - first);
      Rows x = rows_of({qkv.begin() + first * width, qkv.begin() + (first + rows) * width}, width);
      Rows y = backend->allocate_rows(rows, std::int64_t{c_.heads} * c_.head_dim, {});
      const std::vector<SequenceRun> runs = {{0, 0, rows, first, pages_}};
      const BatchView batch = {rows, runs};
      backend->rope_append(x, batch, shape_, rope_, kv_);
      backend->attention(x, batch, shape_, kv_, y);
      const auto part = values_of(y, rows);
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

  // Returns q, k or v of one head of one row after norm and rotation, in double.
  std::vector<double> head(const std::vector<float>& qkv, std::int64_t row, int index) const {
    const auto d = static_cast<std::size_t>(c_.head_dim);
    const auto width = static_cast<std::size_t>(c_.heads + 2 * c_.kv_heads) * d;
    const float* at =
        qkv.data() + static_cast<std::size_t>(row) * width + static_cast<std::size_t>(index) * d;
    std::vector<double> x(at, at + d);
    const bool value = index >= c_.heads + c_.kv_heads;
    if (value ? shape_.v_norm != nullptr : c_.normed) {
      const auto gain = test::random_numbers(c_.head_dim, 31);
      double squares = 0;
      for (const double v : x) squares += v * v / static_cast<double>(d);
      for (std::size_t k = 0; k < d; ++k) x[k] *= gain[k] / std::sqrt(squares + 1e-5);
    }
    for (std::size_t i = 0; i < d / 2 && !value; ++i) {
      const double angle = static_cast<float>(row) * inv_freq_[i];
      const double a = x[i], b = x[i + d / 2];
      x[i] = a * std::cos(angle) - b * std::sin(angle);
      x[i + d / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
    return x;
  }

  std::vector<double> expected(const std::vector<float>& qkv, std::int64_t row, int query) const {
    const int kv = query / (c_.heads / c_.kv_heads);
    const auto q = head(qkv, row, query);
    const std::int64_t first = c_.window > 0 ? std::max<std::int64_t>(0, row - c_.window + 1) : 0;
    std::vector<double> out(q.size());
    double total = 0;
    for (std::int64_t j = first; j <= row; ++j) {
      const auto k = head(qkv, j, c_.heads + kv), v = head(qkv, j, c_.heads + c_.kv_heads + kv);
      double score = 0;
      for (std::size_t c = 0; c < q.size(); ++c) score += q[c] * k[c] / std::sqrt(q.size());
      const double p = std::exp(score);
      total += p;
      for (std::size_t c = 0; c < q.size(); ++c) out[c] += p * v[c];
    }
    if (!sinks_.empty()) total += std::exp(double{sinks_[static_cast<std::size_t>(query)]});
    for (double& o : out) o /= total;
    return out;
  }

  std::vector<float> random_qkv(std::int64_t length) const {
    return test::random_numbers(length * (c_.heads + 2 * c_.kv_heads) * c_.head_dim, 17);
  }

  Case c_ = {};
  AttentionShape shape_;
  Norm norm_;
  std::vector<float> inv_freq_, sinks_;
  RopeTable rope_;
  KvLayer kv_;

  // Returns a head of page 0, copied to the host.
  test::KvHead head_of(KvPart part, int head) const {
    return {part, part == KvPart::keys ? c_.keys : c_.values, c_.kv_heads, c_.head_dim, head};
  }
  std::vector<std::byte> first_page(KvPart part) {
    const bool keys = part == KvPart::keys;
    std::vector<std::byte> page(keys ? kv_.key_page_bytes : kv_.value_page_bytes);
    backend->memory().read(keys ? kv_.keys : kv_.values, page);
    return page;
  }
  void read_head(KvPart part, int head, std::span<std::byte> out) {
    test::read_kv(test::order_of(backend->layout()), head_of(part, head), first_page(part), out);
  }
  void write_head(KvPart part, int head, std::span<const std::byte> in) {
    std::vector<std::byte> page = first_page(part);
    test::write_kv(test::order_of(backend->layout()), head_of(part, head), page, in);
    backend->memory().write(part == KvPart::keys ? kv_.keys : kv_.values, page);
  }

  Buffer keys_, values_;
  std::vector<std::int32_t> pages_;
};

// The error of outputs of size 1 that a cache in f32, f16 or int8 may cause.
double tolerance_of(const Case& c) {
  const KvType worst = std::max(c.keys, c.values);
  return worst == KvType::f32 ? 1e-5 : worst == KvType::f16 ? 5e-3 : 4e-2;
}

// Returns q of one row, fed alone at `position`, after norm, rotation and its factor.
TEST_P(AttentionConformance, MultipliesQueriesByTheTemperatureOfTheirPosition) {
  constexpr double kBeta = 0.1;
  constexpr std::int64_t kPeriod = 16384, kLength = 32832;
  start({3, 1, 16, 0, KvType::f32, KvType::f32, false}, kLength);
  std::vector<float> factors;
  for (int part = 0; part <= 2; ++part) {
    factors.push_back(static_cast<float>((1.0 + kBeta * std::log(1.0 + part)) / 4.0));
  }
  set_query_factors(backend->memory(), rope_, kPeriod, factors);
  shape_.tempered = true;
  const auto qkv = random_qkv(1);
  const auto width = static_cast<std::int64_t>(qkv.size());
  for (const std::int64_t position : {0, 16383, 16384, 32767, 32768}) {
    Rows x = rows_of(qkv, width);
    const std::vector<SequenceRun> runs = {{0, 0, 1, position, pages_}};
    backend->rope_append(x, {1, runs}, shape_, rope_, kv_);
    const auto found = values_of(x, 1);
    const double sharper = 1.0 + kBeta * std::log(1.0 + static_cast<double>(position / kPeriod));
    for (std::size_t i = 0; i < 48; ++i) {
      const std::size_t first = i / 16 * 16, pair = i % 8;
      const double angle = static_cast<float>(position) * inv_freq_[pair];
      const double a = qkv[first + pair], b = qkv[first + pair + 8];
      const double turned = i % 16 < 8 ? a * std::cos(angle) - b * std::sin(angle)
                                       : b * std::cos(angle) + a * std::sin(angle);
      ASSERT_NEAR(found[i], turned / 4.0 * sharper, 1e-6) << position << ", number " << i;
    }
  }
  shape_.tempered = false;
  Rows plain = rows_of(qkv, width);
  const std::vector<SequenceRun> runs = {{0, 0, 1, 0, pages_}};
  backend->rope_append(plain, {1, runs}, shape_, rope_, kv_);
  shape_.tempered = true;
  Rows first = rows_of(qkv, width);
  backend->rope_append(first, {1, runs}, shape_, rope_, kv_);
  EXPECT_EQ(values_of(plain, 1), values_of(first, 1));  // the bits of models without a temperature
}

// The default is the bits of 1 / sqrt(d); another scale multiplies q instead.
TEST_P(AttentionConformance, MultipliesQueriesByTheirScale) {
  start({3, 1, 16, 0, KvType::f32, KvType::f32, false}, 64);
  const auto qkv = random_qkv(1);
  const std::vector<SequenceRun> runs = {{0, 0, 1, 5, pages_}};
  const auto appended = [&](float scale) {
    Rows x = rows_of(qkv, static_cast<std::int64_t>(qkv.size()));
    shape_.query_scale = scale;
    backend->rope_append(x, {1, runs}, shape_, rope_, kv_);
    return values_of(x, 1);
  };
  const auto usual = appended(0), doubled = appended(0.5f);
  EXPECT_EQ(appended(0.25f), usual);
  for (std::size_t i = 0; i < 48; ++i) ASSERT_EQ(doubled[i], 2 * usual[i]);
}

TEST_P(AttentionConformance, AgreesWithDoubleForHeadsGroupsWindowsAndTypes) {
  for (const Case& c : {Case{4, 4, 32, 0, KvType::f32, KvType::f32, false},
                        Case{4, 2, 64, 0, KvType::f16, KvType::f16, true},
                        Case{5, 1, 32, 70, KvType::f16, KvType::int8, false},
                        Case{8, 2, 16, 33, KvType::int8, KvType::f16, false},
                        Case{3, 3, 20, 0, KvType::int8, KvType::int8, true},
                        Case{4, 2, 32, 0, KvType::int8, KvType::int8, false},
                        Case{4, 1, 80, 64, KvType::f32, KvType::int8, false},
                        Case{2, 1, 512, 0, KvType::f16, KvType::f16, true}}) {
    for (const bool has_sinks : {false, true}) {
      start(c, 150, has_sinks);
      const auto qkv = random_qkv(150);
      const auto found = run(qkv, 67);
      const auto d = static_cast<std::size_t>(c.head_dim);
      for (const std::int64_t row : {0, 1, 63, 64, 66, 67, 149}) {
        for (int query = 0; query < c.heads; ++query) {
          const auto want = expected(qkv, row, query);
          for (std::size_t k = 0; k < d; ++k) {
            const auto at = (static_cast<std::size_t>(row * c.heads + query)) * d + k;
            ASSERT_NEAR(found[at], want[k], tolerance_of(c))
                << "heads of " << d << ", row " << row << ", head " << query << ", sinks "
                << has_sinks;
          }
        }
      }
    }
  }
}

TEST_P(AttentionConformance, LongContextsAgreeWithDouble) {
  start({2, 1, 32, 0, KvType::f32, KvType::f32, false}, 1100, true);
  const auto qkv = random_qkv(1100);
  const auto found = run(qkv, 1100);
  for (const std::int64_t row : {511, 512, 513, 1023, 1024, 1099}) {
    const auto want = expected(qkv, row, 1);
    for (std::size_t k = 0; k < 32; ++k) {
      ASSERT_NEAR(found[static_cast<std::size_t>(row * 2 + 1) * 32 + k], want[k], 1e-5) << row;
    }
  }
}

TEST_P(AttentionConformance, PortableHeadsComeBackFromAnotherCache) {
  for (const KvType type : {KvType::f32, KvType::f16, KvType::int8}) {
    start({4, 2, 20, 0, type, type, false}, 64);
    const auto qkv = random_qkv(64);
    const auto whole = run(qkv, 64);
    const std::size_t bytes = std::size_t{64} * 20 *
                                  (type == KvType::f32   ? 4
                                   : type == KvType::f16 ? 2
                                                         : 1) +
                              (type == KvType::int8 ? 256 : 0);
    std::vector<std::vector<std::byte>> saved;
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      for (int head = 0; head < 2; ++head) {
        saved.emplace_back(bytes);
        read_head(part, head, saved.back());
      }
    }
    start({4, 2, 20, 0, type, type, false}, 64);
    std::size_t next = 0;
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      for (int head = 0; head < 2; ++head) {
        write_head(part, head, saved[next]);
        std::vector<std::byte> again(bytes);
        read_head(part, head, again);
        ASSERT_EQ(again, saved[next++]);
      }
    }
    // Only the last row is fed again, after the pages were written.
    const std::int64_t width = (4 + 2 * 2) * 20;
    Rows x = rows_of({qkv.end() - width, qkv.end()}, width);
    Rows y = backend->allocate_rows(1, 80, {});
    const std::vector<SequenceRun> runs = {{0, 0, 1, 63, pages_}};
    backend->rope_append(x, {1, runs}, shape_, rope_, kv_);
    backend->attention(x, {1, runs}, shape_, kv_, y);
    const auto found = values_of(y, 1);
    for (std::size_t k = 0; k < 80; ++k) ASSERT_NEAR(found[k], whole[63 * 80 + k], 1e-6);
  }
}

// The NaN is in the first or the last column of each head of q, k and v.
TEST_P(AttentionConformance, NamesTheRowThatIsNotFinite) {
  start({2, 1, 16, 0, KvType::f16, KvType::f16, false}, 10);
  for (const std::size_t column : {0, 15, 16, 31, 32, 40, 47, 48, 63}) {
    auto qkv = random_qkv(10);
    qkv[7 * 64 + column] = NAN;
    try {
      run(qkv, 10);
      FAIL() << "NaN in column " << column << " went into the cache";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("input of attention, token 7"), std::string::npos)
          << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionConformance, testing::ValuesIn(test::all_backends()),
                         test::case_name);

}  // namespace
}  // namespace leq

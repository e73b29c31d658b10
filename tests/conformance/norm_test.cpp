// Norms of rows and of heads on every backend, bit for bit in the written order of their sums, and
// the codes computed from them.
#include "backends.h"

#include <bit>

#include "kv_numbers.h"
#include "naive_norm.h"

namespace leq {
namespace {

using test::columns_of_scale;

// Widths are below, at and above limits of registers, warps and the 256 lanes, and common widths.
constexpr std::int64_t kWidths[] = {1,   2,   63,  64,  65,  127, 128, 129,  192,  193, 255,
                                    256, 257, 320, 511, 512, 513, 768, 1000, 4096, 5120};
constexpr std::int64_t kTokens = 3;
constexpr float kEps = 1e-5f;

// Numbers around a mean, some of them large, as in hidden states, so that sums depend on the order.
std::vector<float> hidden_states(std::int64_t n, std::uint64_t seed) {
  auto x = test::random_numbers(n, seed);
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = (x[k] + 0.7f) * (k % 37 == 5 ? 30.0f : 1.0f);
  return x;
}

void expect_bits(std::span<const float> found, std::span<const float> want,
                 const std::string& what) {
  ASSERT_EQ(found.size(), want.size()) << what;
  for (std::size_t k = 0; k < want.size(); ++k) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(found[k]), std::bit_cast<std::uint32_t>(want[k]))
        << what << ", number " << k << ": " << found[k] << " and " << want[k];
  }
}

struct NormCase {
  NormKind kind;
  std::int64_t width;
  bool smooth;

  std::string name() const {
    return std::string(kind == NormKind::rms ? "rms" : "layer") + " norm of " +
           std::to_string(width) + (smooth ? ", smoothed" : "");
  }
};

std::vector<NormCase> norm_cases() {
  std::vector<NormCase> cases;
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const std::int64_t width : kWidths) {
      for (const bool smooth : {false, true}) cases.push_back({kind, width, smooth});
    }
  }
  return cases;
}

class NormConformance : public test::Conformance {
 protected:
  void start(const NormCase& c) {
    x_ = hidden_states(kTokens * c.width, 5);
    const auto gain = test::random_numbers(c.width, 6), beta = test::random_numbers(c.width, 7);
    const auto factors = test::random_numbers(c.width, 8);
    norm_ = {c.kind, upload_vector(gain), upload_vector(beta), kEps, c.width};
    inv_smooth_ = c.smooth ? upload_vector(factors) : nullptr;
    want_.clear();
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const auto row = std::span(x_).subspan(static_cast<std::size_t>(t * c.width),
                                             static_cast<std::size_t>(c.width));
      auto y = c.kind == NormKind::rms ? test::naive_rms_norm(row, gain, kEps)
                                       : test::naive_layer_norm(row, gain, beta, kEps);
      for (std::size_t k = 0; c.smooth && k < y.size(); ++k) y[k] *= factors[k];
      want_.insert(want_.end(), y.begin(), y.end());
    }
  }

  Rows normed(const RowsFormat& format) {
    const Rows in = rows_of(x_, norm_.width);
    Rows out = backend->allocate_rows(kTokens, norm_.width, format);
    backend->norm(in, kTokens, norm_, {out, {.inv_smooth = inv_smooth_}});
    return out;
  }

  // Checks codes by the outputs of a linear with a few rows of int8 weights, which add all columns.
  void expect_codes(const NormCase& c, ActKind act) {
    constexpr std::int64_t kOutputs = 3;
    const auto columns = static_cast<std::size_t>(c.width);
    const PackedWeight packed = pack_weight(test::random_numbers(kOutputs * c.width, 9), kOutputs,
                                            c.width, require_scheme("int8", "test"), act, "w");
    Linear linear;
    linear.name = "test";
    linear.inputs = c.width;
    linear.outputs = kOutputs;
    linear.act = act;
    linear.segments = {{upload_weight(packed), nullptr}};
    Rows out = backend->allocate_rows(kTokens, kOutputs, {});
    backend->linear(normed(backend->layout().format_for(linear)), kTokens, linear, Epilogue::none,
                    out);
    std::vector<float> want;
    for (std::size_t t = 0; t < kTokens; ++t) {
      const std::int64_t group = columns_of_scale(act) > 0 ? columns_of_scale(act) : c.width;
      const auto row = test::quantize_row(std::span(want_).subspan(t * columns, columns), group, 0);
      for (std::int64_t n = 0; n < kOutputs; ++n) want.push_back(product(packed, n, row, act));
    }
    expect_bits(values_of(out, kTokens), want, c.name() + ", act " + std::string(act_name(act)));
  }

  static float product(const PackedWeight& packed, std::int64_t n, const test::QuantizedRow& x,
                       ActKind act) {
    const WeightView w = packed.view();
    const std::int64_t group = columns_of_scale(act) > 0 ? columns_of_scale(act) : w.columns;
    const float of_weight = scale_at(w, n, 0);
    float f = 0, sum = 0;
    for (std::int64_t first = 0; first < w.columns; first += group) {
      int codes = 0;
      for (std::int64_t k = first; k < std::min(first + group, w.columns); ++k) {
        codes += code_at(w, n, k) * x.codes[static_cast<std::size_t>(k)];
      }
      sum = static_cast<float>(codes);
      f = std::fma(sum, x.scales[static_cast<std::size_t>(first / group)], f);
    }
    return columns_of_scale(act) > 0 ? f * of_weight : sum * (x.scales[0] * of_weight);
  }

  std::vector<float> x_, want_;
  Norm norm_;
  const float* inv_smooth_ = nullptr;
};

TEST_P(NormConformance, SumsRunInTheWrittenOrder) {
  for (const NormCase& c : norm_cases()) {
    start(c);
    expect_bits(values_of(normed({}), kTokens), want_, c.name());
  }
}

TEST_P(NormConformance, CodesAreThoseOfTheWrittenOrder) {
  for (const NormCase& c : norm_cases()) {
    if (c.width < 2) continue;
    start(c);
    expect_codes(c, ActKind::row);
    if (c.width > 64) expect_codes(c, ActKind::g128);
    if (c.width > 64) expect_codes(c, ActKind::g32);
  }
}

// Without rotation, only norms of q and k apply; q is returned times its factor, k is in the cache.
TEST_P(NormConformance, HeadsHaveTheOrderOfRows) {
  for (const int dims : {2, 16, 30, 32, 34, 64, 80, 128, 130, 192, 256, 258, 512, 514}) {
    constexpr int kHeads = 3;
    const auto d = static_cast<std::size_t>(dims);
    const auto q_gain = test::random_numbers(dims, 1), k_gain = test::random_numbers(dims, 2);
    const Norm q_norm = {NormKind::rms, upload_vector(q_gain), nullptr, 1e-6f, dims};
    const Norm k_norm = {NormKind::rms, upload_vector(k_gain), nullptr, 1e-6f, dims};
    const AttentionShape shape = {kHeads, 1, dims, 0, &q_norm, &k_norm, false};
    KvLayer kv;
    kv.key_type = kv.value_type = KvType::f32;
    kv.key_page_bytes = backend->layout().page_bytes(KvPart::keys, KvType::f32, 1, dims);
    kv.value_page_bytes = backend->layout().page_bytes(KvPart::values, KvType::f32, 1, dims);
    const Buffer keys(backend->memory(), kv.key_page_bytes);
    const Buffer values(backend->memory(), kv.value_page_bytes);
    kv.keys = keys.data();
    kv.values = values.data();
    backend->memory().scratch(backend->layout().scratch_bytes(kTokens, shape, 64));
    const std::int64_t width = (kHeads + 2) * std::int64_t{dims};
    const auto numbers = hidden_states(kTokens * width, 3);
    Rows qkv = rows_of(numbers, width);
    const std::vector<std::int32_t> pages = {0};
    const std::vector<SequenceRun> runs = {{0, 0, kTokens, 0, pages}};
    RopeTable no_rope;
    backend->rope_append(qkv, {kTokens, runs}, shape, no_rope, kv);
    const auto found = values_of(qkv, kTokens);
    std::vector<std::byte> saved(64 * d * sizeof(float));
    std::vector<std::byte> page(kv.key_page_bytes);
    backend->memory().read(kv.keys, page);
    test::read_kv(test::order_of(backend->layout()), {KvPart::keys, KvType::f32, 1, dims, 0}, page,
                  saved);
    const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dims)));
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t head = 0; head <= kHeads; ++head) {
        const std::size_t at = (t * (kHeads + 2) + head) * d;
        const bool key = head == kHeads;
        auto want =
            test::naive_rms_norm(std::span(numbers).subspan(at, d), key ? k_gain : q_gain, 1e-6f);
        std::vector<float> have(found.data() + at, found.data() + at + d);
        if (key) {
          std::memcpy(have.data(), saved.data() + t * d * sizeof(float), d * sizeof(float));
        } else {
          for (float& v : want) v *= factor;
        }
        expect_bits(have, want, "head " + std::to_string(head) + " of " + std::to_string(dims));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, NormConformance, testing::ValuesIn(test::all_backends()),
                         test::case_name);

}  // namespace
}  // namespace leq

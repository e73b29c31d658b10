// Sampling on every backend: each row of a batch gets the token or the error of the host's sampler.
#include <array>
#include <limits>

#include "backend/checks.h"
#include "backends.h"
#include "base/error.h"
#include "errors.h"

namespace leq {
namespace {

class SampleConformance : public test::Conformance {};

std::string error_of(Backend& backend, const Rows& logits,
                     std::span<const SampleRequest> requests) {
  std::vector<std::int32_t> drawn(requests.size());
  return test::error_of([&] {
    backend.sample(logits, requests, drawn);
    require_drawn(backend, logits, drawn);
  });
}

TEST_P(SampleConformance, EveryRowOfABatchGetsItsOwnToken) {
  constexpr std::int64_t kVocabulary = 300, kRows = 70;
  const auto numbers = test::random_numbers(kRows * kVocabulary, 1);
  const Rows logits = rows_of(numbers, kVocabulary);
  const std::vector<LogitChange> changes = {
      banned_token(3), {4, 1}, {.id = 7, .bias = 1.5f, .minus = 0.25f}, {299, 3}};
  std::vector<SampleRequest> requests;
  std::vector<std::int32_t> drawn(kRows), want;
  Random random(2);
  for (std::int64_t i = 0; i < kRows; ++i) {
    SampleRequest request;
    request.rule.temperature = i % 7 == 0 ? 0.0f : 1.0f;
    request.rule.top_k = i % 3 == 0 ? 0 : 40;
    request.rule.top_p = i % 2 == 0 ? 1.0f : 0.9f;
    request.rule.frequency_penalty = 0.5f;
    request.rule.random = random.bits();
    if (i % 5 != 0) request.changes = changes;
    requests.push_back(request);
    want.push_back(HostSampler().draw(
        std::span(numbers).subspan(static_cast<std::size_t>(i * kVocabulary), kVocabulary),
        request));
  }
  backend->sample(logits, requests, drawn);
  EXPECT_EQ(drawn, want);
  EXPECT_EQ(values_of(logits, kRows), numbers);  // unchanged
}

// With a grammar, every device draws only allowed tokens, both greedily and at random.
TEST_P(SampleConformance, OnlyAllowedTokensAreDrawn) {
  constexpr std::int64_t kVocabulary = 5001, kRows = 60;
  const auto numbers = test::random_numbers(kRows * kVocabulary, 9);
  const Rows logits = rows_of(numbers, kVocabulary);
  std::vector<std::vector<std::uint64_t>> masks;
  std::vector<SampleRequest> requests(kRows);
  std::vector<std::int32_t> drawn(kRows);
  Random random(4);
  for (std::size_t i = 0; i < kRows; ++i) {
    masks.emplace_back((kVocabulary + 63) / 64);
    for (int n = 0; n < 1 + static_cast<int>(i) % 7; ++n) {
      const auto id = random.bits() % kVocabulary;
      masks.back()[id / 64] |= std::uint64_t{1} << id % 64;
    }
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    if (i % 4 != 3) requests[i].allowed = masks[i];
    requests[i].rule.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    requests[i].rule.top_k = i % 3 == 0 ? 40 : 0;
    requests[i].rule.min_p = i % 5 == 0 ? 0.1f : 0.0f;
    requests[i].rule.random = random.bits();
  }
  backend->sample(logits, requests, drawn);
  for (std::size_t i = 0; i < kRows; ++i) {
    ASSERT_GE(drawn[i], 0);
    const auto id = static_cast<std::size_t>(drawn[i]);
    if (i % 4 == 3) continue;
    EXPECT_TRUE((masks[i][id / 64] >> id % 64 & 1) != 0) << i;
    if (requests[i].rule.temperature > 0) continue;
    for (std::size_t other = 0; other < kVocabulary; ++other) {  // the largest allowed logit
      if ((masks[i][other / 64] >> other % 64 & 1) == 0) continue;
      EXPECT_LE(numbers[i * kVocabulary + other], numbers[i * kVocabulary + id]);
    }
  }
  const std::vector<std::uint64_t> none((kVocabulary + 63) / 64);
  requests.resize(1);
  requests[0].allowed = none;
  drawn.resize(1);
  backend->sample(logits, requests, drawn);
  EXPECT_EQ(drawn[0], kAllBanned);
}

// Tests every cut that only the host supports, next to rows that the device samples itself.
TEST_P(SampleConformance, RowsWithTheHostsCutsGetTheHostsToken) {
  constexpr std::int64_t kVocabulary = 5000, kRows = 70;
  const auto numbers = test::random_numbers(kRows * kVocabulary, 3);
  const Rows logits = rows_of(numbers, kVocabulary);
  const std::vector<LogitChange> changes = {banned_token(3), {.id = 7, .bias = 9, .minus = 2}};
  std::vector<SampleRequest> requests(kRows);
  std::vector<std::int32_t> drawn(kRows), want;
  std::vector<double> surprises(kRows), wanted_surprises(kRows);
  Random random(4);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SampleRule& rule = requests[i].rule;
    rule.top_k = i % 2 == 0 ? 0 : 40;
    rule.random = random.bits();
    rule.coin = random.bits();
    if (i % 7 == 1) rule.typical_p = 0.7f;
    if (i % 7 == 2) rule.top_n_sigma = 1.5f;
    if (i % 7 == 3) rule.xtc_probability = 0.5f, rule.xtc_threshold = 0.001f;
    if (i % 7 >= 4) rule.mirostat = 2, rule.mirostat_mu = 6;
    if (i % 7 == 6) rule.temperature = 0;
    if (i % 3 == 0) requests[i].changes = changes;
    requests[i].surprise = &wanted_surprises[i];
    want.push_back(
        HostSampler().draw(std::span(numbers).subspan(i * kVocabulary, kVocabulary), requests[i]));
    requests[i].surprise = &surprises[i];
  }
  backend->sample(logits, requests, drawn);
  EXPECT_EQ(drawn, want);
  EXPECT_EQ(surprises, wanted_surprises);
  EXPECT_EQ(values_of(logits, kRows), numbers);
}

// The host reads the drawn tokens later; an embedding on the device uses them directly.
TEST_P(SampleConformance, WhatIsDrawnWithoutWaitingIsTheSame) {
  constexpr std::int64_t kVocabulary = 300, kRows = 256, kWidth = 24;
  auto numbers = test::random_numbers(kRows * kVocabulary, 5);
  numbers[2 * kVocabulary + 40] = std::nanf("");  // this row has no token
  Rows logits = rows_of(numbers, kVocabulary);
  std::vector<SampleRequest> requests(kRows);
  std::vector<std::int32_t> want(kRows), drawn(kRows), again(kRows);
  Random random(6);
  for (SampleRequest& request : requests) request.rule.random = random.bits();
  requests[4].rule.temperature = 0;
  backend->sample(logits, requests, want);
  const auto drawing = backend->begin_sample(logits, requests);
  const auto table = test::random_numbers(kVocabulary * kWidth, 7);
  const PackedWeight packed = pack_weight(table, kVocabulary, kWidth, require_scheme("f32", "test"),
                                          ActKind::none, "table");
  const WeightView tokens = upload_weight(packed);
  const std::vector<std::int32_t> rows_fed = {7, 4, 2, 63, 64, 130, 255};
  Rows x = backend->allocate_rows(std::ssize(rows_fed), kWidth, {});
  std::vector<std::int32_t> ids;
  for (const std::int32_t row : rows_fed) ids.push_back(placeholder_id(row));
  if (drawing == nullptr) {  // synchronous: operations have ended when they return
    EXPECT_THROW(backend->embed({tokens, ids}, x), Error);
    return;
  }
  EXPECT_TRUE(drawing->is_last());
  backend->embed({tokens, ids}, x);
  const std::vector<std::int32_t> beyond = {placeholder_id(kRows)};
  EXPECT_THROW(backend->embed({tokens, beyond}, x), Error);
  backend->assign(std::vector<float>(kRows * kVocabulary, 1.0f), logits);
  const auto later = backend->begin_sample(logits, requests);
  EXPECT_FALSE(drawing->is_last());
  drawing->wait(drawn);
  EXPECT_EQ(drawn, want);
  later->wait(again);
  EXPECT_NE(again, want);
  EXPECT_LT(want[2], 0);
  const auto rows = values_of(x, std::ssize(rows_fed));
  for (std::size_t i = 0; i < rows_fed.size(); ++i) {
    // For a row that has no token, the embedding uses token 0.
    const auto id = static_cast<std::size_t>(std::max(want[rows_fed[i]], 0));
    for (std::size_t k = 0; k < kWidth; ++k) {
      EXPECT_EQ(rows[i * kWidth + k], table[id * kWidth + k]);
    }
  }
  requests[3].rule.typical_p = 0.9f;  // sampled by the host
  EXPECT_EQ(backend->begin_sample(logits, requests), nullptr);
}

// A row that has no token does not affect the other rows.
TEST_P(SampleConformance, RowsTellWhyTheyHaveNoToken) {
  std::vector<float> numbers = {0, 3, 1, 2, 9, 8, 7, 6, 0, 0, 0, 5, 1, 2, 3, 4, 2, 7, 1, 0};
  numbers[2 * 4 + 1] = std::nanf("");
  numbers[2 * 4 + 2] = std::numeric_limits<float>::infinity();
  numbers[3 * 4 + 0] = std::numeric_limits<float>::infinity();
  const Rows logits = rows_of(numbers, 4);
  const std::vector<LogitChange> all = {banned_token(0), banned_token(1), banned_token(2),
                                        banned_token(3)};
  for (const float temperature : {0.0f, 1.0f}) {
    SampleRequest request;
    request.rule.temperature = temperature;
    request.rule.top_k = 1;
    std::vector<SampleRequest> requests(5, request);
    requests[1].changes = all;
    std::vector<std::int32_t> drawn(5);
    backend->sample(logits, requests, drawn);
    EXPECT_EQ(drawn,
              (std::vector<std::int32_t>{1, kAllBanned, bad_logit_of(1), bad_logit_of(0), 1}));
  }
}

TEST_P(SampleConformance, RowsWithoutATokenAreErrors) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> numbers(4 * 5, 1.0f);
  numbers[2 * 5 + 3] = std::nanf("");
  numbers[3 * 5 + 1] = infinity;
  const Rows logits = rows_of(numbers, 5);
  const std::vector<LogitChange> all = {banned_token(0), banned_token(1), banned_token(2),
                                        banned_token(3), banned_token(4)};
  std::vector<SampleRequest> requests(4);
  EXPECT_EQ(error_of(*backend, logits, std::span(requests).first(2)), "");
  const std::string bad = error_of(*backend, logits, requests);
  EXPECT_NE(bad.find("the logit of token 3 is nan"), std::string::npos) << bad;
  requests[1].rule.temperature = 0;
  requests[1].changes = all;
  EXPECT_EQ(error_of(*backend, logits, requests), "sampler: every token is banned");
  const std::vector<LogitChange> twice = {{1, 0}, {1, 1}}, beyond = {{5, 0}},
                                 nan = {{.id = 1, .bias = std::nanf("")}},
                                 more = {{.id = 1, .minus = -1}};
  for (const auto& changes : {twice, beyond, nan, more}) {
    requests[0].changes = changes;
    EXPECT_NE(error_of(*backend, logits, std::span(requests).first(1)), "");
  }
  requests.resize(5);
  EXPECT_NE(error_of(*backend, logits, requests), "");  // more requests than rows
}

INSTANTIATE_TEST_SUITE_P(Backends, SampleConformance, testing::ValuesIn(test::all_backends()),
                         test::case_name);

}  // namespace
}  // namespace leq

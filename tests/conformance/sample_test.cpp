// Sampling on every backend: the host's token for each row of a batch, and the same errors.
#include <array>
#include <limits>

#include "backend/checks.h"
#include "backends.h"
#include "base/error.h"

namespace leq {
namespace {

class SampleConformance : public test::Conformance {};

std::string error_of(Backend& backend, const Rows& logits,
                     std::span<const SampleRequest> requests) {
  std::vector<std::int32_t> drawn(requests.size());
  try {
    backend.sample(logits, requests, drawn);
    require_drawn(backend, logits, drawn);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_P(SampleConformance, EveryRowOfABatchGetsItsOwnToken) {
  constexpr std::int64_t kVocabulary = 300, kRows = 70;
  const auto numbers = test::random_numbers(kRows * kVocabulary, 1);
  const Rows logits = rows_of(numbers, kVocabulary);
  const std::vector<LogitChange> changes = {{3, 0}, {4, 1}, {299, 3}};
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
  EXPECT_EQ(values_of(logits, kRows), numbers);  // as before
}

// A row without a token costs its neighbours nothing.
TEST_P(SampleConformance, RowsTellWhyTheyHaveNoToken) {
  std::vector<float> numbers = {0, 3, 1, 2, 9, 8, 7, 6, 0, 0, 0, 5, 1, 2, 3, 4, 2, 7, 1, 0};
  numbers[2 * 4 + 1] = std::nanf("");
  numbers[2 * 4 + 2] = std::numeric_limits<float>::infinity();
  numbers[3 * 4 + 0] = std::numeric_limits<float>::infinity();
  const Rows logits = rows_of(numbers, 4);
  const std::vector<LogitChange> all = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
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
  const std::vector<LogitChange> all = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}};
  std::vector<SampleRequest> requests(4);
  EXPECT_EQ(error_of(*backend, logits, std::span(requests).first(2)), "");
  const std::string bad = error_of(*backend, logits, requests);
  EXPECT_NE(bad.find("the logit of token 3 is nan"), std::string::npos) << bad;
  requests[1].rule.temperature = 0;
  requests[1].changes = all;
  EXPECT_EQ(error_of(*backend, logits, requests), "sampler: every token is banned");
  const std::vector<LogitChange> twice = {{1, 0}, {1, 1}}, beyond = {{5, 0}};
  for (const auto& changes : {twice, beyond}) {
    requests[0].changes = changes;
    EXPECT_NE(error_of(*backend, logits, std::span(requests).first(1)), "");
  }
  requests.resize(5);
  EXPECT_NE(error_of(*backend, logits, requests), "");  // more than there are rows
}

INSTANTIATE_TEST_SUITE_P(Backends, SampleConformance, testing::ValuesIn(test::all_backends()),
                         test::case_name);

}  // namespace
}  // namespace leq

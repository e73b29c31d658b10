// What drafting gains: replies written with and without draft tokens, in turn, and what steps of
// several rows cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/table.h"
#include "tools/bench/model.h"

namespace leq {

// A prompt, and the reply that is written to it where it is known before.
struct SpeculationText {
  std::string name;
  std::vector<Token> prompt;
  std::vector<Token> replayed;  // empty: the model writes its own
};

struct SpeculationTest {
  std::vector<SpeculationText> texts;
  std::int64_t reply = 128;  // tokens
  std::int64_t max_draft_tokens = 0;
  double draft_share = 0;  // replayed: so many of the draft model's draft tokens are right
  int runs = 5;
  std::uint64_t seed = 1;
};

// Texts to go on with, of three kinds: prose, JSON that repeats itself, a summary with quotes.
std::vector<SpeculationText> built_in_texts(const Tokenizer& tokenizer);
// The tokens of a text for a model without a tokenizer: a number for each word, so that what
// repeats itself in the text does so in the numbers.
std::vector<Token> numbered_words(std::string_view text, std::int64_t vocabulary);

// Limits for sessions of the test.
RunLimits speculation_limits(const SpeculationTest& test, RunLimits limits);

// A row for each text without draft tokens, with those found in it, and with a draft model (null:
// none), whose name is `draft_name`; then a row for each number of draft tokens in a step.
void bench_speculation(const BenchModel& model, Session& session, const std::string& draft_name,
                       Session* draft, const SpeculationTest& test, Table& table);

}  // namespace leq

// Measures the gain of speculative decoding (replies with and without draft tokens, in alternation)
// and the cost of steps with several rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/table.h"
#include "tools/bench/model.h"

namespace leq {

// A prompt, and its reply if it is known in advance.
struct SpeculationText {
  std::string name;
  std::vector<Token> prompt;
  std::vector<Token> replayed;  // empty: the model generates the reply
};

struct SpeculationTest {
  std::vector<SpeculationText> texts;
  std::int64_t reply = 128;  // tokens
  std::int64_t max_draft_tokens = 0;
  double draft_share = 0;  // replayed: fraction of correct draft tokens
  int runs = 5;
  std::uint64_t seed = 1;
};

// Prompts of three kinds: prose, repetitive JSON, and a summary with quotes.
std::vector<SpeculationText> built_in_texts(const Tokenizer& tokenizer);
// Returns token ids of a text for a model without a tokenizer: one id per distinct word, so that
// repetitions in the text are also repetitions of ids.
std::vector<Token> numbered_words(std::string_view text, std::int64_t vocabulary);

// The limits of the sessions in this test.
RunLimits speculation_limits(const SpeculationTest& test, RunLimits limits);

// Adds rows for each text: without draft tokens, with drafts found in the text, and with a draft
// model `draft_name` (null: none); then one row for each number of draft tokens per step.
void bench_speculation(const BenchModel& model, Session& session, const std::string& draft_name,
                       Session* draft, const SpeculationTest& test, Table& table);

}  // namespace leq

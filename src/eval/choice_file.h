// Questions with choices, from the JSONL files of HellaSwag, PIQA, ARC and MMLU as users have them,
// or in a plain form, as lm-evaluation-harness puts them to a model (its task definitions).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace leq {

struct ChoiceQuestion {
  std::string context;               // what is given
  std::vector<std::string> choices;  // as the second normalisation counts their letters
  std::size_t answer = 0;            // index of the right one
};

struct ChoiceTask {
  std::string name;  // of the file: "ARC-Challenge-Test"
  std::string form;  // "hellaswag", "piqa", "arc", "mmlu", "plain"
  std::vector<ChoiceQuestion> questions;
};

// One line: its form is told by its keys.
//   hellaswag  ctx_a, ctx_b, activity_label, endings, label
//   piqa       goal, sol1, sol2, label
//   arc        question, choices {text, label}, answerKey; or question {stem, choices [...]}
//   mmlu       question, choices [A, B, C, D], answer (a number or a letter), subject
//   plain      context, choices [...], label
// Throws Error naming `source` where no form fits, the answer is missing, or is none of the
// choices.
ChoiceQuestion choice_question(const Json& line, std::string_view source);
std::string choice_form(const Json& line, std::string_view source);

// At most `limit` questions, the first ones; 0: all. Throws Error naming file and line.
ChoiceTask read_choice_file(const std::filesystem::path& path, std::int64_t limit = 0);

}  // namespace leq

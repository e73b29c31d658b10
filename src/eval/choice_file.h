// Reads multiple-choice questions from the published JSONL files of HellaSwag, PIQA, ARC and MMLU,
// or in a plain form; prompts are those of lm-evaluation-harness (its task definitions).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace leq {

struct ChoiceQuestion {
  std::string context;               // the prompt
  std::vector<std::string> choices;  // acc_norm divides by the lengths of the choices
  std::size_t answer = 0;            // index of the correct choice
};

struct ChoiceTask {
  std::string name;  // file name without extension: "ARC-Challenge-Test"
  std::string form;  // "hellaswag", "piqa", "arc", "mmlu", "plain"
  std::vector<ChoiceQuestion> questions;
};

// Parses one line; its keys determine its form.
//   hellaswag  ctx_a, ctx_b, activity_label, endings, label
//   piqa       goal, sol1, sol2, label
//   arc        question, choices {text, label}, answerKey; or question {stem, choices [...]}
//   mmlu       question, choices [A, B, C, D], answer (a number or a letter), subject
//   plain      context, choices [...], label
// Throws Error naming `source` if no form fits, the answer is missing, or it is not one of the
// choices.
ChoiceQuestion choice_question(const Json& line, std::string_view source);
std::string choice_form(const Json& line, std::string_view source);

// Reads the first `limit` questions; 0: all. Throws Error naming file and line.
ChoiceTask read_choice_file(const std::filesystem::path& path, std::int64_t limit = 0);

}  // namespace leq

// A candidate's multiple-choice results as JSON.
#pragma once

#include "base/json.h"
#include "compare/workbench.h"
#include "eval/multiple_choice.h"

namespace leq {

// The SHA-256 of the questions.
std::string task_identity(const ChoiceTask& task);

// acc, acc_low, acc_high, acc_norm, ... (Wilson, 95 %), questions, and the correctness of each
// answer: "right" and "right_norm", strings of 0 and 1.
Json choice_json(const ChoiceResult& result);
Json measure_task(Workbench& bench, const Candidate& candidate, const ChoiceTask& task);

}  // namespace leq

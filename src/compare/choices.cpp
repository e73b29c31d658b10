#include "compare/choices.h"

#include "base/text.h"

namespace leq {

std::string task_identity(const ChoiceTask& task) {
  Json questions = Json::array();
  for (const ChoiceQuestion& question : task.questions) {
    questions.push_back({question.context, Json(question.choices), question.answer});
  }
  return sha256_hex(questions.dump_any());
}

Json choice_json(const ChoiceResult& result) {
  std::string right, right_norm;
  for (const ChoiceAnswer& answer : result.answers) {
    right += answer.right ? '1' : '0';
    right_norm += answer.right_by_length ? '1' : '0';
  }
  return {{"questions", result.questions},
          {"acc", result.acc()},
          {"acc_low", result.acc_interval().low},
          {"acc_high", result.acc_interval().high},
          {"acc_norm", result.acc_norm()},
          {"acc_norm_low", result.acc_norm_interval().low},
          {"acc_norm_high", result.acc_norm_interval().high},
          {"right", right},
          {"right_norm", right_norm}};
}

Json measure_task(Workbench& bench, const Candidate& candidate, const ChoiceTask& task) {
  const std::unique_ptr<Model> model = bench.open(candidate);
  const std::int64_t context = std::min<std::int64_t>(model->config().context, 2048);
  Session session = bench.session(candidate, *model, context);
  ChoiceRun run = {.tokenizer = model->tokenizer(), .context = context};
  run.progress = [&](std::int64_t, double) { bench.require_not_stopped(); };
  return choice_json(measure_choices(session, bench.workers().pool, task, run));
}

}  // namespace leq

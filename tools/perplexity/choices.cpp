#include "tools/perplexity/choices.h"

#include <iostream>

#include "base/error.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/text.h"
#include "eval/multiple_choice.h"
#include "eval/perplexity.h"
#include "tools/common/model_setup.h"

namespace leq {
namespace {

constexpr std::int64_t kLongestQuestion = 2048;  // tokens

Row choice_row(const std::string& model, const ChoiceTask& task, const ChoiceResult& result) {
  const Interval acc = result.acc_interval(), norm = result.acc_norm_interval();
  return {{"model", model},
          {"task", task.name},
          {"form", task.form},
          {"questions", result.questions},
          {"acc", Cell(result.acc(), 4)},
          {"acc_low", Cell(acc.low, 4)},
          {"acc_high", Cell(acc.high, 4)},
          {"acc_norm", Cell(result.acc_norm(), 4)},
          {"acc_norm_low", Cell(norm.low, 4)},
          {"acc_norm_high", Cell(norm.high, 4)}};
}

}  // namespace

int answer_choices(const Options& options) {
  for (const char* flag : {"file", "against", "kl-divergence-base", "kl-divergence", "protocol"}) {
    require(!options.given(flag), "--choices and --", flag,
            ": questions have no text to measure; "
            "leave one of them out");
  }
  const ChoiceTask task = read_choice_file(options.text("choices"), options.integer("questions"));
  const Runtime setup = set_up_model(options, [&](const Model& model, RunLimits& limits) {
    limits.context = options.given("window") ? options.integer("window")
                                             : std::min(model.config().context, kLongestQuestion);
    limits.output_tokens = kOutputRows;
  });
  ThreadPool pool(setup.threads);
  Progress progress("choices", std::ssize(task.questions), "questions");
  ChoiceRun run = {.tokenizer = setup.model->tokenizer(),
                   .context = setup.session->limits().context};
  run.progress = [&](std::int64_t done, double acc) {
    progress.update(done, "acc " + fixed(acc, 3));
  };
  const ChoiceResult result = measure_choices(*setup.session, pool, task, run);
  progress.clear();
  const std::string model = std::filesystem::path(options.text("model")).filename().string();
  const Row row = choice_row(model, task, result);
  Table table;
  table.add(row);
  std::cout << (options.text("output") == "json" ? json_object(row) : table.text());
  return 0;
}

}  // namespace leq

// Any bytes as a file of questions: each line is a question whose answer is one of its choices, or
// gives an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/multiple_choice.h"
#include "fuzz/seeded.h"

namespace {

std::vector<std::string> examples() {
  return {
      R"({"activity_label":"A","ctx_a":"a [b] c [title] d","ctx_b":"e","endings":["f","g"],"label":"1"})",
      R"({"goal":"g","sol1":"a","sol2":"b","label":0})",
      R"({"question":"q","choices":{"text":["a","b"],"label":["A","B"]},"answerKey":"B"})",
      R"({"question":{"stem":"q","choices":[{"text":"a","label":"1"},{"text":"b","label":"2"}]},"answerKey":"2"})",
      R"({"question":"q","choices":["a","b","c","d"],"answer":"D","subject":"s_t"})",
      R"({"context":"c","choices":["a","b"],"label":1})"};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const leq::ChoiceQuestion question =
        leq::choice_question(leq::parse_json(text, "fuzz"), "fuzz");
    if (question.answer >= question.choices.size() || question.choices.size() < 2) std::abort();
  } catch (const leq::Error&) {
  }
  return 0;
}

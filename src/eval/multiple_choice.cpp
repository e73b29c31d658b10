#include "eval/multiple_choice.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "eval/perplexity.h"

namespace leq {
namespace {

constexpr std::uint64_t kLargestChoiceFile = 1ull << 30;
constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

std::string without_brackets(std::string_view text) {
  std::string out;
  while (true) {
    const std::size_t open = text.find('[');
    const std::size_t close = open == text.npos ? text.npos : text.find(']', open);
    if (close == text.npos) return out.append(text);
    out.append(text.substr(0, open));
    text.remove_prefix(close + 1);
  }
}

// Removes artefacts of WikiHow from a HellaSwag text, as lm-evaluation-harness does.
std::string cleaned(std::string_view text) {
  std::string out = replace_all(trim(text), " [title]", ". ");
  return replace_all(without_brackets(out), "  ", " ");
}

std::string capitalized(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (!text.empty()) {
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  }
  return text;
}

std::vector<std::string> texts_of(const Json& list, std::string_view source, const char* key) {
  require(list.is_array() && list.size() >= 2, source, ": ", key, ": expected two texts or more");
  std::vector<std::string> texts;
  for (const Json& text : list) {
    require(text.is_string() && !text.text().empty(), source, ": ", key,
            ": expected texts that are not empty");
    texts.push_back(text.text());
  }
  return texts;
}

// Index of a label, which files write as 2, "2" or "C".
std::size_t answer_index(const Json& line, const char* key, std::size_t choices,
                         std::string_view source) {
  const Json* found = line.find(key);
  require(found != line.end(), source, ": ", key, " is missing: a question without its answer");
  std::optional<std::int64_t> index;
  if (found->is_number_integer()) index = found->get<std::int64_t>();
  if (found->is_string()) {
    index = parse_int(found->text());
    const std::size_t letter =
        found->text().size() == 1 ? kLetters.find(found->text()[0]) : kLetters.npos;
    if (letter != kLetters.npos) index = static_cast<std::int64_t>(letter);
  }
  require(index && *index >= 0 && *index < static_cast<std::int64_t>(choices), source, ": ", key,
          ": expected one of ", choices, " choices, found ", printable(found->dump_any()));
  return static_cast<std::size_t>(*index);
}

ChoiceQuestion hellaswag(const Json& line, std::string_view source) {
  ChoiceQuestion question;
  std::string context = json_get<std::string>(line, "ctx_a", source) + " " +
                        capitalized(json_get<std::string>(line, "ctx_b", source));
  question.context =
      cleaned(json_get<std::string>(line, "activity_label", source) + ": " + context);
  for (const std::string& ending : texts_of(line["endings"], source, "endings")) {
    question.choices.push_back(cleaned(ending));
  }
  question.answer = answer_index(line, "label", question.choices.size(), source);
  return question;
}

ChoiceQuestion piqa(const Json& line, std::string_view source) {
  ChoiceQuestion question;
  question.context = "Question: " + json_get<std::string>(line, "goal", source) + "\nAnswer:";
  question.choices = {json_get<std::string>(line, "sol1", source),
                      json_get<std::string>(line, "sol2", source)};
  question.answer = answer_index(line, "label", 2, source);
  return question;
}

// The data set has two file formats: {"text": [...], "label": [...]} next to the question, or a
// list [{"text", "label"}, ...] within the question.
ChoiceQuestion arc(const Json& line, std::string_view source) {
  const bool nested = line["question"].is_object();
  const std::string stem = nested ? json_get<std::string>(line["question"], "stem", source)
                                  : json_get<std::string>(line, "question", source);
  Json texts = Json::array(), labels = Json::array();
  if (nested) {
    for (const Json& choice : line["question"]["choices"]) {
      texts.push_back(choice.at("text"));
      labels.push_back(choice.at("label"));
    }
  } else {
    texts = line["choices"].at("text");
    labels = line["choices"].at("label");
  }
  ChoiceQuestion question;
  question.context = "Question: " + stem + "\nAnswer:";
  question.choices = texts_of(texts, source, "choices");
  const auto names = labels.get<std::vector<std::string>>();
  const auto key = json_get<std::string>(line, "answerKey", source);
  const auto found = std::ranges::find(names, key);
  require(found != names.end() && names.size() == question.choices.size(), source, ": answerKey ",
          printable(key), ": expected one of ", join(names));
  question.answer = static_cast<std::size_t>(found - names.begin());
  return question;
}

ChoiceQuestion mmlu(const Json& line, std::string_view source) {
  const std::vector<std::string> texts = texts_of(line["choices"], source, "choices");
  require(texts.size() <= kLetters.size(), source, ": choices: expected at most ", kLetters.size(),
          ", found ", texts.size());
  ChoiceQuestion question;
  const std::string subject = line.value("subject", "");
  if (!subject.empty()) {
    question.context = "The following are multiple choice questions (with answers) about " +
                       replace_all(subject, "_", " ") + ".\n\n";
  }
  question.context += std::string(trim(json_get<std::string>(line, "question", source)));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    question.context += "\n" + std::string(1, kLetters[i]) + ". " + texts[i];
    question.choices.emplace_back(1, kLetters[i]);
  }
  question.context += "\nAnswer:";
  question.answer = answer_index(line, "answer", texts.size(), source);
  return question;
}

ChoiceQuestion plain(const Json& line, std::string_view source) {
  ChoiceQuestion question;
  question.context = json_get<std::string>(line, "context", source);
  question.choices = texts_of(line["choices"], source, "choices");
  question.answer = answer_index(line, "label", question.choices.size(), source);
  return question;
}

struct ChoiceForm {
  std::string_view name;
  std::vector<std::string_view> keys;  // keys that identify the form
  ChoiceQuestion (*read)(const Json& line, std::string_view source);
};

const ChoiceForm& form_of(const Json& line, std::string_view source) {
  static const std::array<ChoiceForm, 5> kForms = {{
      {"hellaswag", {"endings", "ctx_a", "activity_label"}, hellaswag},
      {"piqa", {"goal", "sol1", "sol2"}, piqa},
      {"arc", {"question", "answerKey"}, arc},
      {"mmlu", {"question", "choices", "answer"}, mmlu},
      {"plain", {"context", "choices", "label"}, plain},
  }};
  require(line.is_object(), source, ": expected a JSON object on each line");
  for (const ChoiceForm& form : kForms) {
    const auto has = [&](std::string_view key) { return line.contains(key); };
    if (std::ranges::all_of(form.keys, has)) return form;
  }
  fail(source,
       ": no form of a question: expected the keys of HellaSwag (endings), PIQA (goal), "
       "ARC (answerKey), MMLU (answer), or context, choices and label");
}

}  // namespace

ChoiceQuestion choice_question(const Json& line, std::string_view source) {
  return form_of(line, source).read(line, source);
}

std::string choice_form(const Json& line, std::string_view source) {
  return std::string(form_of(line, source).name);
}

ChoiceTask read_choice_file(const std::filesystem::path& path, std::int64_t limit) {
  const std::string text = read_file(path, kLargestChoiceFile);
  ChoiceTask task;
  task.name = path.stem().string();
  std::int64_t number = 0;
  for (const std::string_view line : split(text, "\n")) {
    ++number;
    if (trim(line).empty()) continue;
    const std::string source = path.string() + ": line " + std::to_string(number);
    const Json json = parse_json(line, source);
    if (task.form.empty()) task.form = choice_form(json, source);
    task.questions.push_back(choice_question(json, source));
    if (limit > 0 && std::ssize(task.questions) == limit) break;
  }
  require(!task.questions.empty(), path.string(), ": no questions");
  return task;
}

namespace {

// Length in Unicode characters, not bytes.
double length_of(std::string_view text) {
  std::int64_t length = 0;
  while (!text.empty()) {
    text.remove_prefix(std::max<std::size_t>(1, utf8_length(text)));
    ++length;
  }
  return static_cast<double>(length);
}

double log_likelihood(Session& session, ThreadPool& pool, const ChoiceTokens& choice) {
  WindowLogits logits(session, choice.tokens, kNoToken);
  const Window window = {0, std::ssize(choice.tokens), choice.scored_from};
  double sum = 0;
  for (const double nll : score_window(logits, pool, window)) sum -= nll;
  return sum;
}

}  // namespace

ChoiceTokens choice_tokens(const Tokenizer& tokenizer, const std::string& context,
                           const std::string& choice, std::int64_t most) {
  const std::size_t last = context.find_last_not_of(" \t\n\r\f\v");
  const std::string stem = context.substr(0, last == context.npos ? 0 : last + 1);
  const std::string rest = context.substr(stem.size()) + " " + choice;
  ChoiceTokens result;
  std::int64_t before = 0;
  if (stem.empty()) {
    const Token first = tokenizer.bos() != kNoToken ? tokenizer.bos() : tokenizer.eos();
    require(first != kNoToken, "an empty context: the tokenizer has neither BOS nor EOS");
    result.tokens = tokenizer.encode(rest, {});
    result.tokens.insert(result.tokens.begin(), first);
    before = 1;
  } else {
    before = std::ssize(encode_text(tokenizer, stem));
    result.tokens = encode_text(tokenizer, stem + rest);
  }
  const std::int64_t count = std::ssize(result.tokens);
  require(before < count, "choice ", printable(choice), ": no token of its own");
  const std::int64_t cut = std::max<std::int64_t>(0, count - most);
  require(before - cut >= 1, "choice ", printable(choice), ": ", count - before,
          " tokens do not fit a context of ", most);
  result.tokens.erase(result.tokens.begin(), result.tokens.begin() + cut);
  result.scored_from = before - cut;
  return result;
}

std::size_t most_likely(std::span<const double> log_likelihoods) {
  const auto best = std::ranges::max_element(log_likelihoods);
  return static_cast<std::size_t>(best - log_likelihoods.begin());
}

std::size_t most_likely_by_length(std::span<const double> log_likelihoods,
                                  std::span<const std::string> choices) {
  std::vector<double> each(log_likelihoods.begin(), log_likelihoods.end());
  for (std::size_t i = 0; i < each.size(); ++i) each[i] /= length_of(choices[i]);
  return most_likely(each);
}

ChoiceResult measure_choices(Session& session, ThreadPool& pool, const ChoiceTask& task,
                             const ChoiceRun& run) {
  ChoiceResult result;
  for (const ChoiceQuestion& question : task.questions) {
    ChoiceAnswer answer;
    for (const std::string& choice : question.choices) {
      const ChoiceTokens tokens =
          choice_tokens(run.tokenizer, question.context, choice, run.context);
      answer.log_likelihoods.push_back(log_likelihood(session, pool, tokens));
    }
    answer.right = most_likely(answer.log_likelihoods) == question.answer;
    answer.right_by_length =
        most_likely_by_length(answer.log_likelihoods, question.choices) == question.answer;
    ++result.questions;
    result.right += answer.right ? 1 : 0;
    result.right_by_length += answer.right_by_length ? 1 : 0;
    result.answers.push_back(std::move(answer));
    if (run.progress) run.progress(result.questions, result.acc());
  }
  return result;
}

namespace {

constexpr int kHalvings = 200;  // more than a double has bits

// Finds the argument in (low, high) at which a rising function reaches `value`.
template <class Rising>
double bisect(double low, double high, double value, const Rising& rising) {
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (rising(middle) < value ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

double normal_quantile(double p) {
  ensure(p > 0 && p < 1, "normal quantile: probability ", p);
  constexpr double kFarthest = 40;  // in standard deviations; erfc underflows before
  return bisect(-kFarthest, kFarthest, p,
                [](double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); });
}

Interval wilson_interval(std::int64_t successes, std::int64_t trials, double confidence) {
  ensure(trials > 0 && successes >= 0 && successes <= trials, "wilson: ", successes, " of ",
         trials);
  const double z = normal_quantile(0.5 + confidence / 2);
  const auto n = static_cast<double>(trials);
  const double share = static_cast<double>(successes) / n;
  const double centre = (share + z * z / (2 * n)) / (1 + z * z / n);
  const double half =
      z / (1 + z * z / n) * std::sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

}  // namespace leq

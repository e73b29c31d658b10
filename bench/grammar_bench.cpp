// Measures what a grammar costs per step: computing the mask of allowed tokens along documents of
// several kinds, for a real vocabulary. Usage: grammar_bench TOKENIZER [VOCABULARY]
#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "base/stopwatch.h"
#include "base/text.h"
#include "convert/tokenizer_import.h"
#include "grammar/matcher.h"

namespace {

using namespace leq;

struct Sample {
  std::string name, schema;
  std::vector<std::string> documents;
};

std::vector<Sample> samples() {
  const std::string person =
      R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
      "tags": {"type": "array", "items": {"type": "string"}}, "note": {"type": "string"}},
      "required": ["name", "age", "tags", "note"]})";
  std::string limited = person;
  limited.replace(limited.find("{\"type\": \"string\"}"), 18,
                  "{\"type\": \"string\", \"maxLength\": 60}");
  const std::vector<std::string> people = {
      R"({"name": "Ada Lovelace", "age": 36, "tags": ["mathematics", "poetry"], "note": "She wrote the first program, for an engine that was never built."})",
      R"({"name": "Grace Hopper", "age": 85, "tags": ["navy", "compilers", "nanoseconds"], "note": "A wire of 30 cm is what light passes in one of them.\nShe carried some."})"};
  return {{"object with strings", person, people},
          {"any object", R"({"type": "object"})", people},
          {"maxLength 60", limited, people}};
}

double percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

void measure(const Sample& sample, const Tokenizer& tokenizer,
             std::shared_ptr<const TokenTrie> trie) {
  const Stopwatch compiling;
  const auto grammar = Grammar::from_json_schema(sample.schema, sample.name);
  GrammarMatcher matcher(grammar, std::move(trie));
  std::cout << sample.name << ": compiled in " << fixed(compiling.seconds() * 1e3, 2) << " ms\n";
  std::vector<std::uint64_t> mask(matcher.words());
  for (std::size_t turn = 0; turn < 4; ++turn) {
    const std::string& document = sample.documents[turn % sample.documents.size()];
    std::vector<double> seconds;
    GrammarState state = matcher.start();
    for (const Token id : tokenizer.encode(document, {})) {
      const Stopwatch watch;
      matcher.allow(state, mask);
      state = matcher.after(state, id);
      seconds.push_back(watch.seconds());
      const auto at = static_cast<std::size_t>(id);
      if (state == kOutOfGrammar) std::cout << "  left the grammar at token " << at << "\n";
    }
    double sum = 0;
    for (const double one : seconds) sum += one;
    std::cout << "  document " << turn % 2 + 1 << (turn < 2 ? ", first time: " : ", again: ")
              << seconds.size() << " tokens, mean "
              << fixed(sum / static_cast<double>(seconds.size()) * 1e6, 1) << " us, median "
              << fixed(percentile(seconds, 0.5) * 1e6, 1) << " us, largest "
              << fixed(percentile(seconds, 1) * 1e6, 1) << " us\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: grammar_bench TOKENIZER [VOCABULARY]\n";
    return 1;
  }
  try {
    const Tokenizer tokenizer(import_tokenizer(argv[1]).spec);
    const std::size_t vocabulary = argc > 2 ? std::stoul(argv[2]) : tokenizer.size();
    const Stopwatch building;
    const auto trie = make_token_trie(tokenizer, vocabulary);
    std::cout << vocabulary << " tokens, tree built in " << fixed(building.seconds() * 1e3, 1)
              << " ms\n";
    for (const Sample& sample : samples()) measure(sample, tokenizer, trie);
  } catch (const std::exception& error) {
    std::cerr << "grammar_bench: " << error.what() << "\n";
    return 1;
  }
  return 0;
}

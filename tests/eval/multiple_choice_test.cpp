// Tests the rules of lm-evaluation-harness on cases computed by hand.
#include "eval/multiple_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "temporary_folder.h"

namespace leq {
namespace {

ChoiceQuestion question_of(const std::string& line) {
  return choice_question(parse_json(line, "line"), "line");
}

TEST(MultipleChoice, TheTwoNormalisationsMayDisagree) {
  const std::vector<std::string> choices = {"no", "certainly not", "yes"};
  const std::vector<double> log_likelihoods = {-6.0, -13.0, -6.5};
  EXPECT_EQ(most_likely(log_likelihoods), 0u);
  // Per character the log-likelihoods are -3, -1 and -2.1667.
  EXPECT_EQ(most_likely_by_length(log_likelihoods, choices), 1u);
}

TEST(MultipleChoice, LengthsAreCharactersAndTheFirstOfEqualsWins) {
  const std::vector<std::string> choices = {"\xC3\xA4\xC3\xB6", "ab"};  // two characters each
  EXPECT_EQ(most_likely_by_length(std::vector<double>{-2, -2}, choices), 0u);
  EXPECT_EQ(most_likely_by_length(std::vector<double>{-2.1, -2}, choices), 1u);
}

TEST(MultipleChoice, HellaSwagIsCleanedAsTheHarnessDoes) {
  const ChoiceQuestion question = question_of(
      R"({"activity_label": "Cutting", "ctx_a": "[header] How to cut [title] Take it.", "ctx_b":)"
      R"( "the Knife", "endings": ["is [step] sharp.", "b", "c", "d"], "label": "2"})");
  EXPECT_EQ(question.context, "Cutting: How to cut. Take it. The knife");
  EXPECT_EQ(question.choices[0], "is sharp.");
  EXPECT_EQ(question.answer, 2u);
}

TEST(MultipleChoice, PiqaArcMmluAndPlainForms) {
  const ChoiceQuestion piqa =
      question_of(R"({"goal": "Dry it", "sol1": "sun", "sol2": "rain", "label": 1})");
  EXPECT_EQ(piqa.context, "Question: Dry it\nAnswer:");
  EXPECT_EQ(piqa.choices, (std::vector<std::string>{"sun", "rain"}));
  EXPECT_EQ(piqa.answer, 1u);

  const ChoiceQuestion arc =
      question_of(R"({"question": "Why?", "choices": {"text": ["a", "b"], "label": ["1", "2"]},)"
                  R"( "answerKey": "2"})");
  EXPECT_EQ(arc.context, "Question: Why?\nAnswer:");
  EXPECT_EQ(arc.answer, 1u);
  const ChoiceQuestion nested =
      question_of(R"({"question": {"stem": "Why?", "choices": [{"text": "a", "label": "A"},)"
                  R"( {"text": "b", "label": "B"}]}, "answerKey": "B"})");
  EXPECT_EQ(nested.context, arc.context);
  EXPECT_EQ(nested.choices, arc.choices);

  const ChoiceQuestion mmlu =
      question_of(R"({"question": " 1+1? ", "choices": ["1", "2", "3", "4"], "answer": "B",)"
                  R"( "subject": "abstract_algebra"})");
  EXPECT_EQ(mmlu.context,
            "The following are multiple choice questions (with answers) about abstract algebra."
            "\n\n1+1?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:");
  EXPECT_EQ(mmlu.choices, (std::vector<std::string>{"A", "B", "C", "D"}));
  EXPECT_EQ(mmlu.answer, 1u);

  EXPECT_EQ(question_of(R"({"context": "x", "choices": ["a", "b"], "label": 0})").answer, 0u);
}

TEST(MultipleChoice, WhatIsNoQuestionIsToldInALine) {
  const auto error_of = [](const std::string& line) -> std::string {
    try {
      question_of(line);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of(R"({"text": "a"})").find("no form of a question"), std::string::npos);
  EXPECT_NE(error_of("[1]").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(error_of(R"({"goal": "g", "sol1": "a", "sol2": "b"})").find("label is missing"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"context": "x", "choices": ["a", "b"], "label": 2})")
                .find("expected one of 2 choices, found 2"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]},)"
                     R"( "answerKey": "E"})")
                .find("answerKey E: expected one of A, B"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"context": "x", "choices": ["a"], "label": 0})").find("two texts"),
            std::string::npos);
}

TEST(MultipleChoice, FilesNameTheLineThatIsWrong) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write(
      "set.jsonl",
      "{\"context\": \"x\", \"choices\": [\"a\", \"b\"], \"label\": 0}\n\n{\"a\": 1}\n");
  try {
    read_choice_file(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("set.jsonl: line 3: "), std::string::npos)
        << error.what();
  }
  const ChoiceTask first = read_choice_file(path, 1);
  EXPECT_EQ(first.name, "set");
  EXPECT_EQ(first.form, "plain");
  EXPECT_EQ(first.questions.size(), 1u);
  EXPECT_THROW(read_choice_file(folder.write("empty.jsonl", "\n")), Error);
}

// Every prefix of a valid file must be a shorter valid file or give an error that names a line.
TEST(MultipleChoice, TruncatedFilesAreErrorsOrShorterFiles) {
  const std::string whole =
      R"({"context": "x", "choices": ["a", "b"], "label": 0})"
      "\n"
      R"({"question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"})";
  const test::TemporaryFolder folder;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    try {
      const ChoiceTask task = read_choice_file(folder.write("s.jsonl", whole.substr(0, length)));
      EXPECT_EQ(task.questions.size(), 1u) << length;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("s.jsonl: "), std::string::npos) << error.what();
    }
  }
}

// Creates a tokenizer of single bytes that also has " b" as one token.
Tokenizer byte_tokenizer() {
  TokenizerSpec spec;
  spec.merge_order = MergeOrder::by_id;
  for (int i = 0; i < 256; ++i) spec.pieces.emplace_back(1, static_cast<char>(i));
  spec.pieces.emplace_back(" b");
  spec.types.assign(spec.pieces.size(), TokenType::normal);
  spec.bos = 1;
  spec.source = "test";
  return Tokenizer(spec);
}

TEST(MultipleChoice, TheChoiceBeginsWhereTheContextEnds) {
  const Tokenizer tokenizer = byte_tokenizer();
  const auto length = [&](const std::string& text) {
    return std::ssize(tokenizer.encode(text, {}));
  };
  // White space at the end of the context is scored with the choice.
  const ChoiceTokens tokens = choice_tokens(tokenizer, "aa  ", "b", 100);
  EXPECT_EQ(tokens.scored_from, length("aa"));
  EXPECT_EQ(std::ssize(tokens.tokens), length("aa   b"));
  // A context that is too long loses its beginning.
  const ChoiceTokens cut = choice_tokens(tokenizer, "aaaaaaaa", "c", 5);
  EXPECT_EQ(std::ssize(cut.tokens), 5);
  EXPECT_EQ(cut.scored_from, 5 - (length("aaaaaaaa c") - length("aaaaaaaa")));
  EXPECT_THROW(choice_tokens(tokenizer, "a", "cccccccc", 5), Error);
  // An empty context is replaced by BOS.
  const ChoiceTokens bare = choice_tokens(tokenizer, "", "c", 10);
  EXPECT_EQ(bare.tokens.front(), 1);
  EXPECT_EQ(bare.scored_from, 1);
}

}  // namespace
}  // namespace leq

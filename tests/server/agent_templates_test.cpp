// Conversations of Claude Code and Codex as their public sources send them, in three turns, on
// templates of models that take little of it: no turn is refused, and the prompt has every text.
#include <gtest/gtest.h>

#include "base/file.h"
#include "server/dialects.h"
#include "server/served_model.h"
#include "shared_data.h"

namespace leq::test::agents_on {
namespace {

Json text_block(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

// Words that the prompt must contain after each turn.
struct Turn {
  Json body;
  std::vector<std::string> words;
};

Json claude_tools() {
  return Json::array(
      {{{"name", "Bash"},
        {"description", "Executes a command."},
        {"input_schema",
         {{"type", "object"},
          {"properties", {{"command", {{"type", "string"}, {"description", "The command"}}}}},
          {"required", Json::array({"command"})}}}},
       {{"name", "Bare"}, {"input_schema", Json::object({{"type", "object"}})}},
       {{"type", "web_search_20250305"}, {"name", "web_search"}}});
}

std::vector<Turn> claude_code() {
  Json messages = Json::array();
  std::vector<Turn> turns;
  const auto send = [&](std::vector<std::string> words) {
    turns.push_back({{{"model", "m"},
                      {"max_tokens", 6},
                      {"system", Json::array({text_block("Word-one."), text_block("Word-two.")})},
                      {"messages", messages},
                      {"thinking", {{"type", "adaptive"}}},
                      {"tools", claude_tools()}},
                     std::move(words)});
  };
  const auto call = [](const char* id, const char* command) {
    return Json{{"type", "tool_use"},
                {"id", id},
                {"name", "Bash"},
                {"input", Json::object({{"command", command}})}};
  };
  messages.push_back({{"role", "user"}, {"content", Json::array({text_block("Word-three.")})}});
  messages.push_back({{"role", "system"}, {"content", "Word-four."}});
  send({"Word-one.", "Word-two.", "Word-three.", "Word-four.", "Executes a command."});
  messages.push_back(
      {{"role", "assistant"},
       {"content", Json::array({{{"type", "thinking"}, {"thinking", "Hm."}, {"signature", "s"}},
                                text_block("Word-five."),
                                call("toolu_01AbCdEfGhIjKlMnOpQrStUv", "word-six")})}});
  messages.push_back(
      {{"role", "user"},
       {"content",
        Json::array(
            {{{"type", "tool_result"},
              {"tool_use_id", "toolu_01AbCdEfGhIjKlMnOpQrStUv"},
              {"content",
               Json::array(
                   {text_block("Word-seven."),
                    {{"type", "image"},
                     {"source",
                      {{"type", "base64"}, {"media_type", "image/png"}, {"data", "iVBORw0KGgo="}}}},
                    {{"type", "tool_reference"}, {"tool_name", "Word-eight"}}})}},
             text_block("<system-reminder>Word-nine.</system-reminder>")})}});
  send({"Word-four.", "Word-five.", "word-six", "Word-seven.", "[image: ", "Word-eight",
        "Word-nine."});
  messages.push_back(
      {{"role", "assistant"},
       {"content", Json::array({{{"type", "server_tool_use"},
                                 {"id", "srvtoolu_1"},
                                 {"name", "web_search"},
                                 {"input", Json::object({{"query", "word-ten"}})}},
                                {{"type", "web_search_tool_result"},
                                 {"tool_use_id", "srvtoolu_1"},
                                 {"content", Json::array({{{"type", "web_search_result"},
                                                           {"title", "Word-eleven"},
                                                           {"url", "https://x.example"},
                                                           {"encrypted_content", "x"}}})}},
                                text_block("Word-twelve.")})}});
  messages.push_back({{"role", "user"}, {"content", "Word-thirteen."}});
  send({"Word-seven.", "word-ten", "Word-eleven", "Word-twelve.", "Word-thirteen."});
  return turns;
}

Json input_message(const std::string& role, const std::string& text) {
  return {{"type", "message"},
          {"role", role},
          {"content", Json::array({{{"type", "input_text"}, {"text", text}}})}};
}

std::vector<Turn> codex() {
  const Json tools = Json::array(
      {{{"type", "function"},
        {"name", "shell"},
        {"strict", false},
        {"parameters",
         {{"type", "object"},
          {"properties", {{"command", Json::object({{"type", "string"}})}}},
          {"required", Json::array({"command"})},
          {"additionalProperties", false}}}},
       {{"type", "custom"},
        {"name", "apply_patch"},
        {"description", "Word-patch."},
        {"format", {{"type", "grammar"}, {"syntax", "lark"}, {"definition", "word-lark"}}}},
       {{"type", "namespace"},
        {"name", "mcp__files__"},
        {"description", "Files."},
        {"tools", Json::array({{{"type", "function"},
                                {"name", "read"},
                                {"description", "Word-read."},
                                {"parameters", Json::object({{"type", "object"}})}}})}},
       {{"type", "web_search"}}});
  Json input = Json::array();
  std::vector<Turn> turns;
  const auto send = [&](std::vector<std::string> words) {
    turns.push_back({{{"model", "m"},
                      {"max_output_tokens", 6},
                      {"instructions", "Word-one."},
                      {"input", input},
                      {"tools", tools},
                      {"store", false},
                      {"include", Json::array({"reasoning.encrypted_content"})}},
                     std::move(words)});
  };
  input.push_back(input_message("developer", "Word-two."));
  input.push_back(input_message("user", "Word-three."));
  input.push_back(input_message("user", "Word-four."));
  send({"Word-one.", "Word-two.", "Word-three.", "Word-four.", "Word-patch.", "word-lark",
        "mcp__files__read", "Word-read."});
  input.push_back({{"type", "reasoning"}, {"summary", Json::array()}, {"content", nullptr}});
  input.push_back({{"type", "custom_tool_call"},
                   {"call_id", "call_0123456789abcdefghijklmn"},
                   {"name", "apply_patch"},
                   {"input", "word-five"}});
  input.push_back({{"type", "custom_tool_call_output"},
                   {"call_id", "call_0123456789abcdefghijklmn"},
                   {"output", "Word-six."}});
  input.push_back(input_message("developer", "Word-seven."));
  send({"Word-two.", "word-five", "Word-six.", "Word-seven."});
  input.push_back({{"type", "function_call"},
                   {"call_id", "call_2"},
                   {"namespace", "mcp__files__"},
                   {"name", "read"},
                   {"arguments", "{\"path\": \"word-eight\"}"}});
  input.push_back(
      {{"type", "function_call_output"},
       {"call_id", "call_2"},
       {"output", Json::array({{{"type", "input_text"}, {"text", "Word-nine."}},
                               {{"type", "input_image"},
                                {"image_url", "data:image/png;base64,iVBORw0KGgo="}}})}});
  input.push_back(input_message("user", "Word-ten."));
  send({"Word-seven.", "word-eight", "Word-nine.", "[input_image: ", "Word-ten."});
  return turns;
}

class AgentsOn : public testing::TestWithParam<const char*> {};

TEST_P(AgentsOn, EveryTurnIsAnsweredAndLosesNoText) {
  LEQ_SHARED_OR_SKIP(folder, "data/chat/templates");
  const std::string jinja = read_file(folder / GetParam(), 1 << 20);
  ApiModel model = {.tokenizer = story_model().tokenizer()};
  model.vocabulary = model.tokenizer.size();
  model.chat = std::make_shared<const ChatTemplate>(ChatTemplate::of_model(jinja, "template"));
  model.rendering = chat_options(model.tokenizer);
  set_style(model, jinja);
  const bool is_mistral = jinja.find("[TOOL_CALLS]") != std::string::npos;
  const auto expect_words = [&](const ForeignChat& chat, const Turn& turn) {
    EXPECT_FALSE(chat.notes.empty());  // of web_search at least
    const GenerationCall call = read_generation_call(CallStyle::chat, chat.body, model);
    const bool loses = std::ranges::any_of(call.notes, [](const std::string& note) {
      return note.find("shows no text of the model beside a call") != std::string::npos;
    });
    EXPECT_EQ(loses && !is_mistral, false);
    for (const std::string& word : turn.words) {
      if (loses && word == "Word-five.") continue;  // beside a call; a warning reports it
      EXPECT_NE(call.prompt_texts[0].find(word), std::string::npos)
          << word << " in " << call.prompt_texts[0];
    }
    EXPECT_NE(call.grammar, nullptr);
  };
  for (const Turn& turn : claude_code()) expect_words(chat_of_messages(turn.body), turn);
  for (const Turn& turn : codex()) expect_words(chat_of_responses(turn.body), turn);
}

INSTANTIATE_TEST_SUITE_P(Templates, AgentsOn,
                         testing::Values("Qwen3.5-4B.jinja",
                                         "mistralai-Mistral-Nemo-Instruct-2407.jinja",
                                         "Mistral-Small-3.2-24B-Instruct-2506.jinja",
                                         "openai-gpt-oss-120b.jinja",
                                         "NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja",
                                         "google-gemma-2-2b-it.jinja"),
                         [](const auto& one) { return std::to_string(one.index); });

}  // namespace
}  // namespace leq::test::agents_on

#include "server/generation_call.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "chat/reply.h"
#include "server/api_fields.h"
#include "server/call_format.h"
#include "server/call_settings.h"

namespace leq {
namespace {

std::optional<Token> token_id(JsonNode node, const ApiModel& model) {
  const auto id = node.is_number() ? node.whole() : std::nullopt;
  if (!id || *id < 0 || static_cast<std::size_t>(*id) >= model.vocabulary) return std::nullopt;
  return static_cast<Token>(*id);
}

// Reads one prompt: a text, or a list of ids and texts.
std::vector<Token> read_prompt(JsonNode node, std::string_view name, const ApiModel& model,
                               bool with_bos) {
  const bool bos = with_bos && model.tokenizer.add_bos();
  if (node.is_string()) return model.tokenizer.encode(node.text(), {.add_bos = bos});
  std::vector<Token> tokens;
  for (const JsonNode one : node) {
    if (const auto id = token_id(one, model)) {
      tokens.push_back(*id);
    } else if (one.is_string()) {
      const auto more = model.tokenizer.encode(one.text(), {.add_bos = bos && tokens.empty()});
      tokens.insert(tokens.end(), more.begin(), more.end());
    } else {
      field_error(name, "texts and ids below " + std::to_string(model.vocabulary), one);
    }
  }
  return tokens;
}

void read_chat(JsonNode body, const AnswerFormat& format, const ApiModel& model,
               GenerationCall& call) {
  const std::vector<TextPart> parts = render_chat(body, model);
  call.prompts.push_back(model.tokenizer.encode_parts(parts));
  call.prompt_texts.push_back(joined(parts));
  model.chat->add_stops(model.tokenizer, call.stop);
  set_chat_grammar(body, format, read_tool_choice(body), model, call);
  const ThinkingSettings thinking = read_thinking(body, model);
  if (thinking.tokens < 0) return;
  auto budget = reasoning_budget(model.style, call.prompt_texts.front(), model.tokenizer,
                                 thinking.tokens > 0 ? model.reasoning_words : std::string());
  if (budget == nullptr) return;
  budget->tokens = thinking.tokens;
  budget->vocabulary = model.vocabulary;
  call.reasoning = std::move(budget);
}

}  // namespace

std::vector<std::vector<Token>> read_prompts(JsonNode body, std::string_view name,
                                             const ApiModel& model, bool with_bos,
                                             std::size_t most) {
  const JsonNode found = given_field(body, name);
  constexpr std::string_view kExpected = "a text, an array of ids, or an array of these";
  if (!found || (!found.is_string() && !found.is_array()) ||
      found.size() > static_cast<std::size_t>(kMostTokensRequested)) {
    field_error(name, kExpected, found);
  }
  if (found.is_array() && found.size() == 0) field_error(name, kExpected, found);
  bool is_list = false, has_ids = false;
  for (const JsonNode one : found) {
    is_list |= one.is_array();
    has_ids |= one.is_number();
  }
  // An array of texts is several prompts; an array that contains ids is a single prompt.
  if (found.is_string() || has_ids) return {read_prompt(found, name, model, with_bos)};
  if (found.size() > most) {
    field_error(name, "at most " + std::to_string(most) + " prompts, found " +
                          std::to_string(found.size()));
  }
  std::vector<std::vector<Token>> prompts;
  for (const JsonNode one : found) {
    if (!one.is_string() && !one.is_array()) field_error(name, kExpected, one);
    prompts.push_back(read_prompt(one, name, model, with_bos));
  }
  return prompts;
}

GenerationCall read_generation_call(CallStyle style, JsonNode body, const ApiModel& model) {
  require(body.is_object(), ErrorKind::bad_input, "the request body: expected a JSON object");
  GenerationCall call;
  call.style = style;
  call.sampling = read_sampling(body, model, call.has_seed);
  call.stop = read_stop(body, model);
  refuse_members(style, body);
  const AnswerFormat format = read_answer_format(body);
  call.top_logprobs = read_logprobs(style, body, model);
  call.stream = flag_field(body, "stream");
  const JsonNode options = object_field(body, "stream_options");
  call.include_usage = flag_field(options, "include_usage");
  const auto choices = whole_field(body, "n", 1, model.most_choices);
  call.choices = static_cast<std::uint32_t>(choices.value_or(1));
  if (flag_field(body, "ignore_eos")) call.banned = call.stop.end_tokens;
  call.return_tokens = flag_field(body, "return_tokens");
  const auto slot = whole_field(body, "id_slot", -1, model.slots - 1);
  if (slot && *slot >= 0) call.slot = static_cast<std::size_t>(*slot);
  if (is_chat(style)) {
    read_chat(body, format, model, call);
    return call;
  }
  set_text_grammar(format, model, call);
  call.prompts = read_prompts(body, "prompt", model, true);
  call.echo = flag_field(body, "echo");
  return call;
}

}  // namespace leq

// Any bytes as the body of a request: it is parsed or gives an Error. The first byte of an input
// selects the path and the model's style of tool calls.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "fuzz/seeded.h"
#include "server/dialects.h"
#include "tokenizer/small_specs.h"

namespace {

std::vector<std::string> examples() {
  return {
      std::string(1, '\0') +
          R"({"messages":[{"role":"user","content":"a"}],"temperature":0.5,"n":2,"stop":["x"],)"
          R"("logit_bias":{"1":-1},"logprobs":true,"top_logprobs":2,"stream":true,"seed":-1,)"
          R"("stream_options":{"include_usage":true}})",
      std::string(1, '\0') +
          R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"tool_choice":)"
          R"("required","tools":[{"type":"function","function":{"name":"f","parameters":{"type":)"
          R"("object","properties":{"a":{"type":"integer"}}}}}]})",
      "\x05"
      R"({"messages":[{"role":"user","content":"a"}],"parallel_tool_calls":false,"tools":[{"type":)"
      R"("function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":)"
      R"({"a":{"enum":["x",1]},"b":{"$ref":"#/$defs/c"}},"required":["a"],"$defs":{"c":{"type":)"
      R"("string"}}}}},{"function":{"name":"g"}}]})",
      "\x01"
      R"({"prompt":["a",[1,2]],"max_tokens":3,"echo":true,"logprobs":null})",
      "\x02"
      R"({"prompt":[1,"a"],"n_predict":3,"json_schema":{"type":"object"},"n_probs":1})",
      "\x01"
      R"({"prompt":"a","response_format":{"type":"json_schema","json_schema":{"schema":{}}}})",
      "\x08"
      R"({"instructions":"a","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},)"
      R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"reasoning",)"
      R"("summary":[]},{"type":"function_call_output","call_id":"c","output":"x"}],"tools":[{"type":)"
      R"("function","name":"f","parameters":{}},{"type":"web_search"}],"tool_choice":{"type":"function",)"
      R"("name":"f"},"reasoning":{"effort":"low"},"text":{"format":{"type":"json_object"}}})",
      "\x09"
      R"({"system":[{"type":"text","text":"a"}],"messages":[{"role":"user","content":"a"},{"role":)"
      R"("assistant","content":[{"type":"thinking","thinking":"t"},{"type":"tool_use","id":"i","name":"f",)"
      R"("input":{"a":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":)"
      R"([{"type":"text","text":"x"}]}]}],"tools":[{"name":"f","input_schema":{"type":"object",)"
      R"("patternProperties":{"a":{}},"minProperties":1}}],"tool_choice":{"type":"any"},"thinking":)"
      R"({"type":"enabled","budget_tokens":3},"stop_sequences":["x"],"max_tokens":3})",
  };
}

struct World {
  leq::Tokenizer tokenizer{leq::test::small_specs().front()};
  leq::ApiModel model = {.tokenizer = tokenizer};

  World() {
    model.vocabulary = tokenizer.size();
    model.chat = std::make_shared<const leq::ChatTemplate>(leq::ChatTemplate::of_model(
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{{ tools }}",
        "fuzz"));
    model.rendering = leq::chat_options(tokenizer);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const World world;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    const leq::Json tree = leq::parse_json(text, "fuzz", leq::kBodyLimits);
    const auto style = static_cast<leq::CallStyle>(data[0] % 7);
    leq::ApiModel model = world.model;
    model.style = {static_cast<leq::ToolCallStyle>(data[0] / 7 % 6), "<think>", "</think>"};
    const leq::ForeignChat foreign = leq::foreign_chat(style, tree);
    const leq::JsonNode body = foreign.body.is_null() ? tree : foreign.body;
    const leq::GenerationCall call = leq::read_generation_call(style, body, model);
    if (call.prompts.empty() || call.choices == 0) std::abort();
    for (const auto& prompt : call.prompts) {
      for (const leq::Token id : prompt) {
        if (id < 0 || static_cast<std::size_t>(id) >= world.model.vocabulary) std::abort();
      }
    }
  } catch (const leq::Error&) {
  }
  return 0;
}

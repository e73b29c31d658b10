#include "server/call_format.h"

#include <utility>

#include "base/error.h"
#include "chat/reply.h"
#include "chat/tool_grammar.h"
#include "server/api_fields.h"

namespace leq {
namespace {

using Kind = AnswerFormat::Kind;

void set_grammar(const ApiModel& model, GenerationCall& call, const std::string& key,
                 const GrammarStore::Compile& compile) {
  CompiledGrammar made = model.grammars == nullptr ? compile() : model.grammars->get(key, compile);
  call.grammar = std::move(made.grammar);
  call.notes.insert(call.notes.end(), made.notes.begin(), made.notes.end());
}

// The part of a grammar's cache key that does not depend on its schemas.
std::string key_of(std::string_view kind, ReasoningState thinking, bool flag) {
  return std::string(kind) + (flag ? " one " : " any ") +
         std::to_string(static_cast<int>(thinking)) + " ";
}

std::string schema_text(const AnswerFormat& format) {
  return std::string(format.member) + (format.strict ? " strict " : " ") +
         (format.schema ? format.schema.dump() : "object");
}

void set_gbnf(const AnswerFormat& format, const ApiModel& model, GenerationCall& call) {
  set_grammar(model, call, "gbnf " + format.gbnf, [&]() -> CompiledGrammar {
    return {Grammar::from_gbnf(format.gbnf, marked_field("grammar"))};
  });
}

// Shows only the special tokens of reasoning; text that looks like a tool call is content.
void show_reasoning(const ApiModel& model, GenerationCall& call) {
  ReplyStyle style = model.style;
  style.tools = ToolCallStyle::none;
  call.shown = shown_tokens(style, model.tokenizer);
}

class ChatGrammar {
 public:
  ChatGrammar(JsonNode body, const AnswerFormat& format, const ApiModel& model,
              GenerationCall& call)
      : tools_(given_field(body, "tools")),
        member_(marked_field(format.member.empty() ? "response_format" : format.member)),
        answer_{format.schema, member_, format.strict},
        format_(format),
        model_(model),
        call_(call),
        prompt_(call.prompt_texts.front()),
        thinking_(reasoning_after(model.style, prompt_)) {
    const JsonNode several = given_field(body, "parallel_tool_calls");
    if (several && !flag_field(body, "parallel_tool_calls")) count_ = CallCount::one;
  }

  void force(const std::string& only) {
    const std::string key = key_of("forced", thinking_, false) + only + ' ' + tools_.dump();
    compile(key, [&](SchemaNotes* notes) {
      return forced_call_grammar(model_.style, tools_, only, prompt_, tools_member_, notes);
    });
    show_reasoning(model_, call_);
    call_.use = ReplyUse::forced;
  }
  void call_or_answer() {
    if (model_.style.tools == ToolCallStyle::none) {
      field_error(format_.member,
                  "how this model's template writes calls is not known, so tools and a format "
                  "exclude each other: leave one out");
    }
    const std::string key = key_of("call or answer", thinking_, count_ == CallCount::one) +
                            schema_text(format_) + ' ' + tools_.dump();
    compile(key, [&](SchemaNotes* notes) {
      return call_or_answer_grammar(model_.style, tools_, answer_, prompt_, count_, tools_member_,
                                    notes);
    });
    call_.shown = shown_tokens(model_.style, model_.tokenizer);
  }
  void answer() {
    const std::string key = key_of("answer", thinking_, false) + schema_text(format_);
    compile(key, [&](SchemaNotes* notes) {
      return answer_grammar(model_.style, answer_, prompt_, notes);
    });
    if (thinking_ == ReasoningState::none) {
      call_.use = ReplyUse::plain;
    } else {
      show_reasoning(model_, call_);
    }
  }
  // Allows any text before a tool call, in addition to calls.
  void free() {
    call_.shown = shown_tokens(model_.style, model_.tokenizer);
    const std::string key = key_of("calls", thinking_, count_ == CallCount::one) + tools_.dump();
    compile(key, [&](SchemaNotes* notes) {
      return tool_grammar(model_.style, tools_, prompt_, count_, tools_member_, notes);
    });
  }

 private:
  template <class Make>
  void compile(const std::string& key, const Make& make) {
    set_grammar(model_, call_, key, [&] {
      CompiledGrammar made;
      made.grammar = make(&made.notes);
      return made;
    });
  }

  JsonNode tools_;
  std::string member_;
  std::string tools_member_ = marked_field("tools");
  AnswerSchema answer_;
  const AnswerFormat& format_;
  const ApiModel& model_;
  GenerationCall& call_;
  const std::string& prompt_;
  ReasoningState thinking_;
  CallCount count_ = CallCount::any;
};

// Reads the schema from "response_format" or from the member of it that contains the schema.
AnswerFormat schema_format(JsonNode format, JsonNode holder, std::string_view member) {
  const JsonNode strict = given_field(holder, "strict");
  AnswerFormat read = {.kind = Kind::schema, .member = member};
  read.schema = given_field(holder, "schema");
  read.strict = strict && flag_field(holder, "strict");
  if (!read.schema) field_error(member, "a json_schema with a schema", format);
  return read;
}

}  // namespace

AnswerFormat read_answer_format(JsonNode body) {
  if (const JsonNode schema = given_field(body, "json_schema")) {
    return {.kind = Kind::schema, .member = "json_schema", .schema = schema};
  }
  if (auto gbnf = text_field(body, "grammar"); gbnf && !gbnf->empty()) {
    return {.kind = Kind::gbnf, .member = "grammar", .gbnf = std::move(*gbnf)};
  }
  constexpr std::string_view kMember = "response_format";
  const JsonNode format = object_field(body, kMember);
  if (!format) return {};
  const std::string type = text_field(format, "type").value_or("");
  if (type == "text") return {};
  if (type == "json_object") {
    const JsonNode schema = object_field(format, "schema");
    return schema ? AnswerFormat{.kind = Kind::schema, .member = kMember, .schema = schema}
                  : AnswerFormat{.kind = Kind::object, .member = kMember};
  }
  if (type != "json_schema") {
    field_error(kMember, "the type text, json_object or json_schema", format);
  }
  const JsonNode named = object_field(format, "json_schema");
  return schema_format(format, named ? named : format, kMember);
}

void set_text_grammar(const AnswerFormat& format, const ApiModel& model, GenerationCall& call) {
  if (format.kind == Kind::any) return;
  if (format.kind == Kind::gbnf) return set_gbnf(format, model, call);
  const std::string member = marked_field(format.member);
  set_grammar(model, call, key_of("text", ReasoningState::none, false) + schema_text(format), [&] {
    CompiledGrammar made;
    made.grammar = answer_grammar({}, {format.schema, member, format.strict}, "", &made.notes);
    return made;
  });
}

void set_chat_grammar(JsonNode body, const AnswerFormat& format, const ToolChoice& choice,
                      const ApiModel& model, GenerationCall& call) {
  const bool formatted = format.kind != Kind::any;
  call.use = ReplyUse::read;
  call.with_tools = choice.use != ToolChoice::Use::none;
  if (call.with_tools) call.tools = body.find("tools");
  ChatGrammar grammar(body, format, model, call);
  if (choice.use == ToolChoice::Use::forced) {
    if (formatted) field_error(format.member, "contradicts tool_choice: leave one out");
    return grammar.force(choice.only);
  }
  if (format.kind == Kind::gbnf) {
    if (call.with_tools) field_error("grammar", "contradicts tools: leave one out");
    set_gbnf(format, model, call);
    call.use = ReplyUse::plain;
  } else if (formatted && call.with_tools) {
    grammar.call_or_answer();
  } else if (formatted) {
    grammar.answer();
  } else if (call.with_tools) {
    grammar.free();
  }
}

}  // namespace leq

#include "chat/tool_grammar.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "chat/reply.h"
#include "grammar/json_schema.h"
#include "grammar/watch.h"

namespace leq {
namespace {

using Expr = GrammarBuilder::Expr;
constexpr std::int64_t kNoLimit = GrammarBuilder::kNoLimit;

struct Tool {
  std::string name;
  JsonNode schema = {};     // schema of its arguments; nothing: any object
  std::string source = {};  // used in errors
  std::string prefix = {};  // prefix of its rules' names
};

// Whether the schema allows only objects, which arguments must be.
bool is_of_objects(JsonNode schema) {
  for (const char* keyword : {"type", "properties", "required", "additionalProperties", "$ref",
                              "anyOf", "oneOf", "allOf", "patternProperties"}) {
    if (schema.find(keyword)) return true;
  }
  return false;
}

Tool read_tool(JsonNode node, std::size_t index, const CallRules& rules, SchemaNotes* notes) {
  const JsonNode function = node.find("function");
  Tool tool = {function.find("name").text()};
  tool.source = std::string(rules.source) + ": " + printable(tool.name);
  tool.prefix = "tool " + std::to_string(index) + " ";
  const JsonNode parameters = function.find("parameters");
  static const Json no_arguments =
      parse_json(R"({"type":"object","additionalProperties":false})", "no arguments");
  if (!parameters || parameters.is_null()) tool.schema = no_arguments;
  if (!parameters.is_object() || !is_of_objects(parameters)) return tool;
  tool.schema = parameters;
  const bool strict = is_flag(function.find("strict"), true);
  SchemaNotes own;
  try {
    const JsonNode type = tool.schema.find("type");
    require(!type || (type.is_string() && type.text() == "object"), tool.source,
            ": expected 'parameters' of the type object");
    (void)Grammar::from_json_schema(tool.schema, tool.source, strict ? nullptr : &own,
                                    rules.stopped);
  } catch (const Error& error) {
    if (strict || error.kind() == ErrorKind::interrupted) throw;
    own = {std::string(error.marked()) + "; any object is accepted as its arguments"};
    tool.schema = {};
  }
  if (notes != nullptr) notes->insert(notes->end(), own.begin(), own.end());
  return tool;
}

Expr answer_value(GrammarBuilder& builder, JsonParts& parts, const AnswerSchema& answer,
                  const std::string& prefix, SchemaNotes* notes) {
  if (!answer.schema) return parts.object();
  return builder.call(add_schema(
      builder, parts, {answer.schema, answer.source, prefix, answer.strict ? nullptr : notes}));
}

Expr blanks(GrammarBuilder& b) {
  constexpr std::int64_t kMaxBlanks = 8;  // around marks
  return b.repeat(b.chars({{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}}), 0, kMaxBlanks);
}

// The answer with the header of its message, which the prompt may have written.
Expr answer_message(GrammarBuilder& builder, const ReplyStyle& style, std::string_view prompt,
                    Expr answer) {
  if (!style.channels || reasoning_after(style, prompt) == ReasoningState::none) return answer;
  const Expr kind = builder.optional(builder.text(" <|constrain|>json"));
  return builder.sequence(
      {builder.text("<|channel|>final"), kind, builder.text(kHarmonyMessage), answer});
}

// The answer, preceded by optional reasoning of any length if the style has reasoning.
Expr after_reasoning(GrammarBuilder& builder, const ReplyStyle& style, std::string_view prompt,
                     Expr answer) {
  const ReasoningState thinking = reasoning_after(style, prompt);
  if (thinking == ReasoningState::none) return answer;
  const WatchMode free = {.anywhere = {{style.think_end, {}, 1}}};
  const Expr reasoning = watched_text(builder, {free, {.closed = true}}, 0, WatchEnd::closed);
  if (style.channels) {
    // Any number of reasoning's messages.
    const std::int32_t turn = builder.rule("turn");
    const Expr again =
        builder.sequence({reasoning, builder.text(kHarmonyRole), builder.call(turn)});
    builder.define(
        turn, builder.choice({answer, builder.sequence({builder.text(style.think_begin), again})}));
    return thinking == ReasoningState::begun ? again : builder.call(turn);
  }
  // The answer is a rule of its own, so that the grammar contains it only once.
  const std::int32_t rule = builder.rule("answer");
  builder.define(rule, answer);
  const Expr rest = builder.sequence({reasoning, blanks(builder), builder.call(rule)});
  if (thinking == ReasoningState::begun) return rest;
  return builder.choice(
      {builder.call(rule),
       builder.sequence({blanks(builder), builder.text(style.think_begin), rest})});
}

class CallGrammar {
 public:
  CallGrammar(const ReplyStyle& style, const CallRules& rules, SchemaNotes* notes)
      : style_(style),
        count_(rules.count),
        builder_(rules.source, rules.stopped),
        parts_(builder_) {
    for (const JsonNode node : rules.tools) {
      Tool tool = read_tool(node, tools_.size(), rules, notes);
      const bool may_be_called =
          rules.only.empty() || std::ranges::find(rules.only, tool.name) != rules.only.end();
      if (may_be_called) tools_.push_back(std::move(tool));
    }
  }

  // Optional reasoning, followed by calls, or by an answer if there is one.
  std::shared_ptr<const Grammar> make_calls(const AnswerSchema* answer, std::string_view prompt,
                                            SchemaNotes* notes) {
    open_ = answer != nullptr;  // a call that is forced keeps to what its schema names
    std::vector<WatchMode> modes(kModes);
    add_marks(modes);
    std::vector<Expr> calls;
    for (const auto* marks : {&modes[kAnswer].anywhere, &modes[kAnswer].at_start}) {
      for (const WatchMark& mark : *marks) {
        // after_reasoning writes <|start|>assistant.
        if (mark.text.starts_with(kHarmonyStart)) continue;
        if (mark.rule) calls.push_back(marked_call(mark));  // excludes llama3's tag of programs
      }
    }
    const Expr call = builder_.call(define("any call", builder_.choice(std::move(calls))));
    // Llama3's calls begin like JSON answers. One call is the limit: no text is both call and
    // answer.
    const bool one = count_ == CallCount::one || style_.tools == ToolCallStyle::llama3 ||
                     style_.tools == ToolCallStyle::harmony;
    const Expr more =
        builder_.repeat(builder_.sequence({blanks(builder_), call}), 0, one ? 0 : kNoLimit);
    std::vector<Expr> ways = {builder_.sequence({call, more})};
    if (answer != nullptr) {
      ways.push_back(answer_message(builder_, style_, prompt,
                                    answer_value(builder_, parts_, *answer, "answer ", notes)));
    }
    return finish(after_reasoning(builder_, style_, prompt, builder_.choice(std::move(ways))));
  }

  std::shared_ptr<const Grammar> make(bool in_reasoning) {
    std::vector<WatchMode> modes(kModes);
    add_marks(modes);
    modes[kEnd].closed = true;
    std::size_t first = kAnswer;
    if (!style_.think_begin.empty()) {
      first = in_reasoning ? kReasoning : kStart;
      modes[kReasoning].anywhere = {{style_.think_end, {}, kAnswer}};
      for (const std::string_view mark : marks_in_reasoning(style_)) {
        modes[kReasoning].anywhere.push_back(
            {std::string(mark), opened_call(modes[kAnswer]), next(kAnswer)});
      }
      modes[kStart] = modes[kAnswer];
      modes[kStart].at_start.push_back(
          {std::string(1, kAnyBlanks) + style_.think_begin, {}, kReasoning});
    }
    return finish(watched_text(builder_, modes, first, WatchEnd::anywhere));
  }

 private:
  // The phases of a reply. The answer is all text that is not reasoning; in some styles a call can
  // occur only at its beginning or after another call.
  enum Mode : std::size_t { kStart, kReasoning, kAnswer, kBetween, kPythonTag, kEnd, kModes };

  std::shared_ptr<const Grammar> finish(Expr reply) {
    const std::int32_t root = builder_.rule("reply");
    builder_.define(root, reply);
    return builder_.finish(root);
  }
  std::int32_t define(std::string_view name, Expr expression) {
    const std::int32_t rule = builder_.rule(name);
    builder_.define(rule, expression);
    return rule;
  }
  // The mode after a call.
  std::size_t next(std::size_t mode) const {
    return count_ == CallCount::one || style_.channels ? kEnd : mode;
  }

  Expr text(std::string_view bytes) { return builder_.text(bytes); }
  Expr space() { return parts_.space(); }
  Expr key(std::string_view name) {
    return builder_.sequence({text("\"" + std::string(name) + "\":"), space()});
  }
  template <class Make>
  Expr any_tool(const Make& make) {
    std::vector<Expr> ways;
    for (const Tool& tool : tools_) ways.push_back(make(tool));
    return builder_.choice(std::move(ways));
  }

  void add_marks(std::vector<WatchMode>& modes) {
    WatchMode& answer = modes[kAnswer];
    const auto mark = [&](std::string_view text, Expr rest) {
      answer.anywhere.push_back(
          {std::string(text), define("call " + std::string(text), rest), next(kAnswer)});
    };
    switch (style_.tools) {
      case ToolCallStyle::none:
        break;
      case ToolCallStyle::hermes:
        return mark(kHermesCall, builder_.sequence({space(), json_call(builder_.nothing()), space(),
                                                    text(kHermesCallEnd)}));
      case ToolCallStyle::xml: {
        // The text after <function=.
        const Expr call = builder_.call(define("function", any_tool([&](const Tool& tool) {
                                                 return builder_.sequence(
                                                     {text(tool.name), text(">"), parameters(tool),
                                                      space(), text(kFunctionEnd)});
                                               })));
        mark(kHermesCall,
             builder_.sequence({space(), text(kFunction), call, space(), text(kHermesCallEnd)}));
        return mark(kFunction, call);
      }
      case ToolCallStyle::mistral:
        return mark(kMistralCalls, mistral_calls());
      case ToolCallStyle::deepseek:
        return mark(kDeepSeekCalls, deepseek_calls());
      case ToolCallStyle::gemma:
        return mark(kGemmaCall, gemma_call());
      case ToolCallStyle::harmony: {
        const std::int32_t call = define("addressed call", harmony_call());
        // Recipients come before the channel or after it; the prompt has begun the first header.
        answer.at_start = {{" to=functions.", call, kEnd}};
        answer.anywhere = {{"<|channel|>commentary to=functions.", call, kEnd},
                           {"<|start|>assistant to=functions.", call, kEnd}};
        return;
      }
      case ToolCallStyle::llama3:
        answer.anywhere = {{std::string(kPythonCall), {}, kPythonTag}};
        for (const Mode mode : {kAnswer, kBetween, kPythonTag}) add_llama_heads(modes[mode]);
        // Calls are separated by a semicolon; any other text is content.
        modes[kBetween].anywhere = answer.anywhere;
        modes[kBetween].at_start.push_back({std::string(1, kAnyBlanks) + ";", {}, kBetween});
        return;
    }
  }

  // The rule of the text after a mark of a call in reasoning.
  std::int32_t opened_call(const WatchMode& answer) {
    constexpr std::string_view kName = "call in reasoning";
    const std::int32_t known = builder_.rule(kName);
    if (builder_.is_defined(known)) return known;
    Expr rest = builder_.call(*answer.anywhere.back().rule);  // in xml: after <function=
    if (style_.tools == ToolCallStyle::hermes) rest = json_call(builder_.nothing(), true);
    const bool has_end =
        style_.tools == ToolCallStyle::hermes || style_.tools == ToolCallStyle::xml;
    if (has_end) rest = builder_.sequence({rest, space(), text(kHermesCallEnd)});
    return define(kName, rest);
  }

  Expr arguments(const Tool& tool) {
    if (!tool.schema) return parts_.object();
    const std::int32_t known = builder_.rule(tool.prefix + "arguments");
    if (!builder_.is_defined(known)) {
      builder_.define(
          known,
          builder_.call(add_schema(
              builder_, parts_, {tool.schema, tool.source, tool.prefix, &reported_, true, open_})));
    }
    return builder_.call(known);
  }

  // Any text up to the mark, and the mark.
  Expr until(std::string_view mark) {
    const WatchMode free = {.anywhere = {{std::string(mark), {}, 1}}};
    return watched_text(builder_, {free, {.closed = true}}, 0, WatchEnd::closed);
  }

  // The text {"name": ..., "arguments": {...}}, with `rest` after the arguments. `opened`: without
  // its first bracket.
  Expr json_call(Expr rest, bool opened = false) {
    return any_tool([&](const Tool& tool) {
      return builder_.sequence({text(opened ? "" : "{"), space(), key("name"), text("\""),
                                parts_.written(tool.name), text("\","), space(), key("arguments"),
                                arguments(tool), rest, space(), text("}")});
    });
  }

  // The texts [{...}, ...], each with an optional id; or NAME[ARGS]{...}, with an optional id.
  Expr mistral_calls() {
    GrammarBuilder& b = builder_;
    const Expr id = b.repeat(b.chars({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}), 1, 64);
    const Expr with_id =
        b.optional(b.sequence({text(","), space(), key("id"), text("\""), id, text("\"")}));
    const Expr one = b.call(define("listed call", json_call(with_id)));
    const Expr more =
        b.repeat(b.sequence({text(","), space(), one}), 0, count_ == CallCount::one ? 0 : kNoLimit);
    const Expr named = any_tool([&](const Tool& tool) {
      const Expr call_id = b.optional(b.sequence({text(kCallId), id}));
      return b.sequence({text(tool.name), call_id, text(kArgs), space(), arguments(tool)});
    });
    return b.sequence(
        {space(),
         b.choice({b.sequence({text("["), space(), one, more, space(), text("]")}), named})});
  }

  // NAME and arguments; or "function", then the name on a line and the arguments in a JSON block.
  Expr deepseek_calls() {
    GrammarBuilder& b = builder_;
    const Expr call = any_tool([&](const Tool& tool) {
      const Expr block = b.sequence({text("function"), text(kDeepSeekSep), text(tool.name),
                                     text("\n```json\n"), arguments(tool), text("\n```")});
      const Expr plain = b.sequence({text(tool.name), text(kDeepSeekSep), arguments(tool)});
      return b.choice({block, plain});
    });
    const Expr whole = b.sequence({text(kDeepSeekCall), call, text(kDeepSeekCallEnd), space()});
    return b.sequence({space(), b.repeat(whole, 1, count_ == CallCount::one ? 1 : kNoLimit),
                       text(kDeepSeekCallsEnd)});
  }

  // The text after the recipient's prefix: NAME, the rest of the header, and the arguments.
  Expr harmony_call() {
    GrammarBuilder& b = builder_;
    const Expr rest = b.choice({text("<|channel|>commentary json"),
                                text("<|channel|>commentary <|constrain|>json"),
                                text(" <|constrain|>json"), text(" json"), b.nothing()});
    const Expr header = b.sequence({rest, text(kHarmonyMessage)});
    return any_tool([&](const Tool& tool) {
      return b.sequence({text(tool.name), header, arguments(tool)});
    });
  }

  // Pairs KEY:VALUE in any order. Of texts, and of lists and objects that may hold them, only the
  // kind is enforced.
  Expr gemma_call() {
    GrammarBuilder& b = builder_;
    const Expr call = any_tool([&](const Tool& tool) {
      return b.sequence({text(tool.name), text("{"), parameters(tool), text("}")});
    });
    return b.sequence({text(kGemmaName), call, text(kGemmaCallEnd)});
  }

  Expr gemma_text() {
    const std::int32_t rest = builder_.rule("rest of a text");
    if (!builder_.is_defined(rest)) builder_.define(rest, until(kGemmaQuote));
    return builder_.sequence({text(kGemmaQuote), builder_.call(rest)});
  }

  Expr gemma_name(const std::vector<std::string_view>& taken) {
    const Expr name = parts_.name_but(
        taken, inverted({{' ', ' '}, {',', ','}, {':', '<'}, {'[', ']'}, {'{', '}'}}));
    return builder_.sequence({name, text(":")});
  }

  Expr gemma_value() {
    GrammarBuilder& b = builder_;
    const std::int32_t value = b.rule("any value");
    if (b.is_defined(value)) return b.call(value);
    const auto list = [&](std::string_view begin, Expr one, std::string_view end) {
      const Expr more = b.repeat(b.sequence({text(","), one}), 0, kNoLimit);
      return b.sequence({text(begin), b.optional(b.sequence({one, more})), text(end)});
    };
    b.define(value, b.choice({gemma_text(), parts_.number(), parts_.boolean(), parts_.null(),
                              list("[", b.call(value), "]"),
                              list("{", b.sequence({gemma_name({}), b.call(value)}), "}")}));
    return b.call(value);
  }

  Expr gemma_parameter(JsonNode property, std::int32_t rule) {
    const auto is = [](JsonNode schema, std::string_view type) {
      const JsonNode found = schema.find("type");
      return found.is_string() && found.text() == type;
    };
    const auto plain = [&](JsonNode schema) {  // JSON and Gemma write such values alike
      return is(schema, "integer") || is(schema, "number") || is(schema, "boolean");
    };
    const JsonNode list = property.find("enum");
    Expr value = 0;
    if (list.size() > 0) {
      std::vector<Expr> ways;
      for (const JsonNode one : list) {
        ways.push_back(!one.is_string() ? text(one.dump())
                                        : text(std::string(kGemmaQuote) + one.text() +
                                               std::string(kGemmaQuote)));
      }
      value = builder_.choice(std::move(ways));
    } else if (is(property, "string")) {
      value = gemma_text();
    } else if (plain(property) || (is(property, "array") && plain(property.find("items")))) {
      value = builder_.call(rule);
    } else {
      value = gemma_value();
    }
    return builder_.sequence({text(property.key()), text(":"), value});
  }

  // Parameters in any order. Other restrictions of strings are not enforced.
  Expr parameters(const Tool& tool) {
    GrammarBuilder& b = builder_;
    const bool is_gemma = style_.tools == ToolCallStyle::gemma;
    const JsonNode properties = tool.schema.find("properties");
    std::vector<SchemaPlace> places;
    std::vector<std::string_view> names;
    for (const JsonNode p : properties) {
      places.push_back(
          {p, "#/properties/" + replace_all(replace_all(p.key(), "~", "~0"), "/", "~1")});
      names.push_back(p.key());
    }
    std::vector<std::int32_t> rules;
    if (!places.empty()) {
      rules = add_schema(b, parts_,
                         {tool.schema, tool.source, tool.prefix, &reported_, true, open_}, places);
    }
    Grammar::Set set;
    for (std::size_t i = 0; i < places.size(); ++i) {
      bool required = false;
      for (const JsonNode r : tool.schema.find("required")) {
        required = required || (r.is_string() && r.text() == names[i]);
      }
      const Expr one = is_gemma ? gemma_parameter(properties[i], rules[i])
                                : parameter(tool, properties[i], rules[i]);
      set.members.push_back(
          {define(tool.prefix + "parameter " + std::to_string(i), one), required});
    }
    const JsonNode more = tool.schema.find("additionalProperties");
    const bool is_closed = is_flag(more, false) || (!open_ && !more && properties.size() > 0) ||
                           is_flag(tool.schema.find("unevaluatedProperties"), false);
    if (!is_closed || tool.schema.find("patternProperties").size() > 0) {
      const auto of_xml = [&] {
        const Expr name = parts_.name_but(names, inverted({{'\n', '\n'}, {'>', '>'}}));
        return b.sequence({space(), text(kParameter), name, text(">\n"),
                           b.call(define(tool.prefix + "value", until(kParameterEnd)))});
      };
      const Expr any = is_gemma ? b.sequence({gemma_name(names), gemma_value()}) : of_xml();
      set.other = define(tool.prefix + "other", any);
    }
    if (is_gemma) set.comma = define(tool.prefix + "comma", text(","));
    return b.set(std::move(set));
  }

  Expr parameter(const Tool& tool, JsonNode property, std::int32_t rule) {
    GrammarBuilder& b = builder_;
    const Expr head = b.sequence({space(), text(kParameter), text(property.key()), text(">\n")});
    const JsonNode list = property.find("enum"), only = property.find("const");
    Expr value = 0;
    if (list || only) {
      std::vector<Expr> ways;
      const auto add = [&](JsonNode one) {
        ways.push_back(text(one.is_string() ? one.text() : one.dump()));
      };
      if (only) add(only);
      for (const JsonNode one : only ? JsonNode() : list) add(one);
      value = b.sequence({b.choice(std::move(ways)), text("\n"), text(kParameterEnd)});
    } else if (text_use(property, tool.schema) != TextUse::no) {
      // A string is written without quotes, so that a value which may be one has no known end.

      value = b.call(define(tool.prefix + "value of " + property.key(), until(kParameterEnd)));
    } else {
      value = b.sequence({b.call(rule), text("\n"), text(kParameterEnd)});
    }
    return b.sequence({head, value});
  }

  // {"name": "NAME" with the name of a tool begins a call, but only at the beginning of an answer;
  // any other object is content.
  void add_llama_heads(WatchMode& mode) {
    const std::string blank(1, kAnyBlanks);
    const std::string name = "\"name\"" + blank + ":" + blank;
    const std::array<std::string, 2> heads = {
        blank + "{" + blank + name, blank + "{" + blank + "\"type\"" + blank + ":" + blank +
                                        "\"function\"" + blank + "," + blank + name};
    for (const Tool& tool : tools_) {
      const std::string rule_name = tool.prefix + "after its name";
      const std::int32_t rule = builder_.rule(rule_name);
      if (!builder_.is_defined(rule)) {
        const Expr kind = builder_.choice({key("parameters"), key("arguments")});
        builder_.define(rule, builder_.sequence(
                                  {text(","), space(), kind, arguments(tool), space(), text("}")}));
      }
      for (const std::string& head : heads) {
        mode.at_start.push_back({head + Json(tool.name).dump_any(), rule, next(kBetween)});
      }
    }
  }

  // The mark's text, in which its blanks are repeated blanks, followed by its rule.
  Expr marked_call(const WatchMark& mark) {
    std::vector<Expr> parts;
    std::string_view rest = mark.text;
    while (true) {
      const std::size_t end = rest.find(kAnyBlanks);
      if (!rest.substr(0, end).empty()) parts.push_back(text(rest.substr(0, end)));
      if (end == std::string_view::npos) break;
      parts.push_back(blanks(builder_));
      rest.remove_prefix(end + 1);
    }
    if (mark.rule) parts.push_back(builder_.call(*mark.rule));
    return builder_.sequence(std::move(parts));
  }

  ReplyStyle style_;
  CallCount count_;
  bool open_ = true;  // arguments that the schema does not name are allowed if it is open
  GrammarBuilder builder_;
  JsonParts parts_;
  std::vector<Tool> tools_;
  SchemaNotes reported_;  // already reported by read_tool
};

}  // namespace

std::shared_ptr<const Grammar> tool_grammar(const ReplyStyle& style, const CallRules& rules,
                                            std::string_view prompt, SchemaNotes* notes) {
  if (style.tools == ToolCallStyle::none) return nullptr;
  return CallGrammar(style, rules, notes).make(begins_with_reasoning(style, prompt));
}

std::shared_ptr<const Grammar> forced_call_grammar(const ReplyStyle& style, const CallRules& rules,
                                                   std::string_view prompt, SchemaNotes* notes) {
  return CallGrammar(style, rules, notes).make_calls(nullptr, prompt, notes);
}

std::shared_ptr<const Grammar> answer_grammar(const ReplyStyle& style, const AnswerSchema& answer,
                                              std::string_view prompt, SchemaNotes* notes) {
  GrammarBuilder builder(answer.source, answer.stopped);
  JsonParts parts(builder);
  const Expr held = answer_value(builder, parts, answer, "", notes);
  const std::int32_t root = builder.rule("reply");
  builder.define(
      root, after_reasoning(builder, style, prompt, answer_message(builder, style, prompt, held)));
  return builder.finish(root);
}

std::shared_ptr<const Grammar> call_or_answer_grammar(const ReplyStyle& style,
                                                      const CallRules& rules,
                                                      const AnswerSchema& answer,
                                                      std::string_view prompt, SchemaNotes* notes) {
  return CallGrammar(style, rules, notes).make_calls(&answer, prompt, notes);
}

}  // namespace leq

#include "chat/jinja/interpreter.h"

#include <algorithm>
#include <array>
#include <deque>

#include "base/text.h"

namespace leq::jinja {

const Value& Context::defined(const Value& value) const {
  if (value.is_undefined()) {
    const std::string name = value.text == nullptr ? "a value" : std::string(value.bytes());
    wrong(printable(name), " is undefined");
  }
  return value;
}

std::string_view Context::text_of(const Value& value, std::string_view what) const {
  if (!value.is_text()) wrong(what, ": expected a text, found ", type_name(value));
  return value.bytes();
}

std::int64_t Context::whole_of(const Value& value, std::string_view what) const {
  if (!value.is_whole()) wrong(what, ": expected an integer, found ", type_name(value));
  return value.whole();
}

std::optional<Value> Arguments::get(std::size_t i, std::string_view name) const {
  if (i < values.size()) return values[i];
  for (const auto& [known, value] : named) {
    if (known == name) return value;
  }
  return std::nullopt;
}

void Arguments::check(const Context& context, std::string_view callee, std::size_t most,
                      std::initializer_list<std::string_view> names) const {
  if (values.size() > most) {
    context.wrong(callee, " takes ", most, " arguments, found ", values.size());
  }
  for (const auto& [name, value] : named) {
    if (std::ranges::find(names, name) == names.end()) {
      context.wrong(callee, " has no argument ", printable(name));
    }
  }
}

std::string time_text(const Context& context, std::string_view format) {
  constexpr std::array<std::string_view, 12> kMonths = {
      "January", "February", "March",     "April",   "May",      "June",
      "July",    "August",   "September", "October", "November", "December"};
  constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                     "Thursday", "Friday", "Saturday"};
  const std::tm& t = context.now;
  const auto month = kMonths[static_cast<std::size_t>(std::clamp(t.tm_mon, 0, 11))];
  const auto day = kDays[static_cast<std::size_t>(std::clamp(t.tm_wday, 0, 6))];
  const std::string year = std::to_string(t.tm_year + 1900);
  const auto two_digits = [](int number) {
    const std::string text = std::to_string(number);
    return text.size() < 2 ? "0" + text : text;
  };
  const std::string date = year + "-" + two_digits(t.tm_mon + 1) + "-" + two_digits(t.tm_mday);
  const std::string time =
      two_digits(t.tm_hour) + ":" + two_digits(t.tm_min) + ":" + two_digits(t.tm_sec);
  const std::pair<char, int> numbers[] = {
      {'d', t.tm_mday}, {'m', t.tm_mon + 1},
      {'H', t.tm_hour}, {'I', t.tm_hour % 12 == 0 ? 12 : t.tm_hour % 12},
      {'M', t.tm_min},  {'S', t.tm_sec}};
  const std::pair<char, std::string> texts[] = {
      {'y', year.substr(year.size() < 2 ? 0 : year.size() - 2)},
      {'Y', year},
      {'b', std::string(month.substr(0, 3))},
      {'B', std::string(month)},
      {'a', std::string(day.substr(0, 3))},
      {'A', std::string(day)},
      {'p', t.tm_hour < 12 ? "AM" : "PM"},
      {'F', date},
      {'T', time},
      {'%', "%"}};
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const bool padded = format[i + 1] != '-' || i + 2 >= format.size();
    const char kind = format[i += padded ? 1 : 2];
    const auto* number = std::ranges::find(numbers, kind, &std::pair<char, int>::first);
    const auto* text = std::ranges::find(texts, kind, &std::pair<char, std::string>::first);
    if (number != std::end(numbers)) {
      out += padded ? two_digits(number->second) : std::to_string(number->second);
    } else if (text != std::end(texts)) {
      out += text->second;
    } else {
      context.wrong("%", printable(format.substr(i, 1)), " in strftime_now() is not supported");
    }
  }
  return out;
}

// A scope of names. Loops, macros and `with` open a new scope, branches do not.
struct Scope {
  std::vector<std::pair<std::string_view, Value>> names;
  Scope* parent = nullptr;
};

struct Macro {
  NodeId node = kNoNode;
  Scope* scope = nullptr;  // the scope of its definition
};

namespace {

enum class Flow { on, leaves, again };

// Templates of models stay far below this depth, and the stack suffices for much deeper recursion.
constexpr int kMaxEvalDepth = 1500;

class Interpreter {
 public:
  Interpreter(const Syntax& syntax, const Variables& variables, Context& context)
      : syntax_(syntax), context_(context) {
    scope_ = new_scope(nullptr);
    for (std::size_t i = 0; i < kFunctions.size(); ++i) {
      Value function;
      function.type = Value::Type::function;
      function.function = i;
      scope_->names.emplace_back(kFunctions[i].name, function);
    }
    scope_ = new_scope(scope_);
    scope_->names = variables;
  }

  Text run() {
    Text out;
    out_ = &out;
    execute(syntax_.root);
    return out;
  }

 private:
  using Function = Value (Interpreter::*)(const Arguments&);
  struct Global {
    std::string_view name;
    Function function;
  };
  static const std::array<Global, 5> kFunctions;

  const Node& node(NodeId id) const { return syntax_.nodes[id]; }

  Scope* new_scope(Scope* parent) {
    context_.heap.charge(sizeof(Scope));
    Scope& scope = scopes_.emplace_back();
    scope.parent = parent;
    return &scope;
  }

  // Increments a depth for its own lifetime.
  class Level {
   public:
    explicit Level(Interpreter& in) : in_(in) {
      if (++in_.depth_ > kMaxEvalDepth) in_.context_.wrong("macros nested too deep");
      in_.context_.step();
    }
    ~Level() { --in_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Interpreter& in_;
  };

  void print(const Text& text) {
    out_->append(text);
    context_.step_over(text.size());
    context_.check_size(out_->size());
  }

  // The output of a block, as a value.
  Value captured(NodeId block) {
    Text text;
    Text* const before = std::exchange(out_, &text);
    const Flow flow = execute(block);
    out_ = before;
    if (flow != Flow::on) context_.wrong("break and continue out of a block are not supported");
    return context_.heap.text(std::move(text));
  }

  Flow execute(NodeId id) {
    const Level level(*this);
    const Node& n = node(id);
    context_.line = n.line;
    switch (n.kind) {
      case Kind::block:
        for (const NodeId child : n.children) {
          if (const Flow flow = execute(child); flow != Flow::on) return flow;
        }
        return Flow::on;
      case Kind::data:
        print(Text::own(n.text));
        return Flow::on;
      case Kind::print:
        print(to_text(context_, evaluate(n.children[0])));
        return Flow::on;
      case Kind::branch:
        return branch(n);
      case Kind::loop:
        return loop(n);
      case Kind::assign:
        assign(n.children[0], evaluate(n.children[1]));
        return Flow::on;
      case Kind::assign_block:
      case Kind::filter_block:
        filtered(n);
        return Flow::on;
      case Kind::macro:
        define(n, id);
        return Flow::on;
      case Kind::with:
        return with(n);
      case Kind::break_loop:
        return Flow::leaves;
      case Kind::continue_loop:
        return Flow::again;
      default:
        context_.wrong("no statement");
    }
  }

  Flow branch(const Node& n) {
    for (std::size_t i = 0; i + 1 < n.children.size(); i += 2) {
      if (truth(evaluate(n.children[i]))) return execute(n.children[i + 1]);
    }
    return n.children.size() % 2 == 1 ? execute(n.children.back()) : Flow::on;
  }

  Flow loop(const Node& n) {
    std::vector<Value> items = elements(context_, evaluate(n.children[1]));
    Scope* const outer = scope_;
    Scope* const own = new_scope(outer);
    scope_ = own;
    if (n.children[2] != kNoNode) {
      std::erase_if(items, [&](const Value& item) {
        own->names.clear();
        assign(n.children[0], item);
        return !truth(evaluate(n.children[2]));
      });
    }
    ++loops_;
    const Value state = context_.heap.loop({0, &items, loops_});
    Flow flow = Flow::on;
    for (std::size_t i = 0; i < items.size() && flow != Flow::leaves; ++i) {
      own->names.clear();
      context_.heap.loop_of(state).index = i;
      set_name("loop", state);
      assign(n.children[0], items[i]);
      flow = execute(n.children[3]);
    }
    --loops_;
    // A template that keeps a reference to `loop` gets an empty loop after the loop has ended.
    static const std::vector<Value> kNothing;
    context_.heap.loop_of(state) = {0, &kNothing, 1};
    own->names.clear();
    const bool runs_else = items.empty() && n.children[4] != kNoNode;
    if (runs_else) flow = execute(n.children[4]);
    scope_ = outer;
    return runs_else ? flow : Flow::on;
  }

  void filtered(const Node& n) {
    const bool assigns = n.kind == Kind::assign_block;
    const NodeId filter = assigns ? n.children[2] : n.children[0];
    const Value before = input_;
    // Names that are set in a filter's block stay local to it.
    Scope* const outer = scope_;
    scope_ = new_scope(outer);
    const Value inside = captured(n.children[1]);
    scope_ = outer;
    input_ = inside;
    const Value value = filter == kNoNode ? inside : evaluate(filter);
    input_ = before;
    if (assigns) {
      assign(n.children[0], value);
    } else {
      print(to_text(context_, value));
    }
  }

  void define(const Node& n, NodeId id) {
    context_.heap.charge(sizeof(Macro));
    Value macro;
    macro.type = Value::Type::macro;
    macro.macro = &macros_.emplace_back(Macro{id, scope_});
    set_name(n.text, macro);
  }

  Flow with(const Node& n) {
    Scope* const outer = scope_;
    std::vector<Value> values;
    for (std::size_t i = 2; i < n.children.size(); i += 2)
      values.push_back(evaluate(n.children[i]));
    scope_ = new_scope(outer);
    for (std::size_t i = 0; i < values.size(); ++i) assign(n.children[1 + 2 * i], values[i]);
    const Flow flow = execute(n.children[0]);
    scope_ = outer;
    return flow;
  }

  void set_name(std::string_view name, const Value& value) { set_in(scope_->names, name, value); }

  void set_in(std::vector<std::pair<std::string_view, Value>>& names, std::string_view name,
              const Value& value) {
    for (auto& [known, held] : names) {
      if (!context_.same(known, name)) continue;
      held = value;
      return;
    }
    names.emplace_back(name, value);
  }

  void assign(NodeId target, const Value& value) {
    const Node& n = node(target);
    context_.line = n.line;
    if (n.kind == Kind::name) return set_name(n.text, value);
    if (n.kind == Kind::attribute) {
      const Value holder = evaluate(n.children[0]);
      if (!holder.is(Value::Type::name_space)) {
        context_.wrong("cannot set .", n.text, " of ", type_name(holder), ", only of a namespace");
      }
      context_.heap.charge(0);
      return set_in(holder.name_space->items, n.text, value);
    }
    const std::vector<Value> parts = elements(context_, context_.defined(value));
    if (parts.size() != n.children.size()) {
      context_.wrong("expected ", n.children.size(), " values to unpack, found ", parts.size());
    }
    for (std::size_t i = 0; i < parts.size(); ++i) assign(n.children[i], parts[i]);
  }

  Value attribute_of(const Value& value, std::string_view name) {
    if (!value.is(Value::Type::macro)) return attribute(context_, value, name);
    if (name == "name") return context_.heap.text(Text::own(node(value.macro->node).text));
    context_.wrong("the attribute ", printable(name), " of a macro is not supported");
  }

  Value lookup(std::string_view name) {
    for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
      for (const auto& [known, value] : scope->names) {
        if (context_.same(known, name)) return value;
      }
    }
    if (name == "self") context_.wrong("self, the template itself, is not supported");
    return context_.heap.undefined(name);
  }

  Value evaluate(NodeId id) {
    const Level level(*this);
    const Node& n = node(id);
    context_.line = n.line;
    switch (n.kind) {
      case Kind::literal:
      case Kind::real:
        return literal(n, id);
      case Kind::integer:
        return of(n.number);
      case Kind::boolean:
        return of(n.number != 0);
      case Kind::none:
        return none_value();
      case Kind::input:
        return input_;
      case Kind::name:
        return lookup(n.text);
      case Kind::list:
        return context_.heap.list(all(n.children));
      case Kind::tuple:
        return context_.heap.tuple(all(n.children));
      case Kind::dict:
        return dict(n);
      case Kind::attribute:
        return attribute_of(evaluate(n.children[0]), n.text);
      case Kind::item:
        return item_of(n);
      case Kind::call:
        return call(n);
      case Kind::filter: {
        const Value value = evaluate(n.children[0]);
        return apply_filter(context_, n.text, value, arguments(n));
      }
      case Kind::test: {
        const Value value = evaluate(n.children[0]);
        return of(apply_test(context_, n.text, value, arguments(n)));
      }
      case Kind::negation:
        return of(!truth(evaluate(n.children[0])));
      case Kind::minus: {
        const Value value = evaluate(n.children[0]);
        if (value.is(Value::Type::real)) return of(-value.real);
        return binary(context_, "-", of(std::int64_t{0}), value);
      }
      case Kind::plus:
        return binary(context_, "+", of(std::int64_t{0}), evaluate(n.children[0]));
      case Kind::both: {
        const Value left = evaluate(n.children[0]);
        return truth(left) ? evaluate(n.children[1]) : left;
      }
      case Kind::either: {
        const Value left = evaluate(n.children[0]);
        return truth(left) ? left : evaluate(n.children[1]);
      }
      case Kind::binary: {
        const Value left = evaluate(n.children[0]);
        const Value right = evaluate(n.children[1]);
        context_.line = n.line;
        return binary(context_, n.text, left, right);
      }
      case Kind::compare:
        return comparison(n);
      case Kind::conditional:
        if (truth(evaluate(n.children[1]))) return evaluate(n.children[0]);
        if (n.children[2] != kNoNode) return evaluate(n.children[2]);
        return context_.heap.undefined("the else of an inline if");
      default:
        context_.wrong("no expression");
    }
  }

  // Cached by node, because a template evaluates the same literals in every loop iteration.
  Value literal(const Node& n, NodeId id) {
    if (literals_.empty()) literals_.resize(syntax_.nodes.size());
    if (literals_[id].is_undefined()) {
      literals_[id] =
          n.kind == Kind::real ? of(*parse_double(n.text)) : context_.heap.text(Text::own(n.text));
    }
    return literals_[id];
  }

  std::vector<Value> all(const std::vector<NodeId>& ids) {
    std::vector<Value> values;
    for (const NodeId id : ids) values.push_back(evaluate(id));
    return values;
  }

  Value dict(const Node& n) {
    Dict made;
    for (std::size_t i = 0; i < n.children.size(); i += 2) {
      const Value key = evaluate(n.children[i]);
      const Value value = evaluate(n.children[i + 1]);
      if (key.is_list() || key.is_dict()) context_.wrong(type_name(key), " as a key of a dict");
      const auto known = std::ranges::find_if(
          made.items, [&](const auto& entry) { return equal(context_, entry.first, key); });
      if (known != made.items.end()) {
        known->second = value;
      } else {
        made.items.emplace_back(key, value);
      }
    }
    return context_.heap.dict(std::move(made));
  }

  Value item_of(const Node& n) {
    const Value value = evaluate(n.children[0]);
    const Node& index = node(n.children[1]);
    if (index.kind != Kind::slice) {
      const Value at = evaluate(n.children[1]);
      context_.line = n.line;
      return item(context_, value, at);
    }
    const auto bound = [&](std::size_t i) {
      return index.children[i] == kNoNode ? none_value() : evaluate(index.children[i]);
    };
    const Value from = bound(0), to = bound(1), step = bound(2);
    return slice(context_, value, from, to, step);
  }

  Value comparison(const Node& n) {
    Value left = evaluate(n.children[0]);
    for (std::size_t i = 1; i < n.children.size(); ++i) {
      const Node& operand = node(n.children[i]);
      const Value right = evaluate(operand.children[0]);
      context_.line = operand.line;
      if (!compare(context_, operand.text, left, right)) return of(false);
      left = right;
    }
    return of(true);
  }

  Arguments arguments(const Node& n) {
    Arguments made;
    for (std::size_t i = 1; i < n.children.size(); ++i) {
      const Node& argument = node(n.children[i]);
      if (argument.kind == Kind::keyword) {
        made.named.emplace_back(argument.text, evaluate(argument.children[0]));
      } else {
        made.values.push_back(evaluate(n.children[i]));
      }
    }
    context_.line = n.line;
    return made;
  }

  Value call(const Node& n) {
    const Value callee = evaluate(n.children[0]);
    const Arguments made = arguments(n);
    context_.defined(callee);
    if (callee.is(Value::Type::method)) return call_method(context_, *callee.method, made);
    if (callee.is(Value::Type::function))
      return (this->*kFunctions[callee.function].function)(made);
    if (callee.is(Value::Type::macro)) return call_macro(*callee.macro, made);
    context_.wrong("cannot call ", type_name(callee));
  }

  Value call_macro(const Macro& macro, const Arguments& given) {
    const Node& n = node(macro.node);
    if (++calls_ > kMaxCalls)
      context_.wrong("macros call each other more than ", kMaxCalls, " deep");
    Scope* const caller = scope_;
    scope_ = new_scope(macro.scope);
    if (given.values.size() + 1 > n.children.size()) {
      context_.wrong("the macro ", n.text, " takes ", n.children.size() - 1, " arguments, found ",
                     given.values.size());
    }
    std::size_t used = 0;
    for (std::size_t i = 1; i < n.children.size(); ++i) {
      const Node& parameter = node(n.children[i]);
      const auto named = std::ranges::find_if(given.named, [&](const auto& entry) {
        return context_.same(entry.first, parameter.text);
      });
      if (i <= given.values.size()) {
        set_name(parameter.text, given.values[i - 1]);
      } else if (named != given.named.end()) {
        ++used;
        set_name(parameter.text, named->second);
      } else if (parameter.kind == Kind::keyword) {
        set_name(parameter.text, evaluate(parameter.children[0]));
      } else {
        set_name(parameter.text, context_.heap.undefined(parameter.text));
      }
    }
    if (used < given.named.size()) {
      context_.wrong("the macro ", n.text, " has no such argument as one that is given");
    }
    const Value result = captured(n.children[0]);
    scope_ = caller;
    --calls_;
    return result;
  }

  // The global functions of templates.
  Value raise_exception(const Arguments& given) {
    const auto message = given.get(0, "message");
    const std::string text =
        message ? std::string(to_text(context_, *message).bytes()) : std::string("no reason given");
    fail(context_.source, context_.refusal, printable(text, 300));
  }

  Value make_namespace(const Arguments& given) {
    const Value made = context_.heap.name_space();
    for (const Value& value : given.values) {
      if (!value.is_dict()) context_.wrong("namespace() of ", type_name(value));
      for (const auto& [key, held] : value.dict->items) {
        set_in(made.name_space->items, context_.text_of(key, "a namespace's key"), held);
      }
    }
    for (const auto& [name, value] : given.named) set_in(made.name_space->items, name, value);
    return made;
  }

  Value range(const Arguments& given) {
    given.check(context_, "range", 3);
    if (given.values.empty()) context_.wrong("range() expects a number");
    const auto number = [&](std::size_t i) {
      return context_.whole_of(given.values[i], "range()");
    };
    const std::int64_t from = given.values.size() > 1 ? number(0) : 0;
    const std::int64_t to = number(given.values.size() > 1 ? 1 : 0);
    const std::int64_t step = given.values.size() > 2 ? number(2) : 1;
    if (step == 0) context_.wrong("range() with a step of 0");
    constexpr std::int64_t kMaxItems = 100'000;  // the limit of Jinja's sandbox, too
    std::vector<Value> items;
    for (std::int64_t at = from; step > 0 ? at < to : at > to;) {
      if (std::ssize(items) == kMaxItems) context_.wrong("range() of more than ", kMaxItems);
      items.push_back(of(at));
      if (__builtin_add_overflow(at, step, &at)) break;
    }
    context_.step(std::ssize(items));
    return context_.heap.list(std::move(items));
  }

  Value make_dict(const Arguments& given) {
    given.check(context_, "dict", 1, {});
    Dict made;
    if (!given.values.empty()) {
      if (!given.values[0].is_dict()) context_.wrong("dict() of ", type_name(given.values[0]));
      made = *given.values[0].dict;
    }
    return context_.heap.dict(std::move(made));
  }

  Value strftime_now(const Arguments& given) {
    given.check(context_, "strftime_now", 1, {"format"});
    const auto format = given.get(0, "format");
    if (!format) context_.wrong("strftime_now() expects a format");
    return context_.heap.text(
        Text::foreign(time_text(context_, context_.text_of(*format, "strftime_now()'s format"))));
  }

  const Syntax& syntax_;
  Context& context_;
  std::deque<Scope> scopes_;
  std::deque<Macro> macros_;
  std::vector<Value> literals_;  // by node
  Scope* scope_ = nullptr;
  Text* out_ = nullptr;
  Value input_;  // content of the current filter block
  int depth_ = 0;
  int calls_ = 0;
  std::size_t loops_ = 0;
};

const std::array<Interpreter::Global, 5> Interpreter::kFunctions = {
    {{"raise_exception", &Interpreter::raise_exception},
     {"namespace", &Interpreter::make_namespace},
     {"range", &Interpreter::range},
     {"dict", &Interpreter::make_dict},
     {"strftime_now", &Interpreter::strftime_now}}};

}  // namespace

Text run(const Syntax& syntax, const Variables& variables, Context& context) {
  return Interpreter(syntax, variables, context).run();
}

}  // namespace leq::jinja

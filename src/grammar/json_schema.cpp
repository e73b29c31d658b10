// JSON Schema (draft 2020-12) as a grammar of the texts that the schema accepts.
#include "grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "grammar/automaton.h"
#include "grammar/schema_texts.h"

namespace leq {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr JsonLimits kSchemaLimits = {.bytes = 4u << 20, .values = 50'000};
constexpr std::size_t kMaxNotes = 20;

// Reads one JSON schema (draft 2020-12) into rules of a grammar.
class SchemaReader {
 public:
  SchemaReader(GrammarBuilder& builder, JsonParts& parts, const SchemaSource& source)
      : root_(source.root),
        source_(source.name),
        prefix_(source.prefix),
        notes_(source.notes),
        any_order_(source.any_order),
        open_(source.open),
        builder_(builder),
        parts_(parts),
        texts_(builder, parts, source.name, work_) {}

  std::vector<std::int32_t> read(std::span<const SchemaPlace> wanted) {
    std::vector<std::int32_t> rules;
    for (const SchemaPlace& place : wanted) rules.push_back(rule_of(place.schema, place.path));
    // A loop instead of recursion, because schemas may refer to each other in chains of any length.
    while (!waiting_.empty()) {
      const Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      place_ = next.place;
      const bool whole = next.part == Part::whole;
      builder_.define(next.rule, whole ? value(next.schema) : object(next.schema, 1));
    }
    return rules;
  }

 private:
  // What of a schema's value is a rule: all of it, or an object after its first property.
  enum class Part : std::uint8_t { whole, after_first };
  struct Waiting {
    std::int32_t rule;
    JsonNode schema;
    std::string place;
    Part part;
  };
  struct Property {
    std::string_view name;
    JsonNode schema;  // nothing: any value
    bool required = false;
  };
  struct Properties {
    std::vector<Property> all;
    std::map<std::string_view, std::size_t> by_name;  // indices into all
  };
  // The names that a schema's properties may have.
  struct Names {
    SchemaTexts::Language strings = {};  // null: there are none
    std::unique_ptr<GrammarAutomaton> automaton = {};
    std::vector<std::string> constants = {};  // as JSON, if there are no others
    bool is_few = false;                      // constants, and not many; or none
  };
  // Thrown for a valid schema that a grammar cannot express.
  struct Unsupported {
    std::string what;
  };
  enum class Others { refused, allowed };  // properties that are not named

  // Appends one component to the path within the schema for its own lifetime.
  class Step {
   public:
    Step(SchemaReader& reader, std::string_view name)
        : reader_(reader), length_(reader.place_.size()) {
      constexpr std::size_t kLongest = 240;  // each subschema keeps its path for a while
      if (length_ < kLongest) reader_.place_ += "/" + printable(name);
    }
    ~Step() { reader_.place_.resize(length_); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    SchemaReader& reader_;
    std::size_t length_;
  };

  Expr never(const std::string& why) { return builder_.never(place_ + ": " + why); }

  // Throws Error: the schema is invalid.
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(source_, ": ", place_, ": ", parts...);
  }
  // In loose mode, notes that `what` is not enforced; in strict mode, throws Error.
  void note_ignored(std::string_view what) {
    if (notes_ == nullptr) wrong(what, " is not supported here");
    note(std::string(what) + " is not enforced");
  }

  void note(std::string_view text) {
    std::string line = std::string(source_) + ": " + place_ + ": " + std::string(text);
    if (notes_->size() > kMaxNotes || std::ranges::find(*notes_, line) != notes_->end()) return;
    const bool full = notes_->size() == kMaxNotes;
    notes_->push_back(full ? std::string(source_) + ": more is not enforced" : std::move(line));
  }

  // Throws Unsupported; in loose mode the caller then enforces only the type.
  [[noreturn]] void unsupported(const std::string& what) const {
    if (notes_ == nullptr) wrong(what);
    throw Unsupported{what};
  }

  std::int32_t rule_of(JsonNode schema, const std::string& place, Part part = Part::whole) {
    const auto [known, is_new] = rules_.try_emplace({&schema.value(), part});
    if (!is_new) return known->second;
    std::string name = prefix_ + "schema " + place + (part == Part::whole ? "" : " rest");
    // Paths are cut where they are long, so that two schemas may have the same one.
    if (!names_of_rules_.insert(name).second) name += " " + std::to_string(builder_.rules());
    known->second = builder_.rule(name);
    waiting_.push_back({known->second, schema, place, part});
    return known->second;
  }

  // A subschema, as a rule of its own unless it is small: an expression that holds it several times
  // holds only calls, so that nesting does not multiply it.
  Expr part(JsonNode schema) {
    const bool small = !schema.is_object() || has_only(schema, {"$ref"});
    return small ? value(schema) : builder_.call(rule_of(schema, place_));
  }

  void check_keywords(JsonNode schema, std::initializer_list<std::string_view> known) {
    check_keywords(schema, std::span(known.begin(), known.size()));
  }
  // Reports ignored keywords, except those that do not restrict values of the schema's type.
  void check_keywords(JsonNode schema, std::span<const std::string_view> known) {
    const JsonNode type = schema.find("type");
    for (const JsonNode k : schema) {
      if (is_note(k.key()) || std::ranges::find(known, k.key()) != known.end()) continue;
      const std::string_view applies_to = type_of_keyword(k.key());
      if (type && !applies_to.empty() && !may_be(type, applies_to)) continue;
      if (restricts_nothing(schema, k)) continue;
      if (k.key() == "uniqueItems" && is_of_constants(schema)) continue;
      note_ignored("the keyword '" + printable(k.key()) + "'");
    }
  }

  Expr value(JsonNode schema) {
    if (notes_ == nullptr) return exact_value(schema);
    const std::string place = place_;
    try {
      return exact_value(schema);
    } catch (const Unsupported& refused) {
      place_ = place;
      note(refused.what + "; only the type is enforced");
      return parts_.of_type(named_type(schema, root_));
    }
  }

  Expr exact_value(JsonNode schema) {
    if (schema.is_boolean()) {
      if (schema.boolean()) return parts_.value();
      return builder_.choice({});  // no value is valid
    }
    if (!schema.is_object()) wrong("expected a schema, an object or a boolean");
    if (schema.find("$ref")) return reference(schema);
    if (schema.find("enum") || schema.find("const")) return constants(schema);
    for (const std::string_view keyword : {"anyOf", "oneOf"}) {
      // In loose mode, other keywords (such as properties) take precedence over alternatives.
      const bool beside = notes_ != nullptr && !has_only(schema, {keyword});
      if (schema.find(keyword) && !beside) return alternatives(schema, keyword);
    }
    if (const JsonNode list = schema.find("allOf"); list && !restricts_nothing(schema, list)) {
      return all_of(schema);
    }
    const JsonNode type = schema.find("type");
    if (type.is_array()) {  // each type is built from the keywords that apply to it
      std::vector<Expr> ways;
      std::set<std::string_view> known;
      for (const JsonNode one : type) {
        if (!one.is_string()) wrong("expected the types to be texts");
        if (known.insert(one.text()).second) ways.push_back(typed(schema, one.text()));
      }
      return builder_.choice(std::move(ways));
    }
    if (type) {
      if (!type.is_string()) wrong("expected 'type' to be a text or a list");
      return typed(schema, type.text());
    }
    return typed(schema, implied_type(schema));
  }

  Expr typed(JsonNode schema, std::string_view type) {
    static const std::vector<std::string_view> kTyped = split(
        "type properties required additionalProperties propertyNames patternProperties "
        "minProperties maxProperties items prefixItems additionalItems minItems maxItems minLength "
        "maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf not",
        " ");
    check_keywords(schema, kTyped);
    if (type != "string" && refuses_some(schema.find("not"), type)) {
      note_ignored("the keyword 'not'");
    }
    if (type.empty() || type == "null" || type == "boolean") return parts_.of_type(type);
    if (type == "string") return string(schema);
    if (type == "integer" || type == "number") return number(schema, type == "integer");
    if (type == "array") return array(schema);
    if (type == "object") return object(schema);
    wrong("there is no type '", printable(type), "'");
  }

  Expr reference(JsonNode schema) {
    check_keywords(schema, {"$ref"});
    const JsonNode name = schema.find("$ref");
    if (!name.is_string()) wrong("expected '$ref' to be a text");
    const auto [target, place] = resolve(name.text());
    return builder_.call(rule_of(target, place));
  }

  // The subschema that a reference names, and its path.
  std::pair<JsonNode, std::string> resolve(std::string_view name) const {
    if (!name.starts_with('#')) {
      unsupported("$ref '" + printable(name) +
                  "': only references within the schema, #/..., are supported");
    }
    JsonNode at = root_;
    std::string place = "#";
    if (name != "#" && !name.starts_with("#/"))
      unsupported("$ref '" + printable(name) + "': expected #/ and a path");
    for (const std::string& key : pointer_steps(name)) {
      const JsonNode next = step_into(at, key);
      if (!next) wrong("$ref '", printable(name), "': there is no '", printable(key), "'");
      at = next;
      place += "/" + printable(key);
    }
    return {at, place};
  }

  Expr alternatives(JsonNode schema, std::string_view keyword) {
    const JsonNode list = schema.find(keyword);
    if (!list.is_array() || list.size() == 0) wrong("expected '", keyword, "' to be a list");
    check_keywords(schema, {keyword, "type"});
    const Step step(*this, keyword);
    const JsonNode type = schema.find("type");
    std::vector<Expr> ways;
    std::vector<std::string> constants;  // alternatives that are constants only
    // Alternatives that are objects whose first property is a constant of theirs share the text up
    // to it; by that property's name.
    std::map<std::string_view, std::vector<GrammarBuilder::Word>> tagged;
    if (keyword == "oneOf") require_disjoint(list);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const JsonNode one = list[i];
      const Step inner(*this, std::to_string(i));
      const JsonNode own = one.find("type");
      const bool agrees = type && type.is_string() && own.is_string() && own.text() == type.text();
      if (type && !agrees) {
        note_ignored("a 'type' beside '" + std::string(keyword) +
                     "' that an alternative does not repeat");
      }
      if ((one.find("const") || one.find("enum")) && has_only(one, {"const", "enum"})) {
        add_constants(one, own, constants);
      } else if (!add_tagged(one, tagged)) {
        ways.push_back(value(one));
      }
    }
    if (!constants.empty()) ways.push_back(parts_.one_of(constants));
    GrammarBuilder& b = builder_;
    for (auto& [name, words] : tagged) {
      ways.push_back(b.sequence({b.text("{"), parts_.space(), b.text("\""), parts_.written(name),
                                 b.text("\":"), parts_.space(), b.words(std::move(words))}));
    }
    return b.choice(std::move(ways));
  }

  // Adds the constants of the first property, each followed by the rest of the object; false if the
  // alternative is no such object.
  bool add_tagged(JsonNode one,
                  std::map<std::string_view, std::vector<GrammarBuilder::Word>>& tagged) {
    if (any_order_ || !one.is_object()) return false;
    const JsonNode name = one.find("$ref");
    const bool refers = name.is_string() && name.text().starts_with("#/") && one.size() == 1;
    const auto [schema, place] = refers ? resolve(name.text()) : std::pair(one, place_);
    const JsonNode first = schema.find("properties").first(), type = schema.find("type");
    const bool is_object = type ? type.is_string() && type.text() == "object" : bool{first};
    if (!is_object || !has_only(schema, {"properties", "required", "additionalProperties"}) ||
        !(first.find("const") || first.find("enum")) || !has_only(first, {"const", "enum"}) ||
        !requires_property(schema, first.key())) {
      return false;
    }
    std::vector<std::string> constants;
    add_constants(first, first.find("type"), constants);
    const std::int32_t rest = rule_of(schema, place, Part::after_first);
    for (std::string& text : constants) tagged[first.key()].push_back({std::move(text), rest});
    return true;
  }

  // oneOf requires that exactly one alternative is valid, which a grammar cannot check.
  void require_disjoint(JsonNode list) {
    std::vector<JsonNode> targets;
    for (const JsonNode one : list) targets.push_back(target_of(one));
    const auto both = may_hold_together(targets);
    if (!both) return;
    const Step step(*this, std::to_string(both->second));
    if (notes_ != nullptr) return note_ignored("that no other alternative of 'oneOf' holds");
    wrong("it may hold together with alternative ", both->first,
          " of 'oneOf': give both a different type, or a required property with different "
          "constants, or write anyOf");
  }

  JsonNode target_of(JsonNode schema) const {
    for (int i = 0; i < 20; ++i) {
      const JsonNode name = schema.find("$ref");
      if (!name.is_string()) return schema;
      schema = resolve(name.text()).first;
    }
    return schema;
  }

  // The value of the only subschema of allOf that restricts it, or an object that has the
  // properties of all of them and of the schema itself.
  Expr all_of(JsonNode schema) {
    const JsonNode list = schema.find("allOf");
    if (!list.is_array() || list.size() == 0) wrong("expected 'allOf' to be a list");
    const bool own = schema.find("type") || !has_only(schema, {"allOf"});
    std::vector<std::size_t> parts;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (is_flag(list[i], false)) return value(list[i]);
      if (!allows_all(list[i])) parts.push_back(i);
    }
    const Step step(*this, "allOf");
    if (parts.size() == 1 && !own) {
      const Step only(*this, std::to_string(parts[0]));
      return value(list[parts[0]]);
    }
    Properties all;
    if (own) take_properties(schema, all);
    check_keywords(schema, {"allOf", "type", "properties", "required", "additionalProperties"});
    for (const std::size_t i : parts) {
      const JsonNode target = target_of(list[i]);
      take_properties(target, all);
      if (list[i].find("$ref")) check_keywords(list[i], {"$ref"});
      check_keywords(target, {"type", "properties", "required", "additionalProperties"});
    }
    return object_of(all.all, JsonNode(), open_ ? Others::allowed : Others::refused, 0);
  }

  void take_properties(JsonNode schema, Properties& all) {
    const JsonNode type = schema.find("type"), more = schema.find("additionalProperties");
    const bool is_object =
        type ? type.is_string() && type.text() == "object" : implied_type(schema) == "object";
    if (!is_object) unsupported("'allOf' is supported for objects alone");
    if (more && !is_flag(more, true)) {
      unsupported("additionalProperties within 'allOf' is not supported");
    }
    collect(schema, all);
  }

  // Properties in the schema's order, followed by those that are only listed in `required`.
  void collect(JsonNode schema, Properties& found) const {
    const JsonNode properties = schema.find("properties"), required = schema.find("required");
    if (properties && !properties.is_object()) wrong("expected 'properties' to be an object");
    // In draft 3 `required` is a boolean of each property, which is ignored.
    if (required && !required.is_array() && !required.is_boolean()) {
      wrong("expected 'required' to be a list");
    }
    auto& [all, by_name] = found;
    for (const JsonNode p : properties) {
      if (!by_name.emplace(p.key(), all.size()).second) {
        unsupported("the property '" + printable(p.key()) + "' occurs twice");
      }
      all.push_back({p.key(), p, false});
    }
    for (const JsonNode r : required) {
      if (!r.is_string()) wrong("expected the names in 'required' to be texts");
      const auto [known, is_new] = by_name.emplace(r.text(), all.size());
      if (is_new) all.push_back({r.text(), JsonNode(), false});
      all[known->second].required = true;
    }
  }

  // `begun`: the number of properties that are already written.
  Expr object(JsonNode schema, std::size_t begun = 0) {
    const JsonNode more = schema.find("additionalProperties");
    Properties properties;
    collect(schema, properties);
    std::vector<Property>& all = properties.all;
    const Names* const names = names_of(schema);
    if (names != nullptr) {  // an optional property whose name is not allowed cannot be written
      std::erase_if(all, [&](const Property& p) {
        if (GrammarAutomaton* const all_names = names->automaton.get()) {
          const auto state = all_names->after(all_names->start(), Json(p.name).dump_any());
          if (state != GrammarAutomaton::kDead && all_names->may_end(state)) return false;
        }
        if (p.required) {
          unsupported("'" + printable(p.name) + "' is required, and propertyNames allows it not");
        }
        return true;
      });
    }
    if (all.empty()) {
      if (const auto found = dictionary(schema, names)) return *found;
    }
    const bool refuses_more = is_flag(more, false);
    std::int64_t required = 0;
    for (Property& p : all) {
      required += p.required ? 1 : 0;
      if (refuses_more && !p.schema) {
        return never("'" + printable(p.name) +
                     "' is required, and additionalProperties allows it not");
      }
      if (!p.schema && more.is_object()) p.schema = more;
    }
    const JsonNode patterns = schema.find("patternProperties");
    if (patterns && patterns.size() > 0) note_ignored("the keyword 'patternProperties'");
    if (count(schema, "minProperties", 0) > required) note_ignored("the keyword 'minProperties'");
    const std::int64_t most = count(schema, "maxProperties", GrammarBuilder::kNoLimit);
    const bool may_be_more = !refuses_more && (more || all.empty());
    if (most != GrammarBuilder::kNoLimit && (may_be_more || most < std::ssize(all))) {
      note_ignored("the keyword 'maxProperties'");
    }
    // If a schema names properties, others are allowed only if additionalProperties is given.
    bool open = more ? !refuses_more : all.empty();
    if (open_) {
      const bool is_closed = refuses_more || is_flag(schema.find("unevaluatedProperties"), false);
      open = !is_closed || (patterns && patterns.size() > 0);
    }
    open = open && (names == nullptr || names->strings != nullptr);
    return object_of(all, more, open ? Others::allowed : Others::refused, begun, names);
  }

  // An object without named properties whose property names or number of properties are restricted;
  // nullopt if neither is restricted or the restriction cannot be enforced.
  std::optional<Expr> dictionary(JsonNode schema, const Names* names) {
    GrammarBuilder& b = builder_;
    const JsonNode more = schema.find("additionalProperties"),
                   patterns = schema.find("patternProperties");
    const std::int64_t least = count(schema, "minProperties", 0);
    const std::int64_t most = count(schema, "maxProperties", GrammarBuilder::kNoLimit);
    const bool has_patterns = patterns.is_object() && patterns.size() > 0;
    const bool has_names = names != nullptr && !has_patterns;
    const bool counted = least > 0 || most != GrammarBuilder::kNoLimit;
    if (!has_names && !counted && !has_patterns) return std::nullopt;
    // Patterns are not supported if a name could match several of these schemas.
    if (has_patterns && (patterns.size() > 1 || !is_flag(more, false))) return std::nullopt;
    if (!has_patterns && is_flag(more, false)) return std::nullopt;
    if (most != GrammarBuilder::kNoLimit && most < least) {
      return never("maxProperties is less than minProperties");
    }
    // A name that is repeated counts once; few names are not repeated.
    if (has_names && names->is_few) {
      const Step step(*this, "additionalProperties");
      const Expr after =
          b.sequence({b.text(":"), parts_.space(), more.is_object() ? part(more) : parts_.value()});
      return texts_.each_once("{", names->constants, after, least, most, "}");
    }
    if (least > 1) note_ignored("'minProperties' above 1");
    Expr key = key_but({}, has_names ? names : nullptr);
    if (has_patterns) {
      if (names != nullptr) note_ignored("the keyword 'propertyNames'");
      key = texts_.string({.pattern = patterns.first().key()}, refuse_part());
    }
    const JsonNode held = has_patterns ? patterns.first() : more;
    const Step step(*this, has_patterns ? "patternProperties" : "additionalProperties");
    const Expr member = b.sequence(
        {key, b.text(":"), parts_.space(), held.is_object() ? part(held) : parts_.value()});
    const Expr next = b.sequence({b.text(","), parts_.space(), member});
    const std::int64_t most_left =
        most == GrammarBuilder::kNoLimit ? most : std::max<std::int64_t>(most - 1, 0);
    const Expr some = b.sequence(
        {member, b.repeat(next, std::max<std::int64_t>(least - 1, 0), most_left), parts_.space()});
    const Expr inner = most == 0 ? b.nothing() : least > 0 ? some : b.optional(some);
    return b.sequence({b.text("{"), parts_.space(), inner, b.text("}")});
  }

  // The names that `propertyNames` allows; null: any.
  const Names* names_of(JsonNode schema) {
    if (const JsonNode any = schema.find("propertyNames"); !any || allows_any_name(any))
      return nullptr;
    const Step step(*this, "propertyNames");
    const JsonNode names = target_of(schema.find("propertyNames"));
    if (const auto known = names_.find(&names.value()); known != names_.end())
      return &known->second;
    Names made;
    if (schema.find("propertyNames").find("$ref"))
      check_keywords(schema.find("propertyNames"), {"$ref"});
    const bool none = is_flag(names, false);
    if (!none && !names.is_object()) wrong("expected a schema of texts");
    if (none || names.find("enum") || names.find("const")) {
      check_keywords(names, {"enum", "const", "type"});
      made.is_few = none || are_few(names);
      add_constants(names, names.find("type"), made.constants);
      std::erase_if(made.constants, [](const std::string& text) { return text[0] != '"'; });
      if (!made.constants.empty()) {
        made.strings = texts_.alone(
            [&](GrammarBuilder&, JsonParts& parts) { return parts.one_of(made.constants); });
      }
    } else {
      check_keywords(names, {"type", "pattern", "format", "minLength", "maxLength", "not"});
      const TextRules rules = text_rules(names);
      made.is_few = !rules.has_length();
      if (!made.is_few) {
        made.strings = texts_.alone([&](GrammarBuilder& b, JsonParts& parts) {
          return SchemaTexts(b, parts, source_, work_).string(rules, refuse_part());
        });
      }
    }
    if (made.strings) made.automaton = std::make_unique<GrammarAutomaton>(made.strings);
    return &names_.emplace(&names.value(), std::move(made)).first->second;
  }

  // The name of a property that has none of these names.
  Expr key_but(const std::vector<std::string_view>& taken, const Names* names) {
    if (names != nullptr) {
      if (const auto key = texts_.string_but(names->strings, taken)) return *key;
      note_ignored("the keyword 'propertyNames'");
    }
    return taken.empty() ? parts_.string() : parts_.string_but(taken);
  }

  SchemaTexts::Refuse refuse_part() {
    return [this](const std::string& what, const std::string& why) {
      if (notes_ == nullptr) wrong(what, " is not supported here: ", why);
      note(what + " is not enforced");
    };
  }

  Expr object_in_any_order(const std::vector<Property>& all, JsonNode more, Others others,
                           const Names* key_names) {
    GrammarBuilder& b = builder_;
    const std::string prefix = prefix_ + "set " + std::to_string(objects_++) + " ";
    const auto define = [&](const std::string& name, Expr expression) {
      const std::int32_t rule = b.rule(prefix + name);
      b.define(rule, expression);
      return rule;
    };
    Grammar::Set set;
    std::vector<std::string_view> names;
    for (std::size_t i = 0; i < all.size(); ++i) {
      names.push_back(all[i].name);
      set.members.push_back({define(std::to_string(i), member_of(all[i])), all[i].required});
    }
    set.comma = define("comma", b.sequence({b.text(","), parts_.space()}));
    if (others == Others::allowed) {
      const Step step(*this, "additionalProperties");
      const Expr key = key_but(names, key_names);
      const Expr held = more.is_object() ? part(more) : parts_.value();
      set.other = define("other", b.sequence({key, b.text(":"), parts_.space(), held}));
    }
    return b.sequence(
        {b.text("{"), parts_.space(), b.set(std::move(set)), parts_.space(), b.text("}")});
  }

  // `more`: the schema of further properties, if they are allowed.
  Expr object_of(const std::vector<Property>& all, JsonNode more, Others others, std::size_t begun,
                 const Names* names = nullptr) {
    GrammarBuilder& b = builder_;
    if (any_order_) return object_in_any_order(all, more, others, names);
    const std::string prefix = prefix_ + "members " + std::to_string(objects_++) + " ";
    // One rule for each number of properties handled so far and for whether one of them was
    // written.
    const auto rule_at = [&](std::size_t i, bool any) {
      return b.rule(prefix + std::to_string(i) + (any ? " more" : ""));
    };
    bool maybe_none = begun == 0;  // whether all properties so far may have been left out
    for (std::size_t i = begun; i <= all.size(); ++i) {
      std::optional<Expr> member;
      if (i < all.size()) member = member_of(all[i]);
      for (const bool any : {false, true}) {
        if (any ? i == 0 : !maybe_none) continue;
        if (i == all.size()) {
          b.define(rule_at(i, any), other_members(all, more, others, any, names));
          continue;
        }
        std::vector<Expr> parts;
        if (any) parts = {b.text(","), parts_.space()};
        parts.push_back(*member);
        parts.push_back(b.call(rule_at(i + 1, true)));
        std::vector<Expr> ways = {b.sequence(std::move(parts))};
        if (!all[i].required) ways.push_back(b.call(rule_at(i + 1, any)));
        b.define(rule_at(i, any), b.choice(std::move(ways)));
      }
      maybe_none = maybe_none && i < all.size() && !all[i].required;
    }
    const Expr members = b.call(rule_at(begun, begun > 0));
    if (begun > 0) return b.sequence({members, b.text("}")});
    return b.sequence({b.text("{"), parts_.space(), members, b.text("}")});
  }

  Expr member_of(const Property& property) {
    GrammarBuilder& b = builder_;
    const Step step(*this, "properties"), own(*this, property.name);
    return b.sequence({b.text("\""), parts_.written(property.name), b.text("\":"), parts_.space(),
                       property.schema ? part(property.schema) : parts_.value()});
  }

  // Further properties up to the closing bracket, including the white space before it.
  Expr other_members(const std::vector<Property>& all, JsonNode more, Others others, bool any,
                     const Names* key_names) {
    GrammarBuilder& b = builder_;
    const Expr close = any ? parts_.space() : b.nothing();
    if (others == Others::refused) return close;
    std::vector<std::string_view> names;
    for (const Property& p : all) names.push_back(p.name);
    const Step step(*this, "additionalProperties");
    const Expr key = key_but(names, key_names);
    const Expr held = more.is_object() ? part(more) : parts_.value();
    const Expr member = b.sequence({key, b.text(":"), parts_.space(), held});
    const Expr next = b.sequence({b.text(","), parts_.space(), member});
    const Expr list = b.repeat(next, 0, GrammarBuilder::kNoLimit);
    if (any) return b.sequence({list, close});
    return b.choice({b.nothing(), b.sequence({member, list, parts_.space()})});
  }

  // In drafts before 2020, a list of `items` has the meaning of prefixItems, and additionalItems
  // that of items.
  Expr array(JsonNode schema) {
    JsonNode items = schema.find("items"), prefix = schema.find("prefixItems");
    if (items.is_array() && !prefix) {
      prefix = items;
      items = schema.find("additionalItems");
    }
    if (prefix && !prefix.is_array()) wrong("expected 'prefixItems' to be a list");
    const std::int64_t least = count(schema, "minItems", 0);
    const std::int64_t most = count(schema, "maxItems", GrammarBuilder::kNoLimit);
    if (most != GrammarBuilder::kNoLimit && most < least) {
      return never("maxItems is less than minItems");
    }
    if (is_flag(schema.find("uniqueItems"), true) && is_of_constants(schema)) {
      const JsonNode held = target_of(items);
      std::vector<std::string> constants;
      add_constants(held, held.find("type"), constants);
      return texts_.each_once("[", constants, {}, least, most, "]");
    }
    std::vector<Expr> first;
    std::int64_t i = 0;
    for (const JsonNode p : prefix) {
      const Step step(*this, "prefixItems"), own(*this, std::to_string(i++));
      first.push_back(part(p));
    }
    std::optional<Expr> rest;
    if (items.is_object() || is_flag(items, true) || (!items && !prefix)) {
      const Step step(*this, "items");
      rest = items.is_object() ? part(items) : parts_.value();
    } else if (items && !items.is_boolean()) {
      wrong("expected 'items' to be a schema");
    }
    // If minItems exceeds the prefix, the further elements may be anything, as the draft says.
    if (!items && prefix && least > std::ssize(first)) rest = parts_.value();
    if (!rest && least > std::ssize(first)) {
      return never("minItems is more than there are prefixItems");
    }
    return parts_.list(first, rest, least, most);
  }

  // Whether an array's elements are among some constants.
  bool is_of_constants(JsonNode schema) const {
    const JsonNode items = schema.find("items");
    return !schema.find("prefixItems") && items.is_object() &&
           (items.size() == 1 || !items.find("$ref")) && are_few(target_of(items));
  }

  std::int64_t count(JsonNode schema, std::string_view keyword, std::int64_t fallback) const {
    const JsonNode found = schema.find(keyword);
    if (!found) return fallback;
    const auto value = found.whole();
    if (!value || *value < 0) wrong("expected '", keyword, "' to be a whole number, 0 or more");
    if (*value > GrammarBuilder::kMaxTimes) {
      // No reply reaches such a large upper bound, so it is ignored.
      if (keyword.starts_with("max")) return GrammarBuilder::kNoLimit;
      unsupported("'" + std::string(keyword) + "' is " + std::to_string(*value) + ", at most " +
                  std::to_string(GrammarBuilder::kMaxTimes) + " is supported");
    }
    return *value;
  }

  Expr constants(JsonNode schema) {
    const JsonNode list = schema.find("enum");
    if (list && !list.is_array()) wrong("expected 'enum' to be a list");
    check_keywords(schema, {"enum", "const", "type"});
    std::vector<std::string> texts;
    add_constants(schema, schema.find("type"), texts);
    if (texts.empty()) return never("no value of 'enum' or 'const' is of the 'type'");
    return parts_.one_of(texts);
  }

  Expr string(JsonNode schema) {
    const TextRules rules = text_rules(schema);
    if (!rules.has_length()) return never("maxLength is less than minLength");
    return texts_.string(rules, refuse_part());
  }

  TextRules text_rules(JsonNode schema) {
    const JsonNode pattern = schema.find("pattern"), format = schema.find("format"),
                   no = schema.find("not");
    TextRules rules = {.least = count(schema, "minLength", 0),
                       .most = count(schema, "maxLength", GrammarBuilder::kNoLimit)};
    if (pattern && !pattern.is_string()) wrong("expected 'pattern' to be a text");
    if (pattern) rules.pattern = pattern.text();
    if (format.is_string()) rules.format = format.text();
    if (use_of_format(rules.format) == FormatUse::unheld) {
      note_ignored("the format '" + std::string(rules.format) + "'");
    }
    if (refuses_some(no, "string")) {
      if (auto texts = refused_texts(no)) {
        rules.but = std::move(*texts);
      } else {
        note_ignored("the keyword 'not'");
      }
    }
    return rules;
  }

  Expr number(JsonNode schema, bool whole) {
    const NumberRange bounds =
        range_of(schema, [this](const std::string& mistake) { wrong(mistake); });
    const NumberRange range = whole ? whole_range(bounds) : bounds;
    if (is_empty(range)) {
      return never(std::string(whole ? "no whole" : "no") + " number is between " +
                   text_of(*range.least) + " and " + text_of(*range.most));
    }
    return multiples(schema, [&](GrammarBuilder& b, JsonParts& parts) {
      if (whole) return integer_in(b, range);
      return range.least || range.most ? number_in(b, range) : parts.number();
    });
  }

  // The numbers of a range that `multipleOf` allows.
  Expr multiples(JsonNode schema, const SchemaTexts::MakeRange& range) {
    const JsonNode step = schema.find("multipleOf"), type = schema.find("type");
    const bool of_one = step && step.whole() == 1 && type.is_string() && type.text() == "integer";
    if (!step || of_one) return range(builder_, parts_);
    if (!step.is_number() || !(step.number() > 0)) wrong("expected 'multipleOf' to be above 0");
    if (const auto found = texts_.multiples(decimal_of(step), range)) return *found;
    note_ignored("the keyword 'multipleOf'");
    return range(builder_, parts_);
  }

  JsonNode root_;
  std::string_view source_;
  std::string prefix_;  // prefix of its rules' names
  SchemaNotes* notes_;
  bool any_order_, open_;
  GrammarBuilder& builder_;
  JsonParts& parts_;
  std::size_t work_ = 0;
  SchemaTexts texts_;
  std::string place_ = "#";
  std::deque<Waiting> waiting_;
  std::size_t objects_ = 0;  // so far
  std::map<std::pair<const Json*, Part>, std::int32_t> rules_;
  std::set<std::string> names_of_rules_;
  std::map<const Json*, Names> names_;  // by their schema
};

}  // namespace

std::vector<std::int32_t> add_schema(GrammarBuilder& builder, JsonParts& parts,
                                     const SchemaSource& source,
                                     std::span<const SchemaPlace> wanted) {
  require(bool{source.root}, source.name, ": there is no schema");
  return SchemaReader(builder, parts, source).read(wanted);
}

std::int32_t add_schema(GrammarBuilder& builder, JsonParts& parts, const SchemaSource& source) {
  const SchemaPlace whole = {source.root, "#"};
  return add_schema(builder, parts, source, std::span(&whole, 1)).front();
}

std::shared_ptr<const Grammar> Grammar::from_json_schema(JsonNode schema, std::string_view source,
                                                         SchemaNotes* notes, GrammarStop stopped) {
  GrammarBuilder builder(source, std::move(stopped));
  JsonParts parts(builder);
  return builder.finish(add_schema(builder, parts, {schema, source, "", notes}));
}

std::shared_ptr<const Grammar> Grammar::from_json_schema(std::string_view text,
                                                         std::string_view source,
                                                         SchemaNotes* notes) {
  const Json tree = parse_json(text, source, kSchemaLimits);
  return from_json_schema(tree, source, notes);
}

std::shared_ptr<const Grammar> Grammar::any_json_object() {
  return from_json_schema(R"({"type": "object"})", "JSON");
}

}  // namespace leq

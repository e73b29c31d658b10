// JSON Schema (draft 2020-12) as a grammar of the texts that the schema accepts.
#include "grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr JsonLimits kSchemaLimits = {.bytes = 4u << 20, .values = 50'000};
constexpr std::size_t kMaxNotes = 20;

bool is_flag(JsonNode node, bool value) { return node.is_boolean() && node.boolean() == value; }

// Whether the schema is {}, true, or {"type": "string"}, which every property name satisfies.
bool allows_any_name(JsonNode schema) {
  if (is_flag(schema, true)) return true;
  if (!schema.is_object() || schema.size() > 1) return false;
  const JsonNode type = schema.find("type");
  return schema.size() == 0 || (type.is_string() && type.text() == "string");
}

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
        parts_(parts) {}

  std::vector<std::int32_t> read(std::span<const SchemaPlace> wanted) {
    std::vector<std::int32_t> rules;
    for (const SchemaPlace& place : wanted) rules.push_back(rule_of(place.schema, place.path));
    // A loop instead of recursion, because schemas may refer to each other in chains of any length.
    while (!waiting_.empty()) {
      const Waiting next = waiting_.back();
      waiting_.pop_back();
      place_ = next.place;
      builder_.define(next.rule, value(next.schema));
    }
    return rules;
  }

 private:
  struct Waiting {
    std::int32_t rule;
    JsonNode schema;
    std::string place;
  };
  struct Property {
    std::string_view name;
    JsonNode schema;  // nothing: any value
    bool required = false;
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
      reader_.place_ += "/" + printable(name);
    }
    ~Step() { reader_.place_.resize(length_); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    SchemaReader& reader_;
    std::size_t length_;
  };

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
    if (notes_->size() < kMaxNotes && std::ranges::find(*notes_, line) == notes_->end()) {
      notes_->push_back(std::move(line));
    }
  }

  // Throws Unsupported; in loose mode the caller then enforces only the type.
  [[noreturn]] void unsupported(const std::string& what) const {
    if (notes_ == nullptr) wrong(what);
    throw Unsupported{what};
  }

  std::int32_t rule_of(JsonNode schema, const std::string& place) {
    const std::string name = prefix_ + "schema " + place;
    const std::int32_t rule = builder_.rule(name);
    if (asked_.insert(rule).second) waiting_.push_back({rule, schema, place});
    return rule;
  }

  // Reports ignored keywords, except those that do not restrict values of the schema's type.
  void check_keywords(JsonNode schema, std::initializer_list<std::string_view> known) {
    const JsonNode type = schema.find("type");
    for (const JsonNode k : schema) {
      if (is_note(k.key()) || std::ranges::find(known, k.key()) != known.end()) continue;
      const std::string_view applies_to = type_of_keyword(k.key());
      if (type && !applies_to.empty() && !may_be(type, applies_to)) continue;
      if (restricts_nothing(schema, k)) continue;
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
      return loose_value(schema);
    }
  }

  // A value that is checked only for its type, if the schema names one.
  Expr loose_value(JsonNode schema) {
    const JsonNode type = schema.find("type");
    const std::string_view name = type.is_string() ? std::string_view(type.text())
                                  : type           ? ""
                                                   : implied_type(schema);
    if (name == "object") return parts_.object();
    if (name == "array") return parts_.array();
    if (name == "string") return parts_.string();
    if (name == "integer") return parts_.integer();
    if (name == "number") return parts_.number();
    return parts_.value();
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
    if (schema.find("allOf")) return all_of(schema);
    const JsonNode type = schema.find("type");
    if (type.is_array()) {  // each type is built from the keywords that apply to it
      std::vector<Expr> ways;
      for (const JsonNode one : type) {
        if (!one.is_string()) wrong("expected the types to be texts");
        ways.push_back(typed(schema, one.text()));
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
    const std::initializer_list<std::string_view> kTyped = {
        "type",          "properties",        "required",         "additionalProperties",
        "propertyNames", "patternProperties", "minProperties",    "maxProperties",
        "items",         "prefixItems",       "additionalItems",  "minItems",
        "maxItems",      "minLength",         "maxLength",        "pattern",
        "minimum",       "maximum",           "exclusiveMinimum", "exclusiveMaximum",
    };
    check_keywords(schema, kTyped);
    if (type.empty()) return parts_.value();
    if (type == "null") return parts_.null();
    if (type == "boolean") return parts_.boolean();
    if (type == "string") return string(schema);
    if (type == "integer") return integer(schema);
    if (type == "number") return number(schema);
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
    if (name == "#") return {at, place};
    if (!name.starts_with("#/"))
      unsupported("$ref '" + printable(name) + "': expected #/ and a path");
    for (const std::string_view step : split(name.substr(2), "/")) {
      const std::string key = replace_all(replace_all(step, "~1", "/"), "~0", "~");
      JsonNode next = at.find(key);
      if (at.is_array()) {
        const auto index = parse_int(key);
        next = index && *index >= 0 ? at[static_cast<std::size_t>(*index)] : JsonNode();
      }
      if (!next) wrong("$ref '", printable(name), "': there is no '", printable(key), "'");
      at = next;
      place += "/" + std::string(step);
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
    std::set<std::string> known;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const JsonNode one = list[i];
      const Step inner(*this, std::to_string(i));
      const JsonNode own = one.find("type");
      const bool agrees = type && type.is_string() && own.is_string() && own.text() == type.text();
      if (type && !agrees) {
        note_ignored("a 'type' beside '" + std::string(keyword) +
                     "' that an alternative does not repeat");
      }
      const std::size_t before = constants.size();
      if ((one.find("const") || one.find("enum")) && has_only(one, {"const", "enum"})) {
        add_constants(one, own, constants);
      } else {
        ways.push_back(value(one));
      }
      bool is_new = ways.empty();  // constants are compared with all others at once
      for (std::size_t c = before; c < constants.size(); ++c) {
        is_new = known.insert(constants[c]).second && is_new;
      }
      if (keyword == "oneOf" && !is_new) require_disjoint(list, i);
    }
    if (!constants.empty()) ways.push_back(parts_.one_of(constants));
    return builder_.choice(std::move(ways));
  }

  // oneOf requires that exactly one alternative is valid, which a grammar cannot check.
  void require_disjoint(JsonNode list, std::size_t place) {
    for (std::size_t i = 0; i < place; ++i) {
      if (disjoint(target_of(list[place]), target_of(list[i]))) continue;
      if (notes_ != nullptr) return note_ignored("that no other alternative of 'oneOf' holds");
      wrong("it may hold together with alternative ", i,
            " of 'oneOf': give both a different type, or a required property with different "
            "constants, or write anyOf");
    }
  }

  JsonNode target_of(JsonNode schema) const {
    for (int i = 0; i < 20; ++i) {
      const JsonNode name = schema.find("$ref");
      if (!name.is_string()) return schema;
      schema = resolve(name.text()).first;
    }
    return schema;
  }

  // An object that has the properties of all subschemas of allOf.
  Expr all_of(JsonNode schema) {
    const JsonNode list = schema.find("allOf");
    if (!list.is_array() || list.size() == 0) wrong("expected 'allOf' to be a list");
    bool only = list.size() == 1;
    for (const JsonNode k : schema) {
      only = only && (k.key() == "allOf" || is_note(k.key()));
    }
    const Step step(*this, "allOf");
    if (only) return value(list.first());
    std::vector<Property> all;
    bool closed = false;
    check_keywords(schema, {"allOf", "type", "properties", "required", "additionalProperties"});
    take_properties(schema, all, closed);
    for (const JsonNode one : list) {
      const JsonNode target = target_of(one);
      check_keywords(target, {"type", "properties", "required", "additionalProperties"});
      take_properties(target, all, closed);
    }
    if (closed) unsupported("additionalProperties within 'allOf' is not supported");
    return object_of(all, JsonNode(), open_ ? Others::allowed : Others::refused);
  }

  // Whether the keyword, with its given value, is satisfied by all values.
  bool restricts_nothing(JsonNode schema, JsonNode keyword) const {
    const std::string_view name = keyword.key();
    const auto whole = keyword.is_number() ? keyword.whole() : std::nullopt;
    const JsonNode type = schema.find("type");
    if (name == "uniqueItems") {
      const JsonNode most = schema.find("maxItems");
      return is_flag(keyword, false) || (most.is_number() && most.number() <= 1);
    }
    if (name == "multipleOf") return whole == 1 && type.is_string() && type.text() == "integer";
    if (name == "not") return is_flag(keyword, false);
    if (name == "if") return !schema.find("then") && !schema.find("else");
    if (name == "then" || name == "else") return !schema.find("if");
    if (name == "minContains" || name == "maxContains") return !schema.find("contains");
    if (name == "dependentRequired" || name == "dependentSchemas" || name == "dependencies") {
      return keyword.is_object() && keyword.size() == 0;
    }
    // If properties are named, the grammar allows others only if additionalProperties is given.
    if (name == "unevaluatedProperties") {
      return is_flag(keyword, true) ||
             (schema.find("properties") && !schema.find("additionalProperties"));
    }
    return name == "unevaluatedItems" && is_flag(keyword, true);
  }

  void take_properties(JsonNode schema, std::vector<Property>& all, bool& closed) {
    const JsonNode type = schema.find("type");
    if (type && !(type.is_string() && type.text() == "object")) {
      unsupported("'allOf' is supported for objects alone");
    }
    const JsonNode more = schema.find("additionalProperties");
    closed = closed || (more && !is_flag(more, true));
    collect(schema, all);
  }

  // Properties in the schema's order, followed by those that are only listed in `required`.
  void collect(JsonNode schema, std::vector<Property>& all) const {
    const JsonNode properties = schema.find("properties"), required = schema.find("required");
    if (properties && !properties.is_object()) wrong("expected 'properties' to be an object");
    // In draft 3 `required` is a boolean of each property, which is ignored.
    if (required && !required.is_array() && !required.is_boolean()) {
      wrong("expected 'required' to be a list");
    }
    std::set<std::string_view> names;
    for (const Property& p : all) names.insert(p.name);
    for (const JsonNode p : properties) {
      if (!names.insert(p.key()).second) {
        unsupported("the property '" + printable(p.key()) + "' occurs twice");
      }
      all.push_back({p.key(), p, false});
    }
    std::set<std::string_view> wanted;
    for (const JsonNode r : required) {
      if (!r.is_string()) wrong("expected the names in 'required' to be texts");
      wanted.insert(r.text());
      if (names.insert(r.text()).second) all.push_back({r.text(), JsonNode(), false});
    }
    for (Property& p : all) p.required = p.required || wanted.contains(p.name);
  }

  Expr object(JsonNode schema) {
    const JsonNode more = schema.find("additionalProperties");
    std::vector<Property> all;
    collect(schema, all);
    if (all.empty()) {
      if (const auto found = dictionary(schema)) return *found;
    }
    const bool refuses_more = is_flag(more, false);
    std::int64_t required = 0;
    for (const Property& p : all) {
      required += p.required ? 1 : 0;
      if (refuses_more && !p.schema) {
        wrong("'", printable(p.name), "' is required, and additionalProperties allows it not");
      }
    }
    const JsonNode names = schema.find("propertyNames"),
                   patterns = schema.find("patternProperties");
    if (names && !allows_any_name(names) && !refuses_more)
      note_ignored("the keyword 'propertyNames'");
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
    return object_of(all, more, open ? Others::allowed : Others::refused);
  }

  // An object without named properties whose property names or number of properties are restricted;
  // nullopt if neither is restricted or the restriction cannot be enforced.
  std::optional<Expr> dictionary(JsonNode schema) {
    GrammarBuilder& b = builder_;
    const JsonNode more = schema.find("additionalProperties"),
                   names = target_of(schema.find("propertyNames")),
                   patterns = schema.find("patternProperties");
    const std::int64_t least = count(schema, "minProperties", 0);
    const std::int64_t most = count(schema, "maxProperties", GrammarBuilder::kNoLimit);
    const bool has_patterns = patterns.is_object() && patterns.size() > 0;
    const bool has_names = names && !allows_any_name(names) && !has_patterns;
    const bool counted = least > 0 || most != GrammarBuilder::kNoLimit;
    if (!has_names && !counted && !has_patterns) return std::nullopt;
    // Patterns are not supported if a name could match several of these schemas.
    if (has_patterns && (patterns.size() > 1 || !is_flag(more, false))) return std::nullopt;
    if (!has_patterns && is_flag(more, false)) return std::nullopt;
    if (most != GrammarBuilder::kNoLimit && most < least) {
      wrong("maxProperties is less than minProperties");
    }
    Expr key = parts_.string();
    if (has_names) {
      const Step step(*this, "propertyNames");
      key = names.find("enum") || names.find("const") ? constants(names) : typed(names, "string");
    }
    if (has_patterns) {
      const auto inside = pattern(patterns.first().key());
      if (inside) key = b.sequence({b.text("\""), *inside, b.text("\"")});
    }
    const JsonNode held = has_patterns ? patterns.first() : more;
    const Step step(*this, has_patterns ? "patternProperties" : "additionalProperties");
    const Expr member = b.sequence(
        {key, b.text(":"), parts_.space(), held.is_object() ? value(held) : parts_.value()});
    const Expr next = b.sequence({b.text(","), parts_.space(), member});
    const std::int64_t most_left =
        most == GrammarBuilder::kNoLimit ? most : std::max<std::int64_t>(most - 1, 0);
    const Expr some = b.sequence(
        {member, b.repeat(next, std::max<std::int64_t>(least - 1, 0), most_left), parts_.space()});
    const Expr inner = most == 0 ? b.nothing() : least > 0 ? some : b.optional(some);
    return b.sequence({b.text("{"), parts_.space(), inner, b.text("}")});
  }

  Expr object_in_any_order(const std::vector<Property>& all, JsonNode more, Others others) {
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
      const Expr key = names.empty() ? parts_.string() : parts_.string_but(names);
      const Expr held = more.is_object() ? value(more) : parts_.value();
      set.other = define("other", b.sequence({key, b.text(":"), parts_.space(), held}));
    }
    return b.sequence(
        {b.text("{"), parts_.space(), b.set(std::move(set)), parts_.space(), b.text("}")});
  }

  // `more`: the schema of further properties, if they are allowed.
  Expr object_of(const std::vector<Property>& all, JsonNode more, Others others) {
    GrammarBuilder& b = builder_;
    const Step step(*this, "properties");
    if (any_order_) return object_in_any_order(all, more, others);
    const std::string prefix = prefix_ + "members " + std::to_string(objects_++) + " ";
    // One rule for each number of properties handled so far and for whether one of them was
    // written.
    const auto rule_at = [&](std::size_t i, bool any) {
      return b.rule(prefix + std::to_string(i) + (any ? " more" : ""));
    };
    for (std::size_t i = 0; i <= all.size(); ++i) {
      std::optional<Expr> member;
      if (i < all.size()) member = member_of(all[i]);
      for (const bool any : {false, true}) {
        if (any && i == 0) continue;
        if (i == all.size()) {
          b.define(rule_at(i, any), other_members(all, more, others, any));
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
    }
    return b.sequence({b.text("{"), parts_.space(), b.call(rule_at(0, false)), b.text("}")});
  }

  Expr member_of(const Property& property) {
    GrammarBuilder& b = builder_;
    const Step step(*this, property.name);
    return b.sequence({b.text("\""), parts_.written(property.name), b.text("\":"), parts_.space(),
                       property.schema ? value(property.schema) : parts_.value()});
  }

  // Further properties up to the closing bracket, including the white space before it.
  Expr other_members(const std::vector<Property>& all, JsonNode more, Others others, bool any) {
    GrammarBuilder& b = builder_;
    const Expr close = any ? parts_.space() : b.nothing();
    if (others == Others::refused) return close;
    std::vector<std::string_view> names;
    for (const Property& p : all) names.push_back(p.name);
    const Step step(*this, "additionalProperties");
    const Expr key = names.empty() ? parts_.string() : parts_.string_but(names);
    const Expr held = more.is_object() ? value(more) : parts_.value();
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
    if (most != GrammarBuilder::kNoLimit && most < least) wrong("maxItems is less than minItems");
    std::vector<Expr> first;
    std::int64_t i = 0;
    for (const JsonNode p : prefix) {
      const Step step(*this, "prefixItems/" + std::to_string(i++));
      first.push_back(value(p));
    }
    std::optional<Expr> rest;
    if (items.is_object() || is_flag(items, true) || (!items && !prefix)) {
      const Step step(*this, "items");
      rest = items.is_object() ? value(items) : parts_.value();
    } else if (items && !items.is_boolean()) {
      wrong("expected 'items' to be a schema");
    }
    // If minItems exceeds the prefix, the further elements may be anything, as the draft says.
    if (!items && prefix && least > std::ssize(first)) rest = parts_.value();
    if (!rest && least > std::ssize(first)) wrong("minItems is more than there are prefixItems");
    return items_from(first, rest, least, most);
  }

  Expr items_from(const std::vector<Expr>& first, std::optional<Expr> rest, std::int64_t least,
                  std::int64_t most) {
    GrammarBuilder& b = builder_;
    // Built from the last element to the first; an element may be the last one once minItems is
    // met.
    const auto prefixes = std::ssize(first);
    const bool unlimited = most == GrammarBuilder::kNoLimit;
    const std::int64_t fixed = unlimited ? prefixes : std::min(prefixes, most);
    Expr tail = b.nothing();
    if (rest && (unlimited || most > prefixes)) {
      const Expr next = b.sequence({b.text(","), parts_.space(), *rest});
      const std::int64_t need = std::max<std::int64_t>(least - prefixes, 0);
      const std::int64_t most_left = unlimited ? most : most - prefixes;
      if (prefixes == 0) {
        tail = b.sequence({*rest, b.repeat(next, std::max<std::int64_t>(need - 1, 0),
                                           unlimited ? most_left : most_left - 1)});
        if (need == 0) tail = b.optional(tail);
      } else {
        tail = b.repeat(next, need, most_left);
      }
    }
    // Each element is a rule of its own, because a long list would nest too deeply as an
    // expression.
    for (std::int64_t at = fixed; at-- > 0;) {
      std::vector<Expr> parts;
      if (at > 0) parts = {b.text(","), parts_.space()};
      parts.push_back(first[static_cast<std::size_t>(at)]);
      parts.push_back(tail);
      const std::int32_t rule = b.rule("items " + std::to_string(b.rules()));
      const Expr whole = b.sequence(std::move(parts));
      b.define(rule, at < least ? whole : b.optional(whole));
      tail = b.call(rule);
    }
    return b.sequence({b.text("["), parts_.space(), tail, parts_.space(), b.text("]")});
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
    if (texts.empty()) wrong("no value of 'enum' or 'const' is of the 'type'");
    return parts_.one_of(texts);
  }

  // Adds the constants of the given type; if there are both `const` and `enum`, only the const.
  void add_constants(JsonNode schema, JsonNode type, std::vector<std::string>& texts) const {
    const JsonNode list = schema.find("enum"), one = schema.find("const");
    const std::string only = one ? one.dump() : std::string();
    const std::size_t values = list ? list.size() : one ? 1 : 0;
    for (std::size_t i = 0; i < values; ++i) {
      const JsonNode v = list ? list[i] : one;
      if (type && !has_type(v, type)) continue;
      std::string text = v.dump();
      if (!one || text == only) texts.push_back(std::move(text));
    }
  }

  // Returns nullopt if the pattern is not supported, and notes this.
  std::optional<Expr> pattern(std::string_view expression) {
    const std::string place = std::string(source_) + ": " + place_;
    if (notes_ == nullptr) return pattern_expression(builder_, parts_, expression, place);
    try {
      return pattern_expression(builder_, parts_, expression, place);
    } catch (const Error&) {
      note_ignored("the keyword 'pattern'");
      return std::nullopt;
    }
  }

  // Only one of pattern, the format's pattern and the lengths is enforced, in this order of
  // priority; the others are noted, except a format, because by the draft it does not restrict
  // values.
  Expr string(JsonNode schema) {
    GrammarBuilder& b = builder_;
    const JsonNode wanted = schema.find("pattern"), format = schema.find("format");
    const std::int64_t least = count(schema, "minLength", 0);
    const std::int64_t most = count(schema, "maxLength", GrammarBuilder::kNoLimit);
    const bool counted = least > 0 || most != GrammarBuilder::kNoLimit;
    if (wanted && !wanted.is_string()) wrong("expected 'pattern' to be a text");
    if (most != GrammarBuilder::kNoLimit && most < least) wrong("maxLength is less than minLength");
    std::optional<Expr> inside;
    if (wanted) inside = pattern(wanted.text());
    const std::string_view known =
        format.is_string() ? format_pattern(format.text()) : std::string_view();
    if (!inside && !known.empty() && (wanted || !counted)) inside = pattern(known);
    if (inside) {
      if (counted) note_ignored("a length beside 'pattern' or 'format'");
      return b.sequence({b.text("\""), *inside, b.text("\"")});
    }
    if (!counted) return parts_.string();
    return b.sequence({b.text("\""), b.repeat(parts_.character(), least, most), b.text("\"")});
  }

  // The tighter one of each pair of bounds. In draft 4, boolean flags make a bound exclusive.
  NumberRange range_of(JsonNode schema) const {
    NumberRange range;
    const auto take = [&](std::string_view keyword, std::optional<Decimal>& bound, bool& out,
                          bool exclusive, int inward) {
      const JsonNode node = schema.find(keyword);
      if (!node || (exclusive && node.is_boolean())) return;
      if (!node.is_number()) wrong("expected '", keyword, "' to be a number");
      const Decimal value = decimal_of(node);
      const int order = bound ? compare(value, *bound) * inward : 1;
      if (order > 0) out = exclusive;
      if (order == 0) out = out || exclusive;
      if (order > 0) bound = value;
    };
    take("minimum", range.least, range.above_least, false, 1);
    take("exclusiveMinimum", range.least, range.above_least, true, 1);
    take("maximum", range.most, range.below_most, false, -1);
    take("exclusiveMaximum", range.most, range.below_most, true, -1);
    const auto is_true = [&](std::string_view keyword) {
      const JsonNode node = schema.find(keyword);
      return node.is_boolean() && node.boolean();
    };
    range.above_least = range.above_least || is_true("exclusiveMinimum");
    range.below_most = range.below_most || is_true("exclusiveMaximum");
    if (is_empty(range)) {
      wrong("no number is between ", text_of(*range.least), " and ", text_of(*range.most));
    }
    return range;
  }

  Expr integer(JsonNode schema) {
    const NumberRange range = whole_range(range_of(schema));
    if (is_empty(range)) {
      wrong("no whole number is between ", text_of(*range.least), " and ", text_of(*range.most));
    }
    return integer_in(builder_, range);
  }

  Expr number(JsonNode schema) {
    const NumberRange range = range_of(schema);
    return !range.least && !range.most ? parts_.number() : number_in(builder_, range);
  }

  JsonNode root_;
  std::string_view source_;
  std::string prefix_;  // prefix of its rules' names
  SchemaNotes* notes_;
  bool any_order_, open_;
  GrammarBuilder& builder_;
  JsonParts& parts_;
  std::string place_ = "#";
  std::vector<Waiting> waiting_;
  std::size_t objects_ = 0;  // number of objects so far
  std::set<std::int32_t> asked_;
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
                                                         SchemaNotes* notes) {
  GrammarBuilder builder(source);
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

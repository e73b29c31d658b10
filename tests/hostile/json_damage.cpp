#include "hostile/json_damage.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace leq::hostile {
namespace {

using Json = nlohmann::ordered_json;
using Pointer = Json::json_pointer;

// A text that is written verbatim instead of a value; some of these are not JSON.
struct Spelling {
  std::string name;
  std::string text;
  JsonHarm harm;
};

const std::vector<Spelling>& numbers() {
  static const std::vector<Spelling> kNumbers = [] {
    std::vector<Spelling> all;
    for (const char* text : {"0",
                             "-0",
                             "-1",
                             "1",
                             "3",
                             "255",
                             "1048577",
                             "2147483647",
                             "2147483648",
                             "4294967295",
                             "4294967296",
                             "-2147483649",
                             "9223372036854775807",
                             "9223372036854775808",
                             "18446744073709551615",
                             "18446744073709551616",
                             "-9223372036854775809",
                             "0.5",
                             "-0.0",
                             "1e-310",
                             "1e308",
                             "-1e308",
                             "1e39",
                             "3.0"}) {
      all.push_back({text, text, JsonHarm::value});
    }
    for (const char* text : {"NaN", "Infinity", "1e999", "-1e999", "0x10", "01", "1.", "+1", "--1",
                             "1e", "'x'", "undefined", "tru", ":"}) {
      all.push_back({std::string("malformed ") + text, text, JsonHarm::malformed});
    }
    return all;
  }();
  return kNumbers;
}

const std::vector<Spelling>& types() {
  static const std::vector<Spelling> kTypes = [] {
    std::vector<Spelling> all;
    for (const char* text :
         {"null", "true", "\"\"", "\"x\"", "\"nan\"", "\"1\"", "[]", "{}", "[[]]", "[0,0]",
          "[-1,1e30]", R"({"x":0})", "\"\\u001b[31mred\\u0007\"", "\"a\\nb\\rc\\u0000d\"",
          "\"../../../etc/passwd\"", "\"/dev/zero\"", "1", "-1.5"}) {
      all.push_back({text, text, JsonHarm::type});
    }
    all.push_back({"long text", '"' + std::string(100'000, 'x') + '"', JsonHarm::type});
    all.push_back({"no UTF-8", "\"a\xff\xfe\"", JsonHarm::malformed});
    all.push_back({"half a surrogate", "\"\\ud83d\"", JsonHarm::malformed});
    all.push_back({"half a string", "\"abc", JsonHarm::malformed});
    return all;
  }();
  return kTypes;
}

std::string repeated(const std::string& part, std::size_t count) {
  std::string text;
  text.reserve(part.size() * count);
  for (std::size_t i = 0; i < count; ++i) text += part;
  return text;
}

std::vector<Spelling> bombs(Dice& dice) {
  const std::size_t deep = dice.chance(0.5) ? 200 : 200'000;
  const std::size_t many = dice.chance(0.8) ? 200'000 : 4'000'000;
  switch (dice.below(4)) {
    case 0:
      return {{"deep", repeated("[", deep) + repeated("]", deep), JsonHarm::bomb}};
    case 1:
      return {
          {"deep objects", repeated("{\"a\":", deep) + "0" + repeated("}", deep), JsonHarm::bomb}};
    case 2:
      return {{"many lists", "[" + repeated("[],", many) + "0]", JsonHarm::bomb}};
    default:
      return {{"many numbers", "[" + repeated("7,", many) + "0]", JsonHarm::bomb}};
  }
}

// Writes the value at `from`. At `target` it writes the text `instead`, omits the member if
// `instead` is null, or writes it after the original value.
class Writer {
 public:
  Writer(const Pointer& target, const std::string* instead, bool both)
      : target_(target.to_string()), instead_(instead), both_(both) {}

  void write(const Json& value, const std::string& at) {
    if (at == target_ && instead_ != nullptr && !both_) {
      out_ += *instead_;
    } else if (value.is_object()) {
      write_object(value, at);
    } else if (value.is_array()) {
      write_array(value, at);
    } else {
      out_ += value.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
  }
  std::string& text() { return out_; }

 private:
  static std::string escaped(std::string name) {
    std::string out;
    for (const char c : name) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    return out;
  }
  void write_object(const Json& value, const std::string& at) {
    out_ += '{';
    bool first = true;
    for (const auto& [name, member] : value.items()) {
      const std::string below = at + "/" + escaped(name);
      if (below == target_ && instead_ == nullptr) continue;
      if (!first) out_ += ',';
      first = false;
      const std::string key = Json(name).dump() + ":";
      out_ += key;
      write(member, below);
      if (below == target_ && both_) out_ += "," + key + *instead_;
    }
    out_ += '}';
  }
  void write_array(const Json& value, const std::string& at) {
    out_ += '[';
    bool first = true;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::string below = at + "/" + std::to_string(i);
      if (below == target_ && instead_ == nullptr) continue;
      if (!first) out_ += ',';
      first = false;
      write(value[i], below);
    }
    out_ += ']';
  }

  std::string target_;
  const std::string* instead_;
  bool both_;
  std::string out_;
};

std::string written(const Json& json, const Pointer& target, const std::string* instead,
                    bool both = false) {
  Writer writer(target, instead, both);
  writer.write(json, "");
  return std::move(writer.text());
}

// Chooses a random path; lists and objects with thousands of members count as one step.
Pointer choose(const Json& json, Dice& dice) {
  Pointer at;
  const Json* value = &json;
  while (value->is_structured() && !value->empty()) {
    if (!at.empty() && dice.chance(0.15)) break;
    const auto step = static_cast<std::ptrdiff_t>(dice.below(value->size()));
    const auto member = std::next(value->begin(), step);
    at.push_back(value->is_object() ? member.key() : std::to_string(step));
    value = &*member;
  }
  return at;
}

const Json& parent_of(const Json& json, const Pointer& at) { return json.at(at.parent_pointer()); }

DamagedJson damage_around(std::string_view text, Dice& dice) {
  const std::string whole(text);
  const std::size_t half = dice.below(text.size());
  const std::vector<Spelling> all = {
      {"empty", "", JsonHarm::malformed},
      {"spaces", "  \n\t ", JsonHarm::malformed},
      {"cut", whole.substr(0, half), JsonHarm::malformed},
      {"NUL after it", whole + std::string(3, '\0'), JsonHarm::malformed},
      {"words after it", whole + "\nx", JsonHarm::malformed},
      {"twice", whole + whole, JsonHarm::malformed},
      {"comment", "// no comment\n" + whole, JsonHarm::malformed},
      {"NUL inside", whole.substr(0, half) + '\0' + whole.substr(half), JsonHarm::value},
      {"null", "null", JsonHarm::type},
      {"list", "[]", JsonHarm::type},
      {"number", "17", JsonHarm::type},
      {"object", "{}", JsonHarm::type},
      {"UTF-16", "\xff\xfe{\0}\0", JsonHarm::malformed},
      {"spaces around", "\n \t" + whole + "\r\n  ", JsonHarm::none}};
  const Spelling& chosen = dice.of(all);
  // A cut after the last brace removes nothing from the value.
  const bool same = chosen.name == "cut" && half + 1 >= text.size();
  return {chosen.text, "", "text: " + chosen.name, same ? JsonHarm::value : chosen.harm};
}

}  // namespace

DamagedJson damage_json(std::string_view text, Dice& dice) {
  if (dice.chance(0.15)) return damage_around(text, dice);
  const Json json = Json::parse(text);
  const Pointer at = choose(json, dice);
  const std::string where = at.to_string();
  if (at.empty()) return damage_around(text, dice);
  const bool member = parent_of(json, at).is_object();
  const double kind = static_cast<double>(dice.below(100)) / 100;
  if (kind < 0.12)
    return {written(json, at, nullptr), where, "missing",
            member ? JsonHarm::missing : JsonHarm::value};
  if (kind < 0.20 && member) {
    const std::string other = dice.of(numbers()).text;
    const std::string again = other.empty() || json.at(at).is_number() ? "123457" : "null";
    return {written(json, at, &again, true), where, "twice", JsonHarm::duplicate};
  }
  if (kind < 0.24) {
    Json more = json;
    if (member) {
      more.at(at.parent_pointer())["nobody_knows_this"] = {{"x", {1, 2, nullptr}}};
      return {more.dump(), where, "unknown member beside it", JsonHarm::unknown};
    }
  }
  std::vector<Spelling> spellings = kind < 0.30 ? bombs(dice) : kind < 0.70 ? numbers() : types();
  const Spelling& chosen = dice.of(spellings);
  JsonHarm harm = chosen.harm;
  const Json& old = json.at(at);
  if (harm == JsonHarm::value && !old.is_number()) harm = JsonHarm::type;
  if (harm == JsonHarm::type && Json::parse(chosen.text).type() == old.type()) {
    harm = JsonHarm::value;
  }
  if (harm == JsonHarm::value && Json::parse(chosen.text) == old) harm = JsonHarm::same;
  return {written(json, at, &chosen.text), where, chosen.name.substr(0, 40), harm};
}

}  // namespace leq::hostile

#include "grammar/schema_texts.h"

#include <algorithm>
#include <array>
#include <deque>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "grammar/automaton.h"
#include "grammar/json_schema.h"

namespace leq {
namespace {

using Expr = GrammarBuilder::Expr;
using State = GrammarAutomaton::State;

constexpr std::size_t kMaxStates = 50'000;  // of one machine
// Work on one machine and on all of a schema, in stacks of the states that are followed.
constexpr std::size_t kMaxWork = 250'000, kMaxWorkOfAll = 1'000'000;
constexpr std::size_t kMaxUnordered = 300;      // places of a pattern that is no machine
constexpr std::int64_t kMaxRemainders = 1'000;  // of multiples

// Formats as patterns; where a format has several, all of them hold. Each is a subset of what the
// format's specification allows.
const std::map<std::string, std::string, std::less<>>& formats() {
  // Only existing days of years 1000 to 2999, with 29 February in leap years.
  static const std::string kLeap =
      "(?:[12][0-9](?:0[48]|[2468][048]|[13579][26])|(?:1[26]|2[048])00)";
  static const std::string kDate =
      "(?:[12][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
      "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" +
      kLeap + "-02-29)";
  static const std::string kTime =
      "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
      "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
  // RFC 3339, appendix A: units follow each other without a gap.
  static const std::string kN = "[0-9]{1,9}";
  static const std::string kDays = kN + "(?:D|M(?:" + kN + "D)?|Y(?:" + kN + "M(?:" + kN + "D)?)?)";
  static const std::string kHours =
      "T" + kN + "(?:S|M(?:" + kN + "S)?|H(?:" + kN + "M(?:" + kN + "S)?)?)";
  // At most 5 names of 49 characters, which is less than the 253 that a host's name may have.
  static const std::string kLabel = "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,24}";
  static const std::string kTop = "[A-Za-z](?:-?[A-Za-z0-9]){0,24}";
  static const std::string kHost = "(?:" + kLabel + "\\.){0,4}" + kTop;
  static const std::string kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  static const std::string kHex = "[0-9a-fA-F]{1,4}";
  static const std::string kIpv6 = [] {
    std::string ways = "(?:" + kHex + ":){7}" + kHex + "|::(?:" + kHex + "(?::" + kHex + "){0,5})?";
    for (int before = 1; before <= 6; ++before) {  // groups before "::"
      const std::string begin = "|(?:" + kHex + ":){" + std::to_string(before) + "}:";
      ways += begin;
      if (before < 6) {
        ways += "(?:" + kHex + "(?::" + kHex + "){0," + std::to_string(5 - before) + "})?";
      }
    }
    return "(?:" + ways + ")";
  }();
  static const std::string kPathChar = "[A-Za-z0-9._~!$&'()*+,;=:@-]";
  static const std::string kUri = "[A-Za-z][A-Za-z0-9+.-]{0,20}:(?://" + kHost +
                                  "(?::[0-9]{1,4})?(?:/" + kPathChar + "*)*|" + kPathChar +
                                  "+(?:/" + kPathChar +
                                  "+)*)(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"
                                  "(?:#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?";
  static const std::map<std::string, std::string, std::less<>> kPatterns = {
      {"date", "^" + kDate + "$"},
      {"time", "^" + kTime + "$"},
      {"date-time", "^" + kDate + "T" + kTime + "$"},
      {"duration", "^P(?:" + kN + "W|" + kDays + "(?:" + kHours + ")?|" + kHours + ")$"},
      {"email",
       "^[A-Za-z0-9_+](?:[.-]?[A-Za-z0-9_+]){0,31}@(?:" + kLabel + "\\.){1,4}" + kTop + "$"},
      {"hostname", "^" + kHost + "$"},
      {"ipv4", "^" + kByte + "(?:\\." + kByte + "){3}$"},
      {"ipv6", "^" + kIpv6 + "$"},
      {"uri", "^" + kUri + "$"},
      {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"}};
  return kPatterns;
}

// Merges equal successors of neighbouring bytes into one edge.
void add_edge(std::vector<Grammar::Edge>& edges, std::uint8_t byte, std::int32_t to) {
  if (!edges.empty() && edges.back().to == to && edges.back().last + 1 == byte) {
    edges.back().last = byte;
  } else {
    edges.push_back({byte, byte, to});
  }
}

}  // namespace

FormatUse use_of_format(std::string_view format) {
  constexpr std::array<std::string_view, 9> kUnheld = {
      "idn-email",     "idn-hostname", "iri",
      "iri-reference", "json-pointer", "relative-json-pointer",
      "regex",         "uri-template", "uri-reference"};
  if (formats().contains(format)) return FormatUse::held;
  const bool unheld = std::ranges::find(kUnheld, format) != kUnheld.end();
  return unheld ? FormatUse::unheld : FormatUse::describes;
}

SchemaTexts::Language SchemaTexts::alone(const MakeRange& make) {
  GrammarBuilder builder(source_, [this] {
    work_ += GrammarBuilder::kStepsOfALook;
    builder_.look();
    return false;
  });
  JsonParts parts(builder);
  const std::int32_t root = builder.rule("text");
  builder.define(root, make(builder, parts));
  return builder.finish(root);
}

std::optional<Expr> SchemaTexts::common(std::span<const Language> languages) {
  if (work_ >= kMaxWorkOfAll) return std::nullopt;
  std::deque<GrammarAutomaton> automata;
  std::map<std::vector<State>, std::int32_t> ids;
  std::vector<std::vector<State>> all;
  const auto id_of = [&](const std::vector<State>& states) {
    const auto [known, is_new] = ids.emplace(states, static_cast<std::int32_t>(all.size()));
    if (is_new) all.push_back(states);
    return known->second;
  };
  std::vector<GrammarBuilder::ByteState> made;
  const std::size_t most_work = std::min(work_ + kMaxWork, kMaxWorkOfAll);
  try {
    std::vector<State> next;
    for (const Language& language : languages) {
      automata.emplace_back(language);
      next.push_back(automata.back().start());
    }
    id_of(next);
    for (std::size_t i = 0; i < all.size(); ++i) {
      builder_.count_step();
      if (all.size() > kMaxStates || work_ > most_work) return std::nullopt;
      GrammarBuilder::ByteState state = {.ends = true};
      for (std::size_t k = 0; k < automata.size(); ++k) {
        state.ends = state.ends && automata[k].may_end(all[i][k]);
        work_ += 1 + automata[k].tops(all[i][k]).size();
      }
      for (int byte = 0; byte < 256; ++byte) {
        bool dead = false;
        for (std::size_t k = 0; k < automata.size() && !dead; ++k) {
          next[k] = automata[k].next(all[i][k], static_cast<std::uint8_t>(byte));
          dead = next[k] == GrammarAutomaton::kDead;
        }
        if (!dead) add_edge(state.edges, static_cast<std::uint8_t>(byte), id_of(next));
      }
      made.push_back(std::move(state));
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    return std::nullopt;  // too ambiguous
  }
  return as_rule(builder_.machine(std::move(made)));
}

Expr SchemaTexts::as_rule(Expr expression) {
  const std::int32_t rule = builder_.rule("json text " + std::to_string(builder_.rules()));
  builder_.define(rule, expression);
  return builder_.call(rule);
}

Expr SchemaTexts::string(const TextRules& rules, const Refuse& refuse) {
  const auto format = formats().find(rules.format);
  const bool counted = rules.least > 0 || rules.most != GrammarBuilder::kNoLimit;
  const auto quoted = [](GrammarBuilder& b, Expr inside) {
    return b.sequence({b.text("\""), inside, b.text("\"")});
  };
  const auto of_length = [&](GrammarBuilder& b, JsonParts& parts) {
    return quoted(b, b.repeat(parts.character(), rules.least, rules.most));
  };
  if (!rules.pattern && format == formats().end()) {
    if (rules.but.empty()) return counted ? of_length(builder_, parts_) : parts_.string();
    if (!counted) return parts_.string_but(rules.but);
  }
  std::string key = std::string(rules.pattern.value_or("")) + '\0' + std::string(rules.format) +
                    '\0' + std::to_string(rules.least) + ' ' + std::to_string(rules.most);
  key += rules.pattern ? " pattern" : "";
  for (const std::string_view text : rules.but) key += '\0' + std::string(text);
  if (const auto known = strings_.find(key); known != strings_.end()) return known->second;

  // Restrictions, the most specific one first.
  std::vector<std::pair<std::string, MakeRange>> wanted;
  const auto of_pattern = [&](std::string_view pattern) {
    return [&, pattern](GrammarBuilder& b, JsonParts& parts) {
      return quoted(b, pattern_expression(b, parts, pattern, source_));
    };
  };
  if (rules.pattern) wanted.emplace_back("the keyword 'pattern'", of_pattern(*rules.pattern));
  if (format != formats().end()) {
    wanted.emplace_back("the keyword 'format'", of_pattern(format->second));
  }
  if (counted) wanted.emplace_back("a length beside 'pattern' or 'format'", of_length);
  if (!rules.but.empty()) {
    wanted.emplace_back("the keyword 'not'", [&](GrammarBuilder&, JsonParts& parts) {
      return parts.string_but(rules.but);
    });
  }
  std::vector<Language> held;
  std::optional<Expr> found;
  bool complete = true;
  for (const auto& [what, make] : wanted) {
    std::string why;
    try {
      require(work_ < kMaxWorkOfAll, "the schema has too many of its kind");
      held.push_back(alone(make));
      // A machine of all restrictions so far: one that makes it too large is not held.
      if (auto machine = common(held)) {
        found = machine;
        continue;
      }
      const bool small = held.size() == 1 && held[0]->places() <= kMaxUnordered;
      if (small) {
        found = as_rule(make(builder_, parts_));
        if (&what == &wanted.back().first) continue;
      }
      why = "it is too large";
      held.pop_back();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      why = error.marked();
      const std::string before = std::string(source_) + ": ";
      if (why.starts_with(before)) why.erase(0, before.size());
    }
    complete = false;
    refuse(what, why);
  }
  if (!found) return parts_.string();
  if (complete) strings_.emplace(std::move(key), *found);
  return *found;
}

std::optional<Expr> SchemaTexts::string_but(const Language& strings,
                                            const std::vector<std::string_view>& taken) {
  const std::array<Language, 2> both = {strings, alone([&](GrammarBuilder&, JsonParts& parts) {
                                          return taken.empty() ? parts.string()
                                                               : parts.string_but(taken);
                                        })};
  return common(both);
}

Expr SchemaTexts::each_once(std::string_view open, const std::vector<std::string>& constants,
                            std::optional<Expr> after, std::int64_t least, std::int64_t most,
                            std::string_view close) {
  GrammarBuilder& b = builder_;
  std::set<std::string> known;
  Grammar::Set set = {.least = static_cast<std::size_t>(least)};
  if (most != GrammarBuilder::kNoLimit) set.most = static_cast<std::size_t>(most);
  const auto define = [&](Expr expression) {
    const std::int32_t rule = b.rule("item " + std::to_string(b.rules()));
    b.define(rule, expression);
    return rule;
  };
  for (const std::string& text : constants) {
    const Json value = parse_json(text, source_);
    if (!known.insert(canonical(value)).second) continue;
    const Expr item = b.text(text);
    set.members.push_back({define(after ? b.sequence({item, *after}) : item), false});
  }
  if (set.least > set.members.size()) return b.never("fewer constants than are required");
  set.comma = define(b.sequence({b.text(","), parts_.space()}));
  return b.sequence(
      {b.text(open), parts_.space(), b.set(std::move(set)), parts_.space(), b.text(close)});
}

// The digits so far are a number whose remainder is known. With `places` decimal places, the step
// and the number are whole numbers of the last place.
std::optional<Expr> SchemaTexts::multiples(const Decimal& step, const MakeRange& range) {
  constexpr std::size_t kMaxTextPlaces = 6;
  const std::size_t places = step.fraction.size();
  const auto whole = parse_int(step.whole + step.fraction);
  if (places > kMaxTextPlaces || !whole || *whole > kMaxRemainders) return std::nullopt;
  const std::int64_t steps = *whole;
  std::vector<GrammarBuilder::ByteState> states(3 + static_cast<std::size_t>(steps) * (places + 1));
  constexpr std::int32_t kSign = 1, kZero = 2;  // after "-", and after a first 0
  const auto id_of = [&](std::size_t decimals, std::int64_t rest) {
    return static_cast<std::int32_t>(3 + decimals * static_cast<std::size_t>(steps)) +
           static_cast<std::int32_t>(rest);
  };
  const auto digits = [&](GrammarBuilder::ByteState& from, std::size_t decimals, std::int64_t rest,
                          int first) {
    for (int digit = first; digit <= 9; ++digit) {
      from.edges.push_back({static_cast<std::uint8_t>('0' + digit),
                            static_cast<std::uint8_t>('0' + digit),
                            id_of(decimals, (rest * 10 + digit) % steps)});
    }
  };
  const auto point = [&](std::int64_t rest) -> GrammarBuilder::ByteState {
    GrammarBuilder::ByteState after;
    digits(after, 1, rest, 0);
    return after;
  };
  const auto fill = [&](GrammarBuilder::ByteState& state, std::size_t decimals, std::int64_t rest) {
    std::int64_t last = rest;
    for (std::size_t i = decimals; i < places; ++i) last = last * 10 % steps;
    state.ends = last == 0;
    if (decimals > 0 && decimals < places) digits(state, decimals + 1, rest, 0);
  };
  for (std::size_t decimals = 0; decimals <= places; ++decimals) {
    for (std::int64_t rest = 0; rest < steps; ++rest) {
      auto& state = states[static_cast<std::size_t>(id_of(decimals, rest))];
      fill(state, decimals, rest);
      if (decimals == 0) digits(state, 0, rest, 0);
    }
  }
  fill(states[kZero], 0, 0);
  for (const int at : {0, kSign}) {
    states[static_cast<std::size_t>(at)].edges.push_back({'0', '0', kZero});
    digits(states[static_cast<std::size_t>(at)], 0, 0, 1);
  }
  states[0].edges.push_back({'-', '-', kSign});
  if (places > 0) {  // a point, after a first 0 or after other digits
    for (std::int64_t rest = 0; rest < steps; ++rest) {
      const auto after = static_cast<std::int32_t>(states.size());
      states.push_back(point(rest));
      states[static_cast<std::size_t>(id_of(0, rest))].edges.push_back({'.', '.', after});
      if (rest == 0) states[kZero].edges.push_back({'.', '.', after});
    }
  }
  const std::array<Language, 2> both = {
      alone(range), alone([&](GrammarBuilder& b, JsonParts&) { return b.machine(states); })};
  return common(both);
}

}  // namespace leq

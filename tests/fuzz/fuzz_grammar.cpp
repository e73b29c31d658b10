// Any bytes as GBNF or a JSON schema: an automaton reads some text, or there is an Error. The first
// byte of an input selects the format and the bytes that the automaton reads.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "fuzz/seeded.h"
#include "grammar/automaton.h"

namespace {

std::vector<std::string> examples() {
  return {
      "\x01root ::= \"[\" (item (\",\" item){0,3})? \"]\" # a list\nitem ::= [a-z\\x41]+ | "
      "\"\\\"\" "
      "[^\"\\n]* \"\\\"\" | . \"\\u00e9\"",
      "\x01root ::= a | b{2,} | (c | \"\")*\na ::= \"x\" root \"y\"\nb ::= \"\\\\\" | [^a-z]\nc "
      "::= "
      "\"z\"",
      R"( {"type":"object","properties":{"a":{"type":"integer","minimum":-3,"maximum":12},"b":)"
      R"({"anyOf":[{"$ref":"#/$defs/s"},{"enum":[null,1,"x"]}]},"c":{"type":"array","items":)"
      R"({"type":"string","pattern":"^[a-z]{1,3}$"},"maxItems":2}},"required":["a"],"$defs":)"
      R"({"s":{"type":"string","maxLength":3}}})",
      R"( {"oneOf":[{"type":"string","format":"date-time"},{"type":"number"},{"const":{"k":[]}}]})",
      R"( {"allOf":[{"type":"object","properties":{"a":{"type":"string","minLength":1}}},)"
      R"({"type":"object","required":["a"],"additionalProperties":{"type":"boolean"}}]})",
      R"( {"$ref":"#/$defs/n","$defs":{"n":{"type":["object","null"],"properties":{"next":)"
      R"({"$ref":"#/$defs/n"}}},"t":{"prefixItems":[true,{"type":"integer"}],"minItems":1}}})"};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const auto grammar = (data[0] & 1) != 0 ? leq::Grammar::from_gbnf(text, "fuzz")
                                            : leq::Grammar::from_json_schema(text, "fuzz");
    leq::GrammarAutomaton automaton(grammar);
    // The automaton always reads the first byte that is allowed.
    auto state = automaton.start();
    for (int i = 0; i < 50 && state != leq::GrammarAutomaton::kDead; ++i) {
      auto next = leq::GrammarAutomaton::kDead;
      for (int byte = data[0]; next == leq::GrammarAutomaton::kDead && byte < data[0] + 256;
           ++byte) {
        next = automaton.next(state, static_cast<std::uint8_t>(byte));
      }
      if (next == leq::GrammarAutomaton::kDead && !automaton.may_end(state)) __builtin_trap();
      state = next;
    }
  } catch (const leq::Error&) {
    // refusing the input is valid
  }
  return 0;
}

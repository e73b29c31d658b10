// A grammar: any bytes are GBNF, or a JSON schema, whose automaton reads some text, or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "generate/grammar/automaton.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const auto grammar = (data[0] & 1) != 0 ? leq::Grammar::from_gbnf(text, "fuzz")
                                            : leq::Grammar::from_json_schema(text, "fuzz");
    leq::GrammarAutomaton automaton(grammar);
    // Along the first byte that leads on.
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
    // a refusal is an answer
  }
  return 0;
}

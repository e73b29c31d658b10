// Strings and numbers that several restrictions of a schema hold for at once: each restriction is a
// grammar of its own, and the texts that all of them allow are one deterministic machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/grammar.h"
#include "grammar/json_parts.h"

namespace leq {

// The restrictions of a string.
struct TextRules {
  std::optional<std::string_view> pattern = {};
  std::string_view format = {};  // one that is not known restricts nothing
  std::int64_t least = 0, most = GrammarBuilder::kNoLimit;  // characters
  std::vector<std::string_view> but = {};                   // strings that it is not

  bool has_length() const { return most == GrammarBuilder::kNoLimit || least <= most; }
};

class SchemaTexts {
 public:
  using Expr = GrammarBuilder::Expr;
  using Language = std::shared_ptr<const Grammar>;
  // Called with each restriction that is not held, and why; may throw.
  using Refuse = std::function<void(const std::string& what, const std::string& why)>;

  // `source`: names the schema in errors. `work`: on all machines of the schema so far.
  SchemaTexts(GrammarBuilder& builder, JsonParts& parts, std::string_view source, std::size_t& work)
      : builder_(builder), parts_(parts), source_(source), work_(work) {}

  // A quoted string. Equal rules are one rule of the grammar.
  Expr string(const TextRules& rules, const Refuse& refuse);
  // The strings of this grammar, but for those that are taken; nullopt: not held.
  std::optional<Expr> string_but(const Language& strings,
                                 const std::vector<std::string_view>& taken);
  // An array or object of these constants, each at most once and followed by `after`.
  Expr each_once(std::string_view open, const std::vector<std::string>& constants,
                 std::optional<Expr> after, std::int64_t least, std::int64_t most,
                 std::string_view close);
  // Multiples of `step`, which is above 0, among the numbers of `range`; nullopt: not held.
  // `range` adds the numbers to a builder of its own.
  using MakeRange = std::function<Expr(GrammarBuilder&, JsonParts&)>;
  std::optional<Expr> multiples(const Decimal& step, const MakeRange& range);

  // A grammar of its own. Throws Error, also if no text is left.
  Language alone(const MakeRange& make);

 private:
  // The texts that all of these allow; nullopt if they are too large or too ambiguous.
  std::optional<Expr> common(std::span<const Language> languages);
  Expr as_rule(Expr expression);

  GrammarBuilder& builder_;
  JsonParts& parts_;
  std::string_view source_;
  std::map<std::string, Expr> strings_;  // by their rules
  std::size_t& work_;
};

// Whether a format restricts strings (many only describe them), and whether that is held.
enum class FormatUse : std::uint8_t { describes, held, unheld };
FormatUse use_of_format(std::string_view format);

}  // namespace leq

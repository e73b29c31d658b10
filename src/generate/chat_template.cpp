#include "generate/chat_template.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "generate/chat_format.h"
#include "generate/conversation.h"
#include "generate/template_text.h"

namespace leq {
namespace {

const ChatFormat* find_format(std::string_view name) {
  for (const ChatFormat& format : chat_formats()) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

std::string all_names() {
  std::string text;
  for (const ChatFormat& format : chat_formats()) {
    text += (text.empty() ? "" : ", ") + std::string(format.name);
  }
  return text;
}

// What a rule says about a template: the reason against it, or none.
struct Verdict {
  bool has_required = false;
  std::string refused;  // what the template has and the format has not; empty: it is the format
  std::string default_system;
};

// The literal between the rule's two marks, in canonical spelling.
std::optional<std::string_view> find_default(const ChatRule& rule, std::string_view text) {
  const std::size_t from = text.find(rule.default_from);
  if (from == std::string_view::npos) return std::nullopt;
  text.remove_prefix(from + rule.default_from.size());
  const std::size_t to = text.find(rule.default_to);
  if (to == std::string_view::npos) return std::nullopt;
  const std::string_view literal = text.substr(0, to);
  for (std::size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] == '\\') {
      ++i;
    } else if (literal[i] == '\'') {
      return std::nullopt;  // more than one literal
    }
  }
  return literal;
}

Verdict judge(const ChatRule& rule, const TemplateText& text) {
  Verdict verdict;
  std::string allowed;  // all that may be printed
  for (const std::string_view part : rule.required) {
    const TemplateText required = canonical_template(part);
    if (text.canonical.find(required.canonical) == std::string::npos) return verdict;
    allowed += required.canonical;
  }
  if (!rule.default_from.empty()) {
    const auto literal = find_default(rule, text.canonical);
    if (!literal) return verdict;
    verdict.default_system = unescape_literal(*literal);
    const std::size_t output = rule.default_from.rfind("{{");
    if (output != std::string_view::npos) {
      allowed += std::string(rule.default_from.substr(output)) + std::string(*literal) +
                 std::string(rule.default_to);
    }
  }
  verdict.has_required = true;
  for (const std::string_view part : rule.forbidden) {
    if (text.canonical.find(part) != std::string::npos) verdict.refused = part;
  }
  for (const std::string& output : text.outputs) {
    if (rule.closed && allowed.find(output) == std::string::npos) verdict.refused = output;
  }
  if (text.prints_plain_text) verdict.refused = "text outside of its tags";
  return verdict;
}

[[noreturn]] void refuse(std::string_view source, const std::string& reason) {
  fail(source, ": the chat template is not one that leq knows (", reason,
       "); choose a format with ", Setting{"chat_template"}, " NAME: ", all_names());
}

// "26 Jul 2024" of today, in local time and in English whatever the locale.
std::string today() {
  constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  const std::string day = std::to_string(local.tm_mday);
  return (day.size() == 1 ? "0" : "") + day + " " +
         std::string(kMonths[static_cast<std::size_t>(local.tm_mon)]) + " " +
         std::to_string(local.tm_year + 1900);
}

}  // namespace

ChatOptions chat_options(const Tokenizer& tokenizer) {
  const auto text_of = [&](Token id) {
    return id == kNoToken ? std::string() : tokenizer.decode(std::span(&id, 1), true);
  };
  ChatOptions options;
  options.bos = text_of(tokenizer.bos());
  options.eos = text_of(tokenizer.eos());
  return options;
}

ChatTemplate::ChatTemplate(const ChatFormat& format)
    : format_(&format), default_system_(format.default_system) {}

ChatTemplate ChatTemplate::recognise(std::string_view jinja, std::string_view source) {
  const TemplateText text = canonical_template(jinja);
  std::string like;
  for (const ChatRule& rule : chat_rules()) {
    const Verdict verdict = judge(rule, text);
    if (!verdict.has_required) continue;
    if (verdict.refused.empty()) {
      ChatTemplate found = by_name(rule.format);
      if (!rule.default_from.empty()) found.default_system_ = verdict.default_system;
      return found;
    }
    like = "it is like " + std::string(rule.format) + ", but has " + printable(verdict.refused);
  }
  for (const ForeignMark& foreign : foreign_marks()) {
    if (jinja.find(foreign.mark) == std::string_view::npos) continue;
    refuse(source, std::string(foreign.family) + ", by its " + printable(foreign.mark));
  }
  refuse(source, like.empty() ? "its text matches no format" : like);
}

ChatTemplate ChatTemplate::by_name(std::string_view name) {
  const ChatFormat* format = find_format(name);
  require(format != nullptr, Setting{"chat_template"}, ": there is no format '", printable(name),
          "', expected one of: ", all_names());
  return ChatTemplate(*format);
}

std::vector<std::string_view> ChatTemplate::names() {
  std::vector<std::string_view> names;
  for (const ChatFormat& format : chat_formats()) names.push_back(format.name);
  return names;
}

std::string_view ChatTemplate::name() const { return format_->name; }
std::vector<TextPart> ChatTemplate::render(std::span<const ChatMessage> messages,
                                           const ChatOptions& options) const {
  ChatOptions filled = options;
  if (filled.date.empty()) filled.date = format_->default_date;
  if (filled.date.empty()) filled.date = today();
  return render_conversation(*format_, default_system_, messages, filled);
}

void ChatTemplate::add_stops(const Tokenizer& tokenizer, StopRules& rules) const {
  if (format_->end == "{eos}") {
    if (tokenizer.eos() != kNoToken) rules.end_tokens.push_back(tokenizer.eos());
  } else if (const auto id = tokenizer.special_id(format_->end)) {
    rules.end_tokens.push_back(*id);
  } else {
    rules.strings.emplace_back(format_->end);
  }
}

std::string joined(std::span<const TextPart> parts) {
  std::string text;
  for (const TextPart& part : parts) text += part.text;
  return text;
}

}  // namespace leq

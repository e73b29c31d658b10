#include "tokenizer/pretokenize.h"

#include <utf8proc.h>
#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};
// Characters that are their own NFC and never compose with a preceding character: all below U+0300,
// and common scripts above. Omitting a character here only costs time.
constexpr std::array<Range, 11> kInert = {{{0x0400, 0x0482},
                                           {0x048a, 0x052f},
                                           {0x2010, 0x2027},
                                           {0x2030, 0x205e},
                                           {0x3001, 0x3029},
                                           {0x3041, 0x3096},
                                           {0x30a1, 0x30fa},
                                           {0x30fc, 0x30fe},
                                           {0x4e00, 0x9fff},
                                           {0xac00, 0xd7a3},
                                           {0xff01, 0xff9d}}};

bool is_inert(char32_t c) {
  if (c < 0x300) return true;
  return std::any_of(kInert.begin(), kInert.end(),
                     [c](const Range& range) { return range.first <= c && c <= range.last; });
}

// The first character from `at` on that is not inert, and the start of the character before it.
struct ChangingText {
  std::size_t before = 0;
  std::size_t at = 0;
};
ChangingText find_changing(std::string_view text, std::size_t at) {
  ChangingText found{at, at};
  for (std::size_t i = at; i < text.size();) {
    found.at = i;
    if (static_cast<unsigned char>(text[i]) < 0xcc) {  // below U+0300
      found.before = i;
      i += static_cast<unsigned char>(text[i]) < 0x80 ? 1 : 2;
      continue;
    }
    if (!is_inert(decode_utf8(text.substr(i)))) return found;
    found.before = i;
    i += std::max<std::size_t>(utf8_length(text.substr(i)), 1);
  }
  return {text.size(), text.size()};
}

int combining_class(utf8proc_int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

// Canonical order: sorts runs of combining marks by class. (utf8proc's own pass is quadratic.)
void sort_marks(std::vector<utf8proc_int32_t>& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    begin = std::find_if(begin, text.end(), [](auto c) { return combining_class(c) != 0; });
    const auto end =
        std::find_if(begin, text.end(), [](auto c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end,
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

void collapse_spaces(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' && (out.empty() || out.back() == ' ')) continue;
    out += text[i];
  }
  // A U+2581 in the text itself counts as a space only at the end, as in sentencepiece.
  while (out.ends_with(' ') || out.ends_with(kSpaceMark)) {
    out.resize(out.size() - (out.ends_with(' ') ? 1 : kSpaceMark.size()));
  }
}

// Appends the NFC form of `text`.
void compose(std::string_view text, std::string& out) {
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  std::array<utf8proc_int32_t, 8> parts;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = std::max<std::size_t>(utf8_length(text.substr(i)), 1);
    const auto character = static_cast<utf8proc_int32_t>(decode_utf8(text.substr(i, length)));
    int last_boundary = 0;
    const auto count = utf8proc_decompose_char(character, parts.data(), parts.size(),
                                               UTF8PROC_DECOMPOSE, &last_boundary);
    ensure(count > 0 && static_cast<std::size_t>(count) <= parts.size(),
           "NFC: cannot decompose a character");
    characters.insert(characters.end(), parts.begin(), parts.begin() + count);
    i += length;
  }
  sort_marks(characters);
  const auto left =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  ensure(left >= 0, "NFC: cannot compose a text of ", text.size(), " bytes");
  for (utf8proc_ssize_t i = 0; i < left; ++i) {
    append_utf8(out, static_cast<char32_t>(characters[static_cast<std::size_t>(i)]));
  }
}

// The number of occurrences that replace_all finds.
std::size_t count_of(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return 0;
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(pattern, at)) != std::string_view::npos; ++count) {
    at += pattern.size();
  }
  return count;
}

std::string name_of(const Normalizer& step) {
  switch (step.kind) {
    case Normalizer::Kind::nfc:
      return "NFC";
    case Normalizer::Kind::prepend:
      return "prepend \"" + printable(step.content, 20) + "\"";
    case Normalizer::Kind::replace:
      return "replace \"" + printable(step.pattern, 20) + "\" by \"" + printable(step.content, 20) +
             "\"";
    default:
      return "collapse spaces";
  }
}

}  // namespace

std::string nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t done = 0; done < text.size();) {
    const ChangingText changing = find_changing(text, done);
    out.append(text, done, changing.before - done);
    if (changing.at == text.size()) break;
    // After two adjacent inert characters, later characters never compose with earlier ones.
    std::size_t end = changing.at;
    for (int inert = 0; end < text.size();) {
      inert = is_inert(decode_utf8(text.substr(end))) ? inert + 1 : 0;
      if (inert == 2) break;
      end += std::max<std::size_t>(utf8_length(text.substr(end)), 1);
    }
    compose(text.substr(changing.before, end - changing.before), out);
    done = end;
  }
  return out;
}

std::string_view normalize(std::span<const Normalizer> steps, std::string_view text,
                           const NormalizeOptions& options, std::string& buffer) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Normalizer& step = steps[i];
    const auto require_length = [&](std::size_t bytes) {
      require(bytes <= options.max_bytes, options.source, ": normalizer ", i + 1, " of ",
              steps.size(), ", ", name_of(step), ", makes the text longer than the ",
              options.max_bytes, " bytes that are accepted; no tokenizer needs that");
    };
    std::string out;
    switch (step.kind) {
      case Normalizer::Kind::nfc:
        if (find_changing(text, 0).at == text.size()) continue;
        out = nfc(text);
        require_length(out.size());
        break;
      case Normalizer::Kind::prepend:
        if (text.empty() || !options.prepend) continue;
        require_length(step.content.size() + text.size());
        out.reserve(step.content.size() + text.size());
        out.append(step.content).append(text);
        break;
      case Normalizer::Kind::replace: {
        const std::size_t found = count_of(step.pattern, text);
        if (found == 0) continue;
        require_length(text.size() - found * step.pattern.size() + found * step.content.size());
        out = replace_all(text, step.pattern, step.content);
        break;
      }
      case Normalizer::Kind::collapse_spaces:
        collapse_spaces(text, out);
        break;
    }
    buffer = std::move(out);
    text = buffer;
  }
  return text;
}

void check_normalizers(std::span<const Normalizer> steps, std::string_view source) {
  constexpr std::size_t kProbeBytes = 16u << 10;
  for (const Normalizer& step : steps) {
    if (step.kind != Normalizer::Kind::replace || step.pattern.empty()) continue;
    std::string probe, buffer;
    while (probe.size() < kProbeBytes) probe += step.pattern;
    normalize(steps, probe,
              {.prepend = true, .max_bytes = longest_normalized(probe.size()), .source = source},
              buffer);
  }
}

namespace {

struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_match = false;
};

// Splits `text` into matches and the gaps between them. An empty match splits at its position.
std::vector<Span> find_spans(const Pattern& pattern, std::string_view text,
                             PatternMatcher& matcher) {
  std::vector<Span> spans;
  PatternMatch match;
  std::size_t done = 0;
  for (std::size_t from = 0; from <= text.size() && matcher.find(pattern, text, from, match);) {
    if (match.begin > done) spans.push_back({done, match.begin, false});
    if (match.end > match.begin || match.begin > done || spans.empty()) {
      spans.push_back({match.begin, match.end, true});
    }
    done = match.end;
    from = match.end;
    if (match.end == match.begin) from += std::max<std::size_t>(utf8_length(text.substr(from)), 1);
  }
  if (done < text.size()) spans.push_back({done, text.size(), false});
  return spans;
}

// The pieces for a behavior that joins adjacent spans (names and order as in Hugging Face).
std::vector<Span> join_spans(const std::vector<Span>& spans, PreTokenizer::Behavior behavior) {
  using Behavior = PreTokenizer::Behavior;
  std::vector<Span> out;
  bool previous = false;
  const auto join = [&](const Span& span, bool together) {
    if (!together || out.empty()) {
      out.push_back(span);
    } else {
      out.back().begin = std::min(out.back().begin, span.begin);
      out.back().end = std::max(out.back().end, span.end);
    }
    previous = span.is_match;
  };
  if (behavior == Behavior::merged_with_next) {
    for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
      join(*span, span->is_match && !previous);
    }
    return {out.rbegin(), out.rend()};
  }
  for (const Span& span : spans) {
    join(span,
         behavior == Behavior::contiguous ? span.is_match == previous : span.is_match && !previous);
  }
  return out;
}

}  // namespace

PreTokenizerChain::PreTokenizerChain(std::span<const PreTokenizer> steps, std::string_view source) {
  for (const PreTokenizer& rule : steps) {
    Step step{rule, {}};
    if (rule.kind == PreTokenizer::Kind::split) step.pattern.emplace_back(rule.pattern, source);
    steps_.push_back(std::move(step));
  }
}

void PreTokenizerChain::cut(std::string_view text, Flags flags, PatternMatcher& matcher,
                            const Sink& sink) const {
  Run run{flags, matcher, sink};
  apply(0, text, run);
}

void PreTokenizerChain::apply(std::size_t step, std::string_view text, Run& run) const {
  if (text.empty()) return;
  if (step == steps_.size()) return run.sink(text);
  switch (steps_[step].rule.kind) {
    case PreTokenizer::Kind::split:
      return split(step, text, run);
    case PreTokenizer::Kind::metaspace:
      return metaspace(step, text, run);
    case PreTokenizer::Kind::prefix_space:
      if (text.front() == ' ' || !run.flags.begins_segment) return apply(step + 1, text, run);
      return apply(step + 1, " " + std::string(text), run);
  }
}

void PreTokenizerChain::split(std::size_t step, std::string_view text, Run& run) const {
  const Step& self = steps_[step];
  const auto behavior = self.rule.behavior;
  if (behavior != PreTokenizer::Behavior::isolated && behavior != PreTokenizer::Behavior::removed) {
    return split_merging(step, text, run);
  }
  const bool removed = behavior == PreTokenizer::Behavior::removed;
  const bool keep_matches = !removed || self.rule.invert;
  const bool keep_gaps = !removed || !self.rule.invert;
  PatternMatch match;
  std::size_t done = 0;
  for (std::size_t from = 0; from < text.size();) {
    if (!run.matcher.find(self.pattern[0], text, from, match)) break;
    if (keep_gaps && match.begin > done) {
      apply(step + 1, text.substr(done, match.begin - done), run);
    }
    if (match.begin > 0) run.flags.at_text_start = false;
    if (keep_matches) apply(step + 1, text.substr(match.begin, match.end - match.begin), run);
    run.flags.at_text_start = false;
    done = from = match.end;
    if (match.end == match.begin) from += std::max<std::size_t>(utf8_length(text.substr(from)), 1);
  }
  if (keep_gaps) apply(step + 1, text.substr(done), run);
}

void PreTokenizerChain::split_merging(std::size_t step, std::string_view text, Run& run) const {
  const Step& self = steps_[step];
  auto spans = find_spans(self.pattern[0], text, run.matcher);
  for (Span& span : spans) span.is_match = span.is_match != self.rule.invert;
  for (const Span& span : join_spans(spans, self.rule.behavior)) {
    apply(step + 1, text.substr(span.begin, span.end - span.begin), run);
    run.flags.at_text_start = false;
  }
}

void PreTokenizerChain::metaspace(std::size_t step, std::string_view text, Run& run) const {
  const PreTokenizer& rule = steps_[step].rule;
  std::string marked;
  const bool wanted = rule.prepend == PrependScheme::always ||
                      (rule.prepend == PrependScheme::first && run.flags.at_text_start);
  const bool has_mark = text.front() == ' ' || text.starts_with(kSpaceMark);
  if (wanted && run.flags.begins_segment && !has_mark) marked = kSpaceMark;
  marked += replace_all(text, " ", kSpaceMark);
  if (!rule.cut_words) return apply(step + 1, marked, run);
  const std::string_view view = marked;
  std::size_t begin = 0;
  while (begin < view.size()) {
    const std::size_t end = std::min(view.find(kSpaceMark, begin + 1), view.size());
    apply(step + 1, view.substr(begin, end - begin), run);
    begin = end;
  }
}

}  // namespace leq

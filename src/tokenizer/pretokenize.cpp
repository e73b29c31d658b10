#include "tokenizer/pretokenize.h"

#include <utility>

#include "base/text.h"

namespace leq {
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

#include "hostile/judge.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.h"

namespace leq::hostile {
namespace {

constexpr int kInterrupted = 130;
constexpr int kCut = 2;  // leq-run's, of a reply without the end that its grammar demands

// Words from libraries and the C++ language, which do not help users.
constexpr std::array<std::string_view, 19> kInternalWords = {"nlohmann",
                                                             "json.exception",
                                                             "filesystem error",
                                                             "std::",
                                                             "terminate called",
                                                             "basic_string",
                                                             "vector::",
                                                             "bad_alloc",
                                                             "what():",
                                                             "cxxopts",
                                                             "__cxx11",
                                                             "regex_error",
                                                             "stoi",
                                                             "_M_",
                                                             "bad_function_call",
                                                             "AddressSanitizer",
                                                             "runtime error:",
                                                             "ThreadSanitizer",
                                                             "UndefinedBehavior"};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\n') || byte == 0x7f;
}

Verdict judge_words(const Ended& ended) {
  for (const std::string_view word : kInternalWords) {
    if (ended.err.find(word) != std::string::npos) return {"internal", std::string(word)};
  }
  if (std::any_of(ended.err.begin(), ended.err.end(), is_control)) {
    return {"control", "a control character in the messages"};
  }
  return {};
}

// The last line must begin with the tool's name and contain the cause.
Verdict judge_error(const std::string& tool, const Ended& ended, const Expectation& expectation) {
  const std::vector<std::string> lines = lines_of(ended.err);
  const std::string start = tool + ": error: ";
  const auto errors = std::count_if(lines.begin(), lines.end(),
                                    [&](const auto& line) { return line.starts_with(start); });
  if (errors == 0) return {"shape", "no line begins with '" + start + "'"};
  const bool last = lines.back().starts_with(start) || expectation.talk == Talk::around;
  if (errors > 1 || !last || (lines.size() > 1 && expectation.talk == Talk::none)) {
    return {"lines", std::to_string(lines.size()) + " lines of messages, expected one"};
  }
  const std::string& line = *std::find_if(lines.begin(), lines.end(),
                                          [&](const auto& one) { return one.starts_with(start); });
  const auto& names = expectation.names;
  const bool named = std::any_of(names.begin(), names.end(), [&](const auto& name) {
    // A name must be printed unchanged, or without characters that control a terminal.
    return line.find(name) != std::string::npos || line.find(printable(name)) != std::string::npos;
  });
  if (!named && !names.empty()) return {"name", "the error names none of what could be at fault"};
  return {};
}

std::string listed(const std::vector<std::string>& paths) {
  std::string text;
  for (const auto& path : paths) text += (text.empty() ? "" : ", ") + path;
  return text;
}

bool is_one_of(const std::string& path, const std::vector<std::string>& allowed) {
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& one) {
    return one.ends_with('*') ? path.starts_with(one.substr(0, one.size() - 1)) : path == one;
  });
}

std::vector<std::string> without(std::vector<std::string> paths,
                                 const std::vector<std::string>& allowed) {
  std::erase_if(paths, [&](const std::string& path) { return is_one_of(path, allowed); });
  return paths;
}

// A running server must answer each question, and damage must not change its answers.
Verdict judge_answers(const Ended& ended, const Expectation& expectation) {
  for (const std::string& answer : ended.answers) {
    if (said_in(answer).empty()) return {"answer", "answered what is no JSON: '" + answer + "'"};
  }
  if (expectation.answer.empty() || ended.answers.empty()) return {};
  const std::string said = said_in(ended.answers.back());
  if (said == expectation.answer) return {};
  return {"answer", "answered " + said + ", expected " + expectation.answer};
}

Verdict judge_files(const Ended& ended, const FolderChanges& changed,
                    const Expectation& expectation) {
  const std::vector<std::string> allowed =
      ended.status == 0 ? expectation.outputs : std::vector<std::string>{};
  const auto touched = without(changed.changed, allowed);
  if (!touched.empty()) return {"changed", "changed: " + listed(touched)};
  if (!changed.gone.empty()) return {"changed", "gone: " + listed(changed.gone)};
  auto made = without(changed.made, allowed);
  // Files from which the next run resumes may remain if the tool's message says so.
  if (ended.status != 0 && ended.err.find("the same command goes on") != std::string::npos) {
    std::erase_if(made, [](const std::string& path) {
      return path.find(".leq.partial") != std::string::npos ||
             path.find(".leq.search") != std::string::npos;
    });
  }
  if (!made.empty()) return {"litter", "left: " + listed(made)};
  return {};
}

}  // namespace

Verdict judge(const std::string& tool, const Ended& ended, const FolderChanges& changed,
              const Expectation& expectation) {
  if (ended.timed_out) return {"hang", "not done after " + std::to_string(ended.seconds) + " s"};
  if (ended.signal != 0) return {"signal", "ended by signal " + std::to_string(ended.signal)};
  if (ended.status == kCut && ended.err.find("the reply is cut after ") != std::string::npos) {
    Ended replied = ended;
    replied.status = 0;
    return judge(tool, replied, changed, expectation);
  }
  if (ended.status != 0 && ended.status != 1 && ended.status != kInterrupted) {
    return {"status", "exit status " + std::to_string(ended.status)};
  }
  if (const Verdict words = judge_words(ended); !words) return words;
  if (ended.status == 1) {
    if (const Verdict error = judge_error(tool, ended, expectation); !error) return error;
    if (expectation.expect == Expect::accepted) return {"refused", "refused what is whole"};
  }
  if (ended.status == 0 && expectation.expect == Expect::refused) {
    return {"passed", "exit status 0 for damage that must be noticed"};
  }
  if (const Verdict answers = judge_answers(ended, expectation); !answers) return answers;
  return judge_files(ended, changed, expectation);
}

}  // namespace leq::hostile

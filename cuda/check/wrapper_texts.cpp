// Compares the PTX of wrappers.cu's kernels with wrappers.txt, or wrappers.txt with the
// instructions that other projects use for the same operations.
//   wrapper_texts wrappers.txt ARCHITECTURE FILE.ptx
//   wrapper_texts wrappers.txt reference LETTER SOURCE...   (C++ with asm statements)
// Prints one line for each difference, in which case the exit status is 1.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Texts = std::vector<std::string>;

// strict: as written, with registers numbered in order of use in the kernel. loose: registers are
// numbered within each instruction, constants count as operands, only the order of type modifiers
// is compared; PTX defaults and the input sums of an mma (maybe the output registers) are
// ignored.
enum class Form { strict, loose };

std::string file_text(const std::string& name) {
  std::ifstream in(name, std::ios::binary);
  if (!in) std::fprintf(stderr, "wrapper_texts: cannot read %s\n", name.c_str());
  return {std::istreambuf_iterator<char>(in), {}};
}

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string loose_name(const std::string& name) {
  const std::string plain =
      replaced(replaced(replaced(name, "::cta", "") + ".", ".tile.", "."), ".L2::128B.", ".");
  Texts others, types;
  std::istringstream in(plain);
  for (std::string part; std::getline(in, part, '.');) {
    const std::size_t letters = part.rfind("bf", 0) == 0 ? 2 : 1;
    const bool is_type = part.size() > letters &&
                         std::string("sufb").find(part[0]) != std::string::npos &&
                         std::isdigit(static_cast<unsigned char>(part[letters])) != 0;
    (is_type ? types : others).push_back(part);
  }
  std::sort(others.begin() + 1, others.end());
  std::string all;
  for (const Texts& list : {others, types}) {
    for (const std::string& part : list) all += part + ".";
  }
  return all;
}

// Returns operands with registers and local names numbered in order of use. Special registers such
// as %cluster_ctarank keep their names.
std::string numbered(const std::string& operands, Form form, std::map<std::string, int>& names) {
  std::string text;
  for (std::size_t at = 0; at < operands.size();) {
    const char c = operands[at];
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at;
      continue;
    }
    std::size_t end = at + 1;
    while (end < operands.size() && (in_word(operands[end]) || operands[end] == '.')) ++end;
    if (!in_word(c) && c != '%') end = at + 1;
    const std::string word = operands.substr(at, end - at);
    at = end;
    const bool special = c == '%' && word.find('_') != std::string::npos;
    const bool number = std::isdigit(static_cast<unsigned char>(c)) != 0;
    const bool kept = special || word == "_" || (number && form == Form::strict);
    if ((in_word(c) || c == '%') && !kept) {
      text += '%' + std::to_string(names.emplace(word, names.size()).first->second);
    } else {
      text += word;
    }
  }
  return text;
}

// Returns the instructions in a piece of PTX, without declarations and comments.
Texts instructions(const std::string& text, Form form) {
  std::string code;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) code += line.substr(0, line.find("//")) + ' ';
  Texts found;
  std::map<std::string, int> names;
  std::istringstream in(replaced(code, "%%", "%"));
  for (std::string one; std::getline(in, one, ';');) {
    one.erase(0, one.find_first_not_of(" \t\r{}"));
    if (one.empty() || one.rfind(".reg", 0) == 0) continue;
    const std::size_t space = std::min(one.find_first_of(" \t{["), one.size());
    const std::string name = one.substr(0, space);
    if (form == Form::loose) names.clear();
    std::string operands = numbered(one.substr(space), form, names);
    // This is the closing brace of a block of the kernel itself.
    if (std::count(operands.begin(), operands.end(), '}') >
        std::count(operands.begin(), operands.end(), '{')) {
      operands.pop_back();
    }
    if (form == Form::loose && name.rfind("mma.", 0) == 0) {
      operands.erase(std::min(operands.rfind(",{"), operands.size()));
    }
    found.push_back((form == Form::loose ? loose_name(name) : name) + ' ' + operands);
  }
  return found;
}

std::string joined(const Texts& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : "; ") + text;
  return all.empty() ? "(nothing)" : all;
}

// Expands %1..%4 to %1,%2,%3,%4.
std::string with_ranges(std::string text) {
  for (std::size_t at; (at = text.find("..%")) != std::string::npos;) {
    const std::size_t begin = text.rfind('%', at),
                      end = text.find_first_not_of("0123456789", at + 3);
    const int first = std::stoi(text.substr(begin + 1)), last = std::stoi(text.substr(at + 3));
    std::string all;
    for (int i = first; i <= last; ++i) all += (i > first ? ",%" : "%") + std::to_string(i);
    text.replace(begin, end - begin, all);
  }
  return text;
}

struct Expected {
  std::string kernel, reference, text;
  int from;
  bool of_90a;
};
std::vector<Expected> read_expected(const std::string& name) {
  std::vector<Expected> all;
  std::istringstream lines(file_text(name));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream in(line);
    Expected one;
    std::string from;
    in >> one.kernel >> from >> one.reference;
    std::getline(in, one.text);
    one.text = one.text == " (nothing)" ? "" : with_ranges(one.text);
    one.from = std::stoi(from);
    one.of_90a = from.back() == 'a';
    all.push_back(one);
  }
  return all;
}

// The inline assembly of a kernel, and all of its instructions.
struct Kernel {
  std::string inlined, all;
};
std::map<std::string, Kernel> kernels_of(const std::string& ptx) {
  std::map<std::string, Kernel> found;
  Kernel* kernel = nullptr;
  bool inlined = false;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t entry = line.find(".entry ");
    if (entry != std::string::npos) {
      const std::size_t begin = entry + 7;
      kernel = &found[line.substr(begin, line.find('(', begin) - begin)];
    } else if (line.find("// begin inline asm") != std::string::npos) {
      inlined = true;
    } else if (line.find("// end inline asm") != std::string::npos) {
      inlined = false;
    } else if (kernel != nullptr) {
      kernel->all += line + '\n';
      if (inlined) kernel->inlined += line + '\n';
    }
  }
  return found;
}

int compare_compiled(const std::vector<Expected>& expected, const std::string& architecture,
                     const std::string& file) {
  auto kernels = kernels_of(file_text(file));
  const int number = std::stoi(architecture);
  int wrong = 0;
  for (const Expected& one : expected) {
    const auto at = kernels.find(one.kernel);
    if (at == kernels.end()) {
      std::printf("%s: no such kernel in wrappers.cu\n", one.kernel.c_str());
      ++wrong;
      continue;
    }
    const bool there = number >= one.from && (!one.of_90a || architecture.back() == 'a');
    const std::string wanted = joined(instructions(there ? one.text : "", Form::strict));
    std::string got = joined(instructions(at->second.inlined, Form::strict));
    // An instruction that a compiler builtin emits is not inline assembly, but it is in `all`.
    std::istringstream lines(got == "(nothing)" && there ? at->second.all : "");
    for (std::string line; std::getline(lines, line);) {
      if (joined(instructions(line, Form::strict)) == wanted) got = wanted;
    }
    if (got != wanted) {
      std::printf("%s for %s: %s\n  expected %s\n", one.kernel.c_str(), architecture.c_str(),
                  got.c_str(), wanted.c_str());
      ++wrong;
    }
    kernels.erase(at);
  }
  for (const auto& [name, kernel] : kernels) {
    std::printf("%s: no line in wrappers.txt\n", name.c_str());
    ++wrong;
  }
  return wrong;
}

// Returns the text of each asm statement: its string literals up to the first colon.
Texts asm_statements(const std::string& source) {
  Texts found;
  for (std::size_t at = 0; (at = source.find("asm", at)) != std::string::npos;) {
    const bool is_word = at == 0 || !in_word(source[at - 1]) || source[at - 1] == '_';
    at += 3;
    const std::size_t open = source.find('(', at);
    if (!is_word || open == std::string::npos || open - at > 14) continue;
    std::string text;
    bool quoted = false;
    for (at = open + 1; at < source.size(); ++at) {
      const char c = source[at];
      if (c == '"') {
        quoted = !quoted;
      } else if (!quoted && (c == ':' || c == ')')) {
        break;
      } else if (quoted && c == '\\') {
        text += source[++at] == 'n' ? '\n' : ' ';
      } else if (quoted) {
        text += c;
      }
    }
    found.push_back(text);
  }
  return found;
}

int compare_kl_reference(const std::vector<Expected>& expected, const std::string& letter,
                         int count, char** sources) {
  std::set<std::string> known;
  for (int i = 0; i < count; ++i) {
    for (const std::string& text : asm_statements(file_text(sources[i]))) {
      for (const std::string& one : instructions(text, Form::loose)) known.insert(one);
    }
  }
  int wrong = 0, compared = 0;
  for (const Expected& one : expected) {
    if (one.reference.find(letter) == std::string::npos) continue;
    ++compared;
    for (const std::string& text : instructions(one.text, Form::loose)) {
      const bool helper = text.rfind("setp", 0) == 0 || text.rfind("selp", 0) == 0;
      if (helper || known.count(text) > 0) continue;
      ++wrong;
      std::printf("%s: not in the reference: %s\n", one.kernel.c_str(), text.c_str());
    }
  }
  std::printf("%d of %zu wrappers compared with %zu instructions\n", compared, expected.size(),
              known.size());
  return wrong;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr, "usage: wrapper_texts wrappers.txt ARCHITECTURE FILE.ptx\n");
    return 2;
  }
  const auto expected = read_expected(arguments[1]);
  const std::string what = arguments[2];
  const int wrong = what == "reference"
                        ? compare_kl_reference(expected, arguments[3], count - 4, arguments + 4)
                        : compare_compiled(expected, what, arguments[3]);
  return wrong == 0 && !expected.empty() ? 0 : 1;
}

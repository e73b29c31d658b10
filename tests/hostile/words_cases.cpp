// Invalid or unusual command lines, built from the options that each tool's --help lists.
#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>

#include "hostile/cases.h"
#include "hostile/dice.h"
#include "hostile/readers.h"

namespace leq::hostile {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct ListedOption {
  Words words;  // all spellings
  bool takes_value = false;
};

// Parses a line of --help: " -c, --ctx-size N positions ...".
void read_help_line(const std::string& line, std::vector<ListedOption>& options) {
  std::size_t at = line.find_first_not_of(' ');
  if (at == std::string::npos || at < 2 || at > 8 || line[at] != '-') return;
  ListedOption option;
  while (at < line.size() && line[at] == '-') {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    std::string word = line.substr(at, end - at);
    if (word.ends_with(',')) word.pop_back();
    option.words.push_back(word);
    at = std::min(end + 1, line.size());
  }
  option.takes_value = at < line.size() && line[at] != ' ';
  options.push_back(option);
}

std::vector<ListedOption> options_of(const CasePlan& plan, const std::string& tool,
                                     const fs::path& folder) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<ListedOption>> known;
  const std::lock_guard lock(mutex);
  std::vector<ListedOption>& options = known[tool];
  if (!options.empty()) return options;
  const fs::path notes = folder.parent_path() / "help";
  fs::create_directories(notes);
  Command command;
  command.words = {plan.tools.path(tool), "--help"};
  command.folder = notes;
  std::string help = run_child(command, {}, notes).out;
  for (std::size_t at = 0; at < help.size();) {
    const std::size_t end = std::min(help.find('\n', at), help.size());
    read_help_line(help.substr(at, end - at), options);
    at = end + 1;
  }
  if (options.size() < 5) throw std::runtime_error(tool + " --help: no options found");
  return options;
}

struct Base {
  std::string tool;
  Words words;
  Words copies;
  std::string end_at = {};  // as in Command
};

const std::vector<Base>& bases() {
  static const std::vector<Base> kBases = {
      {"leq-run",
       {"-m", "int8.leq", "--raw", "-p", "the", "-n", "2", "-t", "1"},
       {"int8.leq", "text.txt"}},
      {"leq-run",
       {"-m", "int8.leq", "-cnv", "-st", "-p", "the", "-n", "2", "-t", "1"},
       {"int8.leq", "text.txt"}},
      {"leq-inspect", {"int8.leq"}, {"int8.leq", "text.txt"}},
      {"leq-inspect", {"int8.leq", "--fit", "-t", "1"}, {"int8.leq", "text.txt"}},
      {"leq-inspect", {"int8.leq", "--tokenize", "text.txt"}, {"int8.leq", "text.txt"}},
      {"leq-perplexity",
       {"-m", "int8.leq", "-f", "text.txt", "--join", "none", "-c", "16", "--chunks", "1", "-t",
        "1"},
       {"int8.leq", "text.txt", "base.kl"}},
      {"leq-bench",
       {"-m", "int8.leq", "-p", "4", "-n", "2", "-r", "1", "-t", "1", "--requests", "1"},
       {"int8.leq"}},
      {"leq-quantize",
       {"sharded", "-o", "out.leq", "-t", "1", "--no-gate", "--samples", "1", "--length", "8"},
       {"sharded", "text.txt"}},
      {"leq-quantize",
       {"sharded", "-o", "out.leq", "-t", "1", "--no-gate", "--type", "int8"},
       {"sharded", "text.txt"}}};
  return kBases;
}

const std::vector<Base>& server_bases() {
  static const std::vector<Base> kBases = {
      {"leq-server",
       {"-m", "int8.leq", "--port", "0", "-t", "1"},
       {"int8.leq", "text.txt", "keys.txt"},
       kListening},
      {"leq-server",
       {"-m", "int8.leq", "--port", "0", "-t", "1", "--slot-save-path", "slots", "-np", "2"},
       {"int8.leq", "text.txt", "slots"},
       kListening}};
  return kBases;
}

// Returns whether large values of this option mean very long work, as intended.
bool means_work(const std::string& tool, const ListedOption& option) {
  static const std::map<std::string, Words> kWork = {
      {"leq-bench",
       {"-p", "-n", "-r", "-pg", "-d", "-np", "--n-prompt", "--n-gen", "--n-depth", "--repetitions",
        "--n-parallel", "-m", "--model"}},
      {"leq-quantize", {"--samples", "--search-evals"}}};
  const auto found = kWork.find(tool);
  if (found == kWork.end()) return false;
  return std::any_of(option.words.begin(), option.words.end(), [&](const std::string& word) {
    return std::find(found->second.begin(), found->second.end(), word) != found->second.end();
  });
}

std::string long_text(Dice& dice) {
  return std::string(dice.chance(0.5) ? 5000 : 120'000, dice.chance(0.5) ? 'a' : '9');
}

std::string odd_value(bool work, Dice& dice) {
  static const Words kSmall = {"",
                               "-1",
                               "-0",
                               "+1",
                               "0x10",
                               "1.5",
                               "1e",
                               "nan",
                               "NaN",
                               "inf",
                               "-inf",
                               " 1",
                               "1 ",
                               "1\n",
                               "1,",
                               ",",
                               ",,1",
                               "1,x",
                               "-",
                               "--",
                               "%s%n%s",
                               "*",
                               "~",
                               ".",
                               "..",
                               "/",
                               "/dev/full",
                               "/dev/null/x",
                               "no/such/folder/file",
                               "x\ty",
                               "\x1b[31mred\x07",
                               "\xff\xfe",
                               "\xc3\xa9\xe2\x82\xac",
                               "a=b",
                               "=",
                               "'\"\\",
                               "(",
                               "[",
                               "(a{1000}){1000}=int8",
                               "text.txt",
                               "sharded",
                               "0",
                               "true",
                               "null"};
  static const Words kLarge = {"2147483647",
                               "2147483648",
                               "-2147483649",
                               "4294967296",
                               "9223372036854775807",
                               "9223372036854775808",
                               "18446744073709551616",
                               "1e308",
                               "-1e308",
                               "1e999",
                               "1e-400",
                               "99999999999999999999999999",
                               "1T",
                               "9999999T",
                               "0.0000001"};
  if (dice.chance(0.08)) return long_text(dice);
  return !work && dice.chance(0.35) ? dice.of(kLarge) : dice.of(kSmall);
}

std::string plain_value(Dice& dice) {
  static const Words kValues = {"1",    "2",      "8",      "16",  "int8",     "f16",       "f32",
                                "on",   "off",    "none",   "cpu", "text.txt", "hf",        "md",
                                "json", "chatml", "row",    "0.5", "0.9",      "int4-g32",  "gptq",
                                "q4",   "auto",   "search", "64",  "base.kl",  "hf-stride", "sens",
                                "4",    "128",    "8G"};
  return dice.of(kValues);
}

std::string variable_of(const ListedOption& option) {
  std::string name = "LEQ_ARG_";
  for (const char c : option.words.back().substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

class WordsCase {
 public:
  WordsCase(const CasePlan& plan, const Base& base, std::vector<ListedOption> options, Dice& dice)
      : plan_(plan), base_(base), options_(std::move(options)), dice_(dice) {
    words_ = base_.words;
  }

  void change() {
    switch (dice_.below(9)) {
      case 0:
      case 1:
      case 2:
        return odd_option();
      case 3:
        return missing_value();
      case 4:
        return unknown_word();
      case 5:
      case 6:
        return two_options();
      case 7:
        return variable();
      default:
        return odd_position();
    }
  }

  Case finish(const fs::path& folder) {
    Case made;
    made.name = "words: " + what_;
    made.kind = "words/" + group_;
    made.tool = base_.tool;
    made.command.words = {plan_.tools.path(base_.tool)};
    made.command.words.insert(made.command.words.end(), words_.begin(), words_.end());
    made.command.environment = environment_;
    made.command.end_at = base_.end_at;
    made.command.standard_input = dice_.chance(0.2) ? Stdin::closed : Stdin::nothing;
    made.command.folder = folder;
    // A successful run may only write files whose names were given.
    made.expectation = {.expect = expect_, .names = names_, .outputs = {"*"}, .talk = talk()};
    return made;
  }

 private:
  Talk talk() const {
    // The number of tokens in a chat's texts is only known after its model is loaded and named.
    const bool chats = std::ranges::find(names_, "--system-prompt") != names_.end();
    // Without a GPU a note says that the model runs on the CPU.
    const bool gpu = std::ranges::find(words_, "--n-gpu-layers") != words_.end();
    const bool talks = base_.tool == "leq-quantize" || base_.tool == "leq-server" || chats || gpu;
    return talks ? Talk::before : Talk::none;
  }

  const ListedOption& option(bool with_value) {
    const ListedOption* found = &dice_.of(options_);
    while (found->takes_value != with_value) found = &dice_.of(options_);
    return *found;
  }
  void name(const ListedOption& option) {
    names_.insert(names_.end(), option.words.begin(), option.words.end());
  }
  // A repeated option takes its last value or is refused as a duplicate; both are valid.
  void odd_option() {
    const ListedOption& chosen = option(true);
    const std::string value = odd_value(means_work(base_.tool, chosen), dice_);
    const std::string& word = dice_.of(chosen.words);
    if (word.starts_with("--") && dice_.chance(0.4)) {
      words_.push_back(word + "=" + value);
    } else {
      words_.insert(words_.end(), {word, value});
    }
    name(chosen);
    name_all();
    if (!value.empty()) names_.push_back(value.substr(0, 60));
    what_ = word + " " + value.substr(0, 40);
    group_ = "odd value";
  }
  void missing_value() {
    const ListedOption& chosen = option(true);
    words_.push_back(dice_.of(chosen.words));
    name(chosen);
    what_ = words_.back() + " without its value";
    group_ = "missing value";
    expect_ = Expect::refused;
  }
  void unknown_word() {
    static const Words kUnknown = {
        "--no-such-option", "--no-such=3", "-Q",        "---",      "-zz",
        "--MODEL",          "--\xff",      "--\x1b[2J", "-\xc3\xa9"};
    const std::string word =
        dice_.chance(0.2) ? "--" + std::string(100'000, 'x') : dice_.of(kUnknown);
    words_.push_back(word);
    what_ = "unknown " + word.substr(0, 40);
    group_ = "unknown word";
    expect_ = Expect::refused;
    names_ = {word.substr(0, 3)};
    if (word[2] < 0x20 || word[2] > 0x7e) names_ = {"-"};
  }
  void two_options() {
    for (int i = 0; i < 2; ++i) {
      const ListedOption& chosen = option(dice_.chance(0.6));
      words_.push_back(dice_.of(chosen.words));
      name(chosen);
      what_ += words_.back() + " ";
      if (!chosen.takes_value) continue;
      words_.push_back(means_work(base_.tool, chosen) ? "1" : plain_value(dice_));
      names_.push_back(words_.back() + ": ");
      what_ += words_.back() + " ";
    }
    name_all();
    group_ = "two options";
  }
  void variable() {
    const ListedOption& chosen = option(dice_.chance(0.8));
    const std::string value = odd_value(means_work(base_.tool, chosen), dice_);
    environment_ = {variable_of(chosen) + "=" + value.substr(0, 100'000)};
    name(chosen);
    names_.push_back(variable_of(chosen));
    if (!value.empty()) names_.push_back(value.substr(0, 60));
    name_all();
    what_ = variable_of(chosen) + "=" + value.substr(0, 40);
    group_ = "variable";
  }
  void odd_position() {
    const std::string value = odd_value(false, dice_);
    const std::size_t at = dice_.below(words_.size() + 1);
    words_.insert(words_.begin() + static_cast<std::ptrdiff_t>(at), value);
    name_all();
    what_ = "'" + value.substr(0, 40) + "' as word " + std::to_string(at + 1);
    group_ = "odd position";
    // Any of the words may now be at fault, so only the form of the error line is checked.
    names_.clear();
  }
  // Two flags may contradict each other, so the error may name either one.
  void name_all() {
    for (const std::string& word : words_) {
      if (word.size() > 1) names_.push_back(word.substr(0, 60));
    }
  }

  const CasePlan& plan_;
  const Base& base_;
  std::vector<ListedOption> options_;
  Dice& dice_;
  Words words_, environment_, names_;
  std::string what_, group_;
  Expect expect_ = Expect::either;
};

}  // namespace

Case make_words_case(const CasePlan& plan, std::uint64_t number, const fs::path& folder,
                     Program program) {
  Dice dice(plan.seed + 1, number);
  const Base& base = dice.of(program == Program::server ? server_bases() : bases());
  for (const std::string& name : base.copies) {
    fs::copy(plan.samples / name, folder / name, fs::copy_options::recursive);
  }
  WordsCase words(plan, base, options_of(plan, base.tool, folder), dice);
  words.change();
  return words.finish(folder);
}

}  // namespace leq::hostile

#include "hostile/child.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace leq::hostile {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxText = 4u << 20;

std::string read_start(const fs::path& path) {
  std::error_code missing;
  const std::uintmax_t size = fs::file_size(path, missing);
  if (missing) return "";
  std::ifstream file(path, std::ios::binary);
  std::string text(std::min<std::uintmax_t>(size, kMaxText), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// These are prepared before the fork, because nothing may allocate between fork and exec.
struct Prepared {
  std::vector<char*> words, environment;
  std::string folder, in, out, err;
  bool close_input = false;
};

void limit(int resource, std::uint64_t value) {
  const rlimit both = {value, value};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

void open_as(const char* path, int flags, int descriptor) {
  const int opened = ::open(path, flags, 0600);
  if (opened < 0) ::_exit(126);
  if (opened == descriptor) return;
  ::dup2(opened, descriptor);
  ::close(opened);
}

[[noreturn]] void become(const Prepared& child, const Limits& limits) {
  ::setpgid(0, 0);
  ::signal(SIGPIPE, SIG_DFL);
  limit(RLIMIT_CORE, 0);
  if (limits.address_space > 0) limit(RLIMIT_AS, limits.address_space);
  limit(RLIMIT_FSIZE, limits.file_bytes);
  ::prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0);
  ::prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH, 0, 0, 0);
  if (::chdir(child.folder.c_str()) != 0) ::_exit(126);
  open_as(child.in.c_str(), O_RDONLY, STDIN_FILENO);
  open_as(child.out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
  open_as(child.err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  if (child.close_input) ::close(STDIN_FILENO);
  ::execve(child.words[0], child.words.data(), child.environment.data());
  ::_exit(127);
}

}  // namespace

Ended run_child(const Command& command, const Limits& limits, const fs::path& notes) {
  Prepared child;
  for (const std::string& word : command.words)
    child.words.push_back(const_cast<char*>(word.c_str()));
  child.words.push_back(nullptr);
  for (char** entry = environ; *entry != nullptr; ++entry) child.environment.push_back(*entry);
  for (const std::string& entry : command.environment) {
    // If the environment has several entries with one name, the first takes precedence.
    child.environment.insert(child.environment.begin(), const_cast<char*>(entry.c_str()));
  }
  child.environment.push_back(nullptr);
  child.folder = command.folder.string();
  child.in = command.standard_input == Stdin::text ? (notes / "in").string() : "/dev/null";
  child.out = (notes / "out").string();
  child.err = (notes / "err").string();
  child.close_input = command.standard_input == Stdin::closed;
  if (command.standard_input == Stdin::text) {
    std::ofstream(notes / "in", std::ios::binary) << command.input;
  }
  const auto start = Clock::now();
  const pid_t id = ::fork();
  if (id < 0) throw std::runtime_error("fork: " + std::string(std::strerror(errno)));
  if (id == 0) become(child, limits);
  Ended ended;
  int status = 0;
  rusage used = {};
  auto pause = std::chrono::microseconds(300);
  bool told = command.end_at.empty();
  while (::wait4(id, &status, WNOHANG, &used) == 0) {
    const std::chrono::duration<double> took = Clock::now() - start;
    if (took.count() > limits.seconds && !ended.timed_out) {
      ended.timed_out = true;
      ::kill(-id, SIGKILL);
    }
    if (const int port = told ? 0 : port_in(read_start(notes / "err"), command.end_at)) {
      told = true;
      for (const Question& question : command.questions) {
        ended.answers.push_back(ask(port, question, limits.seconds));
      }
      ::kill(id, SIGTERM);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 5 / 4, std::chrono::microseconds(10'000));
  }
  ::kill(-id, SIGKILL);  // kills processes that it left behind
  ended.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (WIFEXITED(status)) ended.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  ended.peak_bytes = static_cast<std::uint64_t>(used.ru_maxrss) * 1024;
  ended.out = read_start(notes / "out");
  ended.err = read_start(notes / "err");
  return ended;
}

namespace {

std::string quoted(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("-_./=,:+@%", c) != nullptr;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  if (word.size() > 4096) {
    return "\"$(printf '" + std::string(1, word[0]) + "%.0s' $(seq " + std::to_string(word.size()) +
           "))\"";
  }
  std::string out = "$'";
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    char octal[5];
    std::snprintf(octal, sizeof octal, "\\%03o", byte);
    const bool printable = byte >= 0x20 && byte < 0x7f && c != '\'' && c != '\\';
    out += printable ? std::string(1, c) : std::string(octal);
  }
  return out + "'";
}

}  // namespace

std::string shell_text(const Command& command) {
  std::string text = "cd " + quoted(command.folder.string()) + " && ";
  for (const std::string& entry : command.environment) text += quoted(entry) + " ";
  for (const std::string& word : command.words) text += quoted(word) + " ";
  switch (command.standard_input) {
    case Stdin::closed:
      return text + "<&-";
    case Stdin::nothing:
      return text + "< /dev/null";
    case Stdin::text:
      return text + "< ../notes/in";
  }
  return text;
}

bool modes_hold() {
  static const bool kHold = ::geteuid() != 0 || ::prctl(PR_CAPBSET_READ, CAP_SETPCAP, 0, 0, 0) == 1;
  return kHold;
}

}  // namespace leq::hostile

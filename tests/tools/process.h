// Runs a program as a user would: in a process of its own, with pipes or a terminal.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace leq::test {

class Process {
 public:
  enum class Input { pipe, terminal };

  // With Input::terminal, standard input and standard error are one terminal; standard output is
  // always a pipe. `environment` entries have the form "NAME=value".
  Process(const std::vector<std::string>& command, Input input,
          const std::vector<std::string>& environment = {}) {
    int text[2], messages[2] = {-1, -1}, in[2] = {-1, -1};
    check(pipe(text), "pipe");
    int terminal = -1;
    if (input == Input::terminal) {
      check(openpty(&input_, &terminal, nullptr, nullptr, nullptr), "openpty");
      error_ = dup(input_);
    } else {
      check(pipe(in), "pipe");
      check(pipe(messages), "pipe");
      input_ = in[1];
      error_ = messages[0];
    }
    output_ = text[0];
    for (const int kept : {input_, error_, output_}) fcntl(kept, F_SETFD, FD_CLOEXEC);
    id_ = fork();
    check(id_, "fork");
    if (id_ == 0) {
      if (terminal >= 0) login_tty(terminal);
      if (terminal < 0) dup2(in[0], STDIN_FILENO);
      if (terminal < 0) dup2(messages[1], STDERR_FILENO);
      dup2(text[1], STDOUT_FILENO);
      execute(command, environment);
    }
    for (const int theirs : {in[0], messages[1], text[1], terminal}) {
      if (theirs >= 0) close(theirs);
    }
  }
  ~Process() {
    if (id_ > 0 && !ended_) {
      ::kill(id_, SIGKILL);
      wait();
    }
    for (const int mine : {input_, output_, error_}) {
      if (mine >= 0) close(mine);
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void write(const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t wrote = ::write(input_, text.data() + done, text.size() - done);
      if (wrote <= 0) return;  // it no longer reads
      done += static_cast<std::size_t>(wrote);
    }
  }
  void close_input() {
    close(input_);
    input_ = -1;
  }
  void close_output() {
    close(output_);
    output_ = -1;
  }
  void signal(int number) { ::kill(id_, number); }
  // Resizes the terminal; a signal notifies its programs.
  void resize(unsigned short rows, unsigned short columns) {
    const winsize size = {rows, columns, 0, 0};
    check(ioctl(input_, TIOCSWINSZ, &size), "TIOCSWINSZ");
  }

  // Reads until `text` appears on that stream, after texts that earlier calls waited for. Returns
  // false at the end of the streams or after a minute.
  bool wait_for_output(const std::string& text) { return wait_for(text, out, out_seen_); }
  bool wait_for_error(const std::string& text) { return wait_for(text, err, err_seen_); }
  // Reads to the end and returns the exit status, or 1000 + the signal that ended it.
  int finish() {
    pump([] { return false; });
    wait();
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 1000 + WTERMSIG(status_);
  }

  std::string out, err;  // received so far

 private:
  static void check(int result, const char* what) {
    if (result < 0) throw std::runtime_error(what);
  }
  [[noreturn]] static void execute(const std::vector<std::string>& command,
                                   const std::vector<std::string>& environment) {
    std::vector<char*> words;
    for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    putenv(const_cast<char*>("LEQ_HISTORY="));  // tests must not write to the user's history
    for (const auto& entry : environment) putenv(const_cast<char*>(entry.c_str()));
    std::signal(SIGPIPE, SIG_DFL);
    execv(words[0], words.data());
    _exit(127);
  }
  void wait() {
    while (waitpid(id_, &status_, 0) < 0 && errno == EINTR) {
    }
    ended_ = true;
  }
  static bool read_some(int& descriptor, std::string& to) {
    char part[4096];
    const ssize_t got = ::read(descriptor, part, sizeof part);
    if (got > 0) {
      to.append(part, static_cast<std::size_t>(got));
      return true;
    }
    close(descriptor);
    descriptor = -1;
    return false;
  }
  bool wait_for(const std::string& text, const std::string& stream, std::size_t& seen) {
    if (!pump([&] { return stream.find(text, seen) != std::string::npos; })) return false;
    seen = stream.find(text, seen) + text.size();
    return true;
  }
  template <class Seen>
  bool pump(Seen seen) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::seconds(60);
    while (!seen() && (output_ >= 0 || error_ >= 0) && Clock::now() < end) {
      pollfd waiting[2] = {{output_, POLLIN, 0}, {error_, POLLIN, 0}};
      if (poll(waiting, 2, 1000) <= 0) continue;
      if (waiting[0].revents != 0) read_some(output_, out);
      if (waiting[1].revents != 0) read_some(error_, err);
    }
    return seen();
  }

  pid_t id_ = -1;
  int input_ = -1, output_ = -1, error_ = -1;
  std::size_t out_seen_ = 0, err_seen_ = 0;
  int status_ = 0;
  bool ended_ = false;
};

// The results of a program that received `input` on standard input.
struct Finished {
  int status = 0;
  std::string out, err;
};

inline Finished run(const std::vector<std::string>& command, const std::string& input = "",
                    const std::vector<std::string>& environment = {}) {
  Process process(command, Process::Input::pipe, environment);
  std::signal(SIGPIPE, SIG_IGN);  // the program may not read its input
  process.write(input);
  process.close_input();
  const int status = process.finish();
  return {status, std::move(process.out), std::move(process.err)};
}

}  // namespace leq::test

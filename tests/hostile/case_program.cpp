#include "hostile/case_program.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

namespace leq::hostile {

namespace fs = std::filesystem;

void read_arguments(int argc, char** argv, const ArgumentTable& table) {
  for (int i = 1; i < argc; i += 2) {
    const auto found = table.find(argv[i]);
    if (found == table.end()) {
      std::string known;
      for (const auto& [word, set] : table) known += " " + word;
      throw std::runtime_error(std::string(argv[i]) + ": expected one of" + known);
    }
    if (i + 1 == argc) throw std::runtime_error(found->first + ": a value is missing");
    found->second(argv[i + 1]);
  }
}

CaseFolder::CaseFolder(const std::string& name) {
  std::string pattern = (fs::temp_directory_path() / (name + "-XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

CaseFolder::~CaseFolder() {
  std::error_code ignored;
  if (!kept_) fs::remove_all(path_, ignored);
}

std::size_t run_cases(std::size_t count, unsigned jobs,
                      const std::function<std::optional<CaseFailure>(std::size_t)>& run) {
  std::mutex mutex;
  std::map<std::string, std::vector<CaseFailure>> failures;
  std::size_t done = 0, failed = 0;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      std::optional<CaseFailure> failure;
      try {
        failure = run(i);
      } catch (const std::exception& error) {
        failure = {"broken", "case " + std::to_string(i) + " of this run", error.what(), ""};
      }
      const std::lock_guard lock(mutex);
      if (++done % 500 == 0) {
        std::printf("%zu of %zu cases\n", done, count);
        std::fflush(stdout);
      }
      if (!failure) continue;
      ++failed;
      failures[failure->group].push_back(std::move(*failure));
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const auto& [group, all] : failures) {
    std::printf("\n%zu x %s\n", all.size(), group.c_str());
    for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 3); ++i) {
      std::printf("  %s: %s\n    said: %s\n", short_text(all[i].name).c_str(), all[i].text.c_str(),
                  short_text(all[i].said).c_str());
    }
  }
  return failed;
}

std::string short_text(const std::string& text) {
  std::string line = text.size() > 400 ? "..." + text.substr(text.size() - 400) : text;
  for (char& c : line) {
    if (c == '\n') c = '|';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return line;
}

}  // namespace leq::hostile

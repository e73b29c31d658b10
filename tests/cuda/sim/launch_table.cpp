// Checks that these tests launch every kernel of the backend. After the last test, the launches of
// each kernel are printed; a kernel that nvcc compiles (cuda/check/kernels.txt) but no test
// launches is a failure. Each instantiation counts as a kernel: every number of bits, tile and
// grouping.
#include "launch_table.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "cuda/sim/emulator.h"

namespace {

void erase_all(std::string& text, const std::string& part) {
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part)) {
    text.erase(at, part.size());
  }
}

// Formats a name as cuda/check/check_nvcc.sh does: no namespaces, blanks, result or parameters.
std::string kernel_name(std::string symbol) {
  for (const char* part : {"void ", "(anonymous namespace)::", "leq::sim::", " "}) {
    erase_all(symbol, part);
  }
  return symbol.substr(0, symbol.rfind('('));
}

// Reads the names of this program's functions by their addresses in its file.
std::map<std::uintptr_t, std::set<std::string>> read_functions() {
  std::map<std::uintptr_t, std::set<std::string>> names;
  const std::string program = std::filesystem::canonical("/proc/self/exe");
  std::FILE* pipe = popen(("nm -C '" + program + "'").c_str(), "r");
  char line[8192];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) {
    unsigned long address = 0;
    char type = 0;
    int at = 0;
    if (std::sscanf(line, "%lx %c %n", &address, &type, &at) != 2) continue;
    std::string name = line + at;
    name.erase(name.find_last_not_of('\n') + 1);
    if (type == 'T' || type == 't' || type == 'W') names[address].insert(kernel_name(name));
  }
  if (pipe != nullptr) pclose(pipe);
  return names;
}

std::set<std::string> compiled_kernels() {
  std::set<std::string> kernels;
  std::ifstream file(LEQ_SOURCE_DIR "/cuda/check/kernels.txt");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with('#')) kernels.insert(line.substr(0, line.find(' ')));
  }
  return kernels;
}

std::map<std::string, std::uint64_t> launches_by_name() {
  static const auto names = read_functions();
  const auto main_file = [](const void* code) {
    Dl_info info;
    return dladdr(code, &info) == 0 ? 0 : reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  };
  std::map<std::string, std::uint64_t> launches;
  for (const auto& [code, count] : simt::launch_counts()) {
    const auto address = reinterpret_cast<std::uintptr_t>(code);
    auto found = names.find(address - main_file(code));
    if (found == names.end()) found = names.find(address);  // for a program at a fixed address
    if (found == names.end()) continue;
    for (const std::string& name : found->second) launches[name] += count;
  }
  return launches;
}

class LaunchTable : public testing::Environment {
 public:
  void TearDown() override {
    if (GTEST_FLAG_GET(filter) != "*") return;  // a part of the tests launches only some kernels
    const auto launches = launches_by_name();
    const auto kernels = compiled_kernels();
    EXPECT_FALSE(kernels.empty()) << "cuda/check/kernels.txt names no kernel";
    std::printf("launches  kernel\n");
    for (const std::string& kernel : kernels) {
      const auto found = launches.find(kernel);
      const std::uint64_t count = found == launches.end() ? 0 : found->second;
      std::printf("%8llu  %s\n", static_cast<unsigned long long>(count), kernel.c_str());
      EXPECT_GT(count, 0u) << kernel << " of cuda/check/kernels.txt is launched by no test here";
    }
  }
};

const auto* const table = testing::AddGlobalTestEnvironment(new LaunchTable);  // owned by gtest

}  // namespace

std::uint64_t launches_of(std::string_view kernels) {
  std::uint64_t sum = 0;
  for (const auto& [name, count] : launches_by_name()) sum += name.starts_with(kernels) ? count : 0;
  return sum;
}

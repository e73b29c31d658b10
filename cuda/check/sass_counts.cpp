// Reads the machine code of each kernel of a cubin (an ELF file):
//   sass_counts ARCHITECTURE CUBIN...
// For each kernel it prints "Code of 'KERNEL' for 'ARCHITECTURE': TENSOR FENCES DIVISIONS EARLY":
// the number of tensor-core instructions; of GPU-wide memory fences and of integer divisions in
// the main loop; of 16-byte loads before the wait for the previous kernel. The main loop is the
// range of a backward branch with the most tensor-core instructions (if there are none, the most
// dp4a) that contains no such loop; the shortest on ties. Without a main loop, fences and
// divisions of all loops are counted. An instruction has 16 bytes, with the opcode in its low 12
// bits.
#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

// Opcodes that check_nvcc.sh verifies with known_counts.cu before each use: IMMA, HMMA, IGMMA
// (wgmma) with A in shared memory or in registers, HGMMA with A in registers.
constexpr unsigned kTensorCores[] = {0x237, 0x23c, 0x9f1, 0xdf1, 0xdf0};
constexpr unsigned kLoad = 0x981;  // load from global memory
constexpr unsigned kDp4a = 0x226, kFence = 0x992, kExit = 0x94d;
constexpr unsigned kWait = 0x82e;                 // griddepcontrol.wait
constexpr unsigned kBranches[] = {0x947, 0x547};  // per lane and, on 10.0 and newer, per warp
constexpr unsigned kToFloat[] = {0x306, 0x25a};   // opcodes per lane and per warp

struct Instruction {
  std::uint64_t low, high;

  unsigned operation() const { return low & 0xfff; }
  bool is_tensor() const {
    return std::ranges::find(kTensorCores, operation()) != std::end(kTensorCores);
  }
  bool branches() const { return std::ranges::find(kBranches, operation()) != std::end(kBranches); }
  bool fences_gpu() const { return operation() == kFence && (high >> 13 & 1) != 0; }
  // Detects a conversion that rounds up, which only occurs in integer divisions.
  bool divides() const {
    return std::ranges::find(kToFloat, operation()) != std::end(kToFloat) && (high >> 14 & 3) == 2;
  }
  // Detects an unconditional branch: its predicates are the constant true, and it is not a branch
  // of a diverged warp.
  bool is_always() const { return (low >> 12 & 0xf) == 7 && (high >> 23 & 0x1f) == 7; }
  bool loads_16_bytes() const { return operation() == kLoad && (high >> 9 & 7) == 6; }
  // Returns the distance of the branch in instructions, counted from the next instruction.
  std::int64_t jump(bool hopper) const {
    if (!hopper) return static_cast<std::int32_t>(low >> 32) / 16;
    const auto upper = static_cast<std::int64_t>(low) >> 34;
    return (upper * 256 + static_cast<std::int64_t>(low >> 16 & 0xff)) / 4;
  }
};

template <class T>
T read_at(const std::vector<char>& file, std::size_t at) {
  T value = {};
  if (at + sizeof value <= file.size()) std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

struct Counts {
  long tensor = 0, fences = 0, divisions = 0, early_loads = 0;
};

// Returns whether control flow from `first` reaches `last` within the range. Otherwise a backward
// branch is not a loop but the return from rarely executed code at the end of the kernel.
bool leads_to(const std::vector<Instruction>& code, bool hopper, std::size_t first,
              std::size_t last) {
  std::vector<bool> reached(last + 1);
  std::vector<std::size_t> left = {first};
  while (!left.empty()) {
    const std::size_t at = left.back();
    left.pop_back();
    if (at < first || at > last || reached[at]) continue;
    reached[at] = true;
    if (code[at].branches()) {
      left.push_back(at + 1 + static_cast<std::size_t>(code[at].jump(hopper)));
    }
    const bool ends = code[at].branches() || code[at].operation() == kExit;
    if (!ends || !code[at].is_always()) left.push_back(at + 1);
  }
  return reached[last];
}

Counts counts_of(const std::vector<Instruction>& code, bool hopper) {
  const auto work = [&](auto is_work) {
    std::vector<long> before(1);  // number of such instructions before each
    for (const Instruction& one : code) before.push_back(before.back() + (is_work(one) ? 1 : 0));
    return before;
  };
  std::vector<long> before = work([](const Instruction& one) { return one.is_tensor(); });
  Counts counts;
  counts.tensor = before.back();
  if (counts.tensor == 0) {
    before = work([](const Instruction& one) { return one.operation() == kDp4a; });
  }
  struct Loop {
    std::size_t first, last;
    long work;
  };
  std::vector<Loop> loops;
  std::vector<bool> looped(code.size());  // in any loop, also in one without tensor-core work
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (!code[i].branches()) continue;
    const std::int64_t to = static_cast<std::int64_t>(i) + 1 + code[i].jump(hopper);
    if (to < 0 || to >= static_cast<std::int64_t>(i)) continue;
    const auto start = static_cast<std::size_t>(to);
    const long work = before[i + 1] - before[start];
    if (work > 0) loops.push_back({start, i + 1, work});
    if (!leads_to(code, hopper, start, i)) continue;
    std::fill(looped.begin() + to, looped.begin() + static_cast<std::ptrdiff_t>(i), true);
  }
  std::size_t first = 0, last = 0;
  long most = 0;
  for (const Loop& loop : loops) {
    const bool holds_another = std::ranges::any_of(loops, [&](const Loop& other) {
      return loop.first <= other.first && other.last <= loop.last &&
             other.last - other.first < loop.last - loop.first && other.first != loop.first;
    });
    if (holds_another || loop.work < most) continue;
    if (loop.work == most && loop.last - loop.first >= last - first) continue;
    most = loop.work;
    first = loop.first;
    last = loop.last;
  }
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (last > first ? i < first || i >= last : !looped[i]) continue;
    counts.fences += code[i].fences_gpu() ? 1 : 0;
    counts.divisions += code[i].divides() ? 1 : 0;
  }
  const auto wait = std::ranges::find(code, kWait, &Instruction::operation);
  if (wait != code.end()) {
    counts.early_loads = std::count_if(code.begin(), wait,
                                       [](const Instruction& one) { return one.loads_16_bytes(); });
  }
  return counts;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string prefix = ".text.", architecture = arguments[1];
  const bool hopper = std::stoi(architecture) >= 90;  // 9.0 and newer encode branches differently
  for (int i = 2; i < count; ++i) {
    std::ifstream in(arguments[i], std::ios::binary);
    const std::vector<char> file((std::istreambuf_iterator<char>(in)), {});
    const auto header = read_at<Elf64_Ehdr>(file, 0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
      std::fprintf(stderr, "sass_counts: %s: expected an ELF file\n", arguments[i]);
      return 1;
    }
    const auto section = [&](unsigned n) {
      return read_at<Elf64_Shdr>(file, header.e_shoff + std::size_t{n} * header.e_shentsize);
    };
    const Elf64_Shdr names = section(header.e_shstrndx);
    for (unsigned n = 0; n < header.e_shnum; ++n) {
      const Elf64_Shdr text = section(n);
      const std::string name = file.data() + names.sh_offset + text.sh_name;
      if (name.rfind(prefix, 0) != 0) continue;
      std::vector<Instruction> code;
      for (std::size_t at = 0; at < text.sh_size; at += 16) {
        code.push_back(read_at<Instruction>(file, text.sh_offset + at));
      }
      const Counts counts = counts_of(code, hopper);
      const char* const kernel = name.c_str() + prefix.size();
      std::printf("Code of '%s' for 'sm_%s': %ld %ld %ld %ld\n", kernel, arguments[1],
                  counts.tensor, counts.fences, counts.divisions, counts.early_loads);
    }
  }
}

// Reads the machine code of each kernel of a cubin (an ELF file):
//   sass_counts ARCHITECTURE CUBIN...
// prints "Code of 'KERNEL' for 'ARCHITECTURE': TENSOR LOOP PATH WORK FENCES DIVISIONS": its
// tensor-core instructions, and of its main loop the instructions, those of its path and of them the
// tensor-core ones or dp4a, fences of the whole GPU's memory and integer divisions. The main loop is the range in front of a branch backwards that has
// most tensor-core instructions, or else most dp4a; of several such the shortest. Its path is what a
// warp carries out in a round that does all the work and nothing beside it: from its begin to its
// end, forwards alone, the way with most of those instructions, of several such the shortest. An
// instruction has 16 bytes, its low 12 bits say which it is; the toolkit's own disassembler is not
// always installed.
#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

// Found by compiling known_counts.cu, which check_nvcc.sh does before each use: IMMA, HMMA, and
// IGMMA (wgmma) with operand A in shared memory and in registers.
constexpr unsigned kTensorCores[] = {0x237, 0x23c, 0x9f1, 0xdf1};
constexpr unsigned kDp4a = 0x226, kBranch = 0x947, kFence = 0x992;
constexpr unsigned kToFloat[] = {0x306, 0x25a};  // of a lane, of a warp

struct Instruction {
  std::uint64_t low, high;

  unsigned operation() const { return low & 0xfff; }
  bool is_tensor() const {
    return std::ranges::find(kTensorCores, operation()) != std::end(kTensorCores);
  }
  bool fences_gpu() const { return operation() == kFence && (high >> 13 & 1) != 0; }
  // Rounded up: nothing but the division of integers does that.
  bool divides() const {
    return std::ranges::find(kToFloat, operation()) != std::end(kToFloat) && (high >> 14 & 3) == 2;
  }
  // A branch that is always taken: its predicate is the true one.
  bool is_always() const { return (low >> 12 & 0xf) == 7; }
  // Instructions from the next one to where it goes.
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

struct Way {
  long work = -1, length = 0;  // instructions; work -1: there is no way
};
struct Counts {
  long tensor = 0, loop = 0, fences = 0, divisions = 0;
  Way path = {0, 0};
};

// Instructions on the way from `first` to `last` - 1 with most work: before[i] is what lies in front
// of i.
Way path_of(const std::vector<Instruction>& code, bool hopper, const std::vector<long>& before,
            std::size_t first, std::size_t last) {
  std::vector<Way> to(last - first);
  to[0] = {0, 0};
  for (std::size_t i = first; i + 1 < last; ++i) {
    const Way here = to[i - first];
    if (here.work < 0) continue;
    const Way next = {here.work + before[i + 1] - before[i], here.length + 1};
    const auto reach = [&](std::int64_t at) {
      if (at <= static_cast<std::int64_t>(i) || at >= static_cast<std::int64_t>(last)) return;
      Way& there = to[static_cast<std::size_t>(at) - first];
      if (next.work > there.work || (next.work == there.work && next.length < there.length)) {
        there = next;
      }
    };
    const bool branches = code[i].operation() == kBranch;
    const auto after = static_cast<std::int64_t>(i) + 1;
    if (branches) reach(after + code[i].jump(hopper));
    if (!branches || !code[i].is_always()) reach(after);
  }
  return {to.back().work, to.back().length + 1};
}

Counts counts_of(const std::vector<Instruction>& code, bool hopper) {
  const auto work = [&](auto is_work) {
    std::vector<long> before(1);  // instructions of that kind in front of each
    for (const Instruction& one : code) before.push_back(before.back() + (is_work(one) ? 1 : 0));
    return before;
  };
  std::vector<long> before = work([](const Instruction& one) { return one.is_tensor(); });
  Counts counts;
  counts.tensor = before.back();
  if (counts.tensor == 0) {
    before = work([](const Instruction& one) { return one.operation() == kDp4a; });
  }
  std::size_t first = 0, last = 0;
  long most = 0;
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (code[i].operation() != kBranch) continue;
    const std::int64_t to = static_cast<std::int64_t>(i) + 1 + code[i].jump(hopper);
    if (to < 0 || to >= static_cast<std::int64_t>(i)) continue;
    const auto start = static_cast<std::size_t>(to);
    const long found = before[i + 1] - before[start];
    if (found < most || (found == most && (most == 0 || i + 1 - start >= last - first))) continue;
    most = found;
    first = start;
    last = i + 1;
  }
  counts.loop = static_cast<long>(last - first);
  if (last > first) counts.path = path_of(code, hopper, before, first, last);
  for (std::size_t i = first; i < last; ++i) {
    counts.fences += code[i].fences_gpu() ? 1 : 0;
    counts.divisions += code[i].divides() ? 1 : 0;
  }
  return counts;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string prefix = ".text.", architecture = arguments[1];
  const bool hopper = std::stoi(architecture) >= 90;  // branches are encoded anew
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
      std::printf("Code of '%s' for 'sm_%s': %ld %ld %ld %ld %ld %ld\n", name.c_str() + prefix.size(),
                  arguments[1], counts.tensor, counts.loop, counts.path.length, counts.path.work,
                  counts.fences, counts.divisions);
    }
  }
}

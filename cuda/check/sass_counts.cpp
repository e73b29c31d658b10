// Reads the machine code of each kernel of a cubin (an ELF file):
//   sass_counts ARCHITECTURE CUBIN...
// prints "Code of 'KERNEL' for 'ARCHITECTURE': TENSOR LOOP PATH WORK FENCES DIVISIONS": its
// tensor-core instructions, and of its main loop the instructions, those of its path and of them
// the tensor-core ones or dp4a, fences of the whole GPU's memory and integer divisions. The main
// loop is the range in front of a branch backwards that has most tensor-core instructions, or else
// most dp4a, and no such loop within it; of several the shortest. Its path is what a warp carries
// out in a round that does all the work and nothing beside it: the way round with most of those
// instructions, of several such one with cp.async, of these the shortest. An instruction has 16
// bytes, its low 12 bits say which it is; the toolkit's own disassembler is not always installed.
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
constexpr unsigned kCopy = 0xfae;  // cp.async
constexpr unsigned kDp4a = 0x226, kFence = 0x992;
constexpr unsigned kBranches[] = {0x947, 0x547};  // of a lane, of a warp (10.0 and newer)
constexpr unsigned kToFloat[] = {0x306, 0x25a};   // of a lane, of a warp

struct Instruction {
  std::uint64_t low, high;

  unsigned operation() const { return low & 0xfff; }
  bool is_tensor() const {
    return std::ranges::find(kTensorCores, operation()) != std::end(kTensorCores);
  }
  bool branches() const { return std::ranges::find(kBranches, operation()) != std::end(kBranches); }
  bool fences_gpu() const { return operation() == kFence && (high >> 13 & 1) != 0; }
  // Rounded up: nothing but the division of integers does that.
  bool divides() const {
    return std::ranges::find(kToFloat, operation()) != std::end(kToFloat) && (high >> 14 & 3) == 2;
  }
  // A branch that is always taken: its predicates are the true one, and it is none of a warp that
  // has come apart.
  bool is_always() const { return (low >> 12 & 0xf) == 7 && (high >> 23 & 0x1f) == 7; }
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
  long work = -1;  // instructions; -1: there is no way
  bool copies = false;
  long length = 0;
};
struct Counts {
  long tensor = 0, loop = 0, fences = 0, divisions = 0;
  Way path = {0, false, 0};
};

// The main loop as a graph: where a warp may go from each instruction, but back to the loop's
// begin.
class LoopPaths {
 public:
  LoopPaths(const std::vector<Instruction>& code, bool hopper, const std::vector<long>& before,
            std::size_t first, std::size_t last)
      : code_(code), hopper_(hopper), before_(before), first_(first), last_(last) {}

  // The way round with most work, of several such one with copies, of these the shortest. Loops in
  // it are passed once.
  Way best() {
    order_.clear();
    state_.assign(last_ - first_, State::fresh);
    visit();
    std::vector<Way> to(last_ - first_);
    to[0] = {0, false, 0};
    Way round;
    for (std::size_t i = order_.size(); i-- > 0;) {
      const std::size_t at = order_[i];
      const Way here = to[at - first_];
      const Way next = {here.work + before_[at + 1] - before_[at],
                        here.copies || code_[at].operation() == kCopy, here.length + 1};
      for (const std::size_t successor : successors(at)) {
        Way& there = successor == first_ ? round : to[successor - first_];
        if (better(next, there)) there = next;
      }
      state_[at - first_] = State::passed;
    }
    return round;
  }

 private:
  enum class State : char { fresh, open, done, passed };

  static bool better(const Way& a, const Way& b) {
    if (a.work != b.work) return a.work > b.work;
    return a.copies != b.copies ? a.copies : a.length < b.length;
  }
  std::vector<std::size_t> all_successors(std::size_t at) const {
    std::vector<std::size_t> found;
    const bool branches = code_[at].branches();
    const auto add = [&](std::int64_t to) {
      if (to < static_cast<std::int64_t>(first_) || to >= static_cast<std::int64_t>(last_)) return;
      found.push_back(static_cast<std::size_t>(to));
    };
    if (branches) add(static_cast<std::int64_t>(at) + 1 + code_[at].jump(hopper_));
    if (!branches || !code_[at].is_always()) add(static_cast<std::int64_t>(at) + 1);
    return found;
  }
  // Not those that close a loop within this one: they come earlier in the order.
  std::vector<std::size_t> successors(std::size_t at) const {
    std::vector<std::size_t> found = all_successors(at);
    std::erase_if(found, [&](std::size_t to) {
      return to != first_ && state_[to - first_] == State::passed;
    });
    return found;
  }
  // Instructions that can be reached, each after all that it leads to.
  void visit() {
    std::vector<std::pair<std::size_t, std::size_t>> stack = {{first_, 0}};
    state_[0] = State::open;
    while (!stack.empty()) {
      auto& [at, next] = stack.back();
      const auto successors = all_successors(at);
      if (next < successors.size()) {
        const std::size_t to = successors[next++];
        if (state_[to - first_] != State::fresh) continue;
        state_[to - first_] = State::open;
        stack.emplace_back(to, 0);
        continue;
      }
      state_[at - first_] = State::done;
      order_.push_back(at);
      stack.pop_back();
    }
  }

  const std::vector<Instruction>& code_;
  bool hopper_;
  const std::vector<long>& before_;
  std::size_t first_, last_;
  std::vector<State> state_;
  std::vector<std::size_t> order_;
};

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
  struct Loop {
    std::size_t first, last;
    long work;
  };
  std::vector<Loop> loops;
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (!code[i].branches()) continue;
    const std::int64_t to = static_cast<std::int64_t>(i) + 1 + code[i].jump(hopper);
    if (to < 0 || to >= static_cast<std::int64_t>(i)) continue;
    const auto start = static_cast<std::size_t>(to);
    const long work = before[i + 1] - before[start];
    if (work > 0) loops.push_back({start, i + 1, work});
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
  counts.loop = static_cast<long>(last - first);
  if (last > first) counts.path = LoopPaths(code, hopper, before, first, last).best();
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
      std::printf("Code of '%s' for 'sm_%s': %ld %ld %ld %ld %ld %ld\n",
                  name.c_str() + prefix.size(), arguments[1], counts.tensor, counts.loop,
                  counts.path.length, counts.path.work, counts.fences, counts.divisions);
    }
  }
}

// Reads the machine code of each kernel of a cubin (an ELF file):
//   sass_counts ARCHITECTURE CUBIN...
// prints "Code of 'KERNEL' for 'ARCHITECTURE': TENSOR LOOP LEAST MOST WORK FENCES DIVISIONS": its
// tensor-core instructions, and of its main loop the instructions, those of the shortest and of the
// longest way round it, and of them the tensor-core ones or dp4a, fences of the whole GPU's memory
// and integer divisions; then "Block of 'KERNEL' ...", a line for each straight stretch of the
// loop. The main loop is the range in front of a branch backwards that has most tensor-core
// instructions, or else most dp4a, and no such loop within it; of several the shortest. Of a kernel
// without one fences and divisions are those of all of its loops.
//
// Both ways have all of that work, so what they differ by is what a round may leave out. The
// shortest has cp.async where there is such a way, and nothing that can be gone around. The longest
// has most instructions: all flags are set, and what the lanes of a warp go through apart, one here
// and one there, is carried out on all sides; the compiler marks that (BSSY and BSYNC), as far as
// it does not know better, and where no work lies in it. Loops within are passed once. An
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

// Found by compiling known_counts.cu, which check_nvcc.sh does before each use: IMMA, HMMA,
// IGMMA (wgmma) with operand A in shared memory and in registers, HGMMA with A in registers.
constexpr unsigned kTensorCores[] = {0x237, 0x23c, 0x9f1, 0xdf1, 0xdf0};
constexpr unsigned kCopy = 0xfae, kLoad = 0x981, kStore = 0x986;  // cp.async, global memory
constexpr unsigned kDp4a = 0x226, kFence = 0x992;
constexpr unsigned kMayPart = 0x945;  // BSSY: lanes part behind it, at most up to where it points
constexpr unsigned kExit = 0x94d;
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
  // Instructions from a BSSY to where its lanes meet again.
  std::int64_t meets() const { return static_cast<std::int32_t>(low >> 32) / 16; }
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
// A straight stretch of the main loop: where it begins and may lead to, counted from the loop's
// begin. What leaves the loop is left out.
struct Block {
  std::size_t first = 0, last = 0;
  std::vector<std::size_t> to;
  long work = 0, copies = 0, loads = 0, stores = 0;
};
struct Counts {
  long tensor = 0, loop = 0, work = 0, least = 0, most = 0, fences = 0, divisions = 0;
  std::vector<Block> blocks;
};

// The main loop as a graph: where a warp may go from each instruction, but back to the loop's
// begin.
class LoopWays {
 public:
  LoopWays(const std::vector<Instruction>& code, bool hopper, const std::vector<long>& before,
           std::size_t first, std::size_t last)
      : code_(code), hopper_(hopper), before_(before), first_(first), last_(last) {
    state_.assign(last - first, State::fresh);
    visit();
    rank_.assign(last - first, 0);
    for (std::size_t i = 0; i < order_.size(); ++i) rank_[order_[i] - first_] = order_.size() - i;
    find_meetings();
  }

  Way shortest() { return best(false); }
  Way longest() { return best(true); }

  std::vector<Block> blocks() const {
    std::vector<bool> begins(last_ - first_);
    begins[0] = true;
    for (std::size_t at = first_; at < last_; ++at) {
      if (!code_[at].branches()) continue;
      if (at + 1 < last_) begins[at + 1 - first_] = true;
      for (const std::size_t to : successors(at)) begins[to - first_] = true;
    }
    std::vector<Block> found;
    for (std::size_t at = first_; at < last_; ++at) {
      if (begins[at - first_]) found.push_back({at - first_, at - first_, {}});
      Block& block = found.back();
      ++block.last;
      block.work += work_of(at);
      block.copies += code_[at].operation() == kCopy ? 1 : 0;
      block.loads += code_[at].operation() == kLoad ? 1 : 0;
      block.stores += code_[at].operation() == kStore ? 1 : 0;
      block.to.clear();
      for (const std::size_t to : successors(at)) block.to.push_back(to - first_);
    }
    return found;
  }

 private:
  enum class State : char { fresh, open, done };

  long work_of(std::size_t at) const { return before_[at + 1] - before_[at]; }
  static bool shorter(const Way& a, const Way& b) {
    if (a.work != b.work) return a.work > b.work;
    return a.copies != b.copies ? a.copies : a.length < b.length;
  }
  static bool longer(const Way& a, const Way& b) {
    return a.work != b.work ? a.work > b.work : a.length > b.length;
  }
  std::vector<std::size_t> successors(std::size_t at) const {
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
  // Instructions that can be reached, each after all that it leads to; but what closes a loop
  // within this one.
  void visit() {
    std::vector<std::pair<std::size_t, std::size_t>> stack = {{first_, 0}};
    state_[0] = State::open;
    while (!stack.empty()) {
      auto& [at, next] = stack.back();
      const auto after = successors(at);
      if (next < after.size()) {
        const std::size_t to = after[next++];
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
  // In every way that has both; what closes a loop within this one goes the other way.
  bool comes_before(std::size_t a, std::size_t b) const {
    return rank_[a - first_] < rank_[b - first_];
  }
  // What can be reached from `at` on in front of `meeting`, `at` itself not.
  std::vector<std::size_t> between(std::size_t at, std::size_t meeting) const {
    std::vector<std::size_t> found, left = {at};
    std::vector<bool> seen(last_ - first_);
    seen[meeting - first_] = seen[at - first_] = true;
    while (!left.empty()) {
      const std::size_t one = left.back();
      left.pop_back();
      for (const std::size_t to : successors(one)) {
        if (seen[to - first_] || !comes_before(at, to) || !comes_before(to, meeting)) continue;
        seen[to - first_] = true;
        found.push_back(to);
        left.push_back(to);
      }
    }
    return found;
  }
  // Where lanes that part at an instruction meet again, of several such places the nearest.
  void find_meetings() {
    meeting_.assign(last_ - first_, 0);
    for (std::size_t i = order_.size(); i-- > 0;) {
      const std::size_t at = order_[i];
      if (code_[at].operation() != kMayPart) continue;
      const std::size_t meeting = at + static_cast<std::size_t>(code_[at].meets());
      if (meeting <= at || meeting >= last_) continue;
      for (const std::size_t one : between(at, meeting)) meeting_[one - first_] = meeting;
    }
  }
  Way best(bool is_longest) const {
    std::vector<Way> to(last_ - first_);
    to[0] = {0, false, 0};
    Way round;
    for (std::size_t i = order_.size(); i-- > 0;) {
      const std::size_t at = order_[i];
      Way next = to[at - first_];
      if (next.work < 0) continue;
      next.work += work_of(at);
      next.copies = next.copies || code_[at].operation() == kCopy;
      ++next.length;
      const auto reach = [&](std::size_t successor) {
        if (successor != first_ && !comes_before(at, successor)) return;
        Way& there = successor == first_ ? round : to[successor - first_];
        if (is_longest ? longer(next, there) : shorter(next, there)) there = next;
      };
      if (const std::size_t meeting = meeting_[at - first_];
          is_longest && meeting > 0 && successors(at).size() > 1) {
        const auto all = between(at, meeting);
        const auto has_work = [&](std::size_t one) { return work_of(one) > 0; };
        if (std::ranges::none_of(all, has_work)) {
          next.length += static_cast<long>(all.size());
          reach(meeting);
          continue;
        }
      }
      for (const std::size_t successor : successors(at)) reach(successor);
    }
    return round;
  }

  const std::vector<Instruction>& code_;
  bool hopper_;
  const std::vector<long>& before_;
  std::size_t first_, last_;
  std::vector<State> state_;
  std::vector<std::size_t> order_, rank_;
  std::vector<std::size_t> meeting_;  // 0: none
};

// Whether a warp comes from `first` to `last` by what lies between: a branch back may also be the
// way home of what is rarely done and lies at the end of the code, and no loop.
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
  std::vector<bool> looped(code.size());  // in any loop, with work or without
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
  counts.loop = static_cast<long>(last - first);
  if (last > first) {
    LoopWays ways(code, hopper, before, first, last);
    counts.work = ways.shortest().work;
    counts.least = ways.shortest().length;
    counts.most = ways.longest().length;
    counts.blocks = ways.blocks();
  }
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (last > first ? i < first || i >= last : !looped[i]) continue;
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
      const char* const kernel = name.c_str() + prefix.size();
      std::printf("Code of '%s' for 'sm_%s': %ld %ld %ld %ld %ld %ld %ld\n", kernel, arguments[1],
                  counts.tensor, counts.loop, counts.least, counts.most, counts.work, counts.fences,
                  counts.divisions);
      for (const Block& block : counts.blocks) {
        std::printf(
            "Block of '%s' for 'sm_%s': %zu to %zu: %zu, work %ld, cp.async %ld, loads %ld, "
            "stores %ld, then",
            kernel, arguments[1], block.first, block.last, block.last - block.first, block.work,
            block.copies, block.loads, block.stores);
        for (const std::size_t to : block.to) std::printf(" %zu", to);
        std::printf("\n");
      }
    }
  }
}

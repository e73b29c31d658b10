// Reads the machine code of each kernel of a cubin for 9.0 (an ELF file) and prints the number of
// 16-byte loads from global memory before the wait for the previous kernel, and the kernel's name:
//   early_loads CUBIN
// An instruction has 16 bytes, with the opcode in its low 12 bits.
#include <elf.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

constexpr unsigned kLoad = 0x981, kWait = 0x82e;  // LDG, griddepcontrol.wait

template <class T>
T read_at(const std::vector<char>& file, std::size_t at) {
  T value = {};
  if (at + sizeof value <= file.size()) std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

// Returns -1 for a kernel without a wait.
long loads_before_wait(const std::vector<char>& file, const Elf64_Shdr& text) {
  long loads = 0;
  for (std::size_t at = 0; at < text.sh_size; at += 16) {
    const auto low = read_at<std::uint64_t>(file, text.sh_offset + at);
    const auto high = read_at<std::uint64_t>(file, text.sh_offset + at + 8);
    if ((low & 0xfff) == kWait) return loads;
    if ((low & 0xfff) == kLoad && (high >> 9 & 7) == 6) ++loads;  // 6: 16 bytes
  }
  return -1;
}

}  // namespace

int main(int, char** arguments) {
  const std::string prefix = ".text.";
  std::ifstream in(arguments[1], std::ios::binary);
  const std::vector<char> file((std::istreambuf_iterator<char>(in)), {});
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  const auto section = [&](unsigned n) {
    return read_at<Elf64_Shdr>(file, header.e_shoff + std::size_t{n} * header.e_shentsize);
  };
  for (unsigned n = 0; n < header.e_shnum; ++n) {
    const std::string name =
        file.data() + section(header.e_shstrndx).sh_offset + section(n).sh_name;
    if (name.rfind(prefix, 0) != 0) continue;
    std::printf("%ld %s\n", loads_before_wait(file, section(n)), name.c_str() + prefix.size());
  }
}

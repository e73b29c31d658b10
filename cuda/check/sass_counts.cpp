// Counts tensor-core instructions in the machine code of each kernel of a cubin (an ELF file):
//   sass_counts ARCHITECTURE CUBIN...
// prints "Tensor cores of 'KERNEL' for 'ARCHITECTURE': N". An instruction has 16 bytes, its low 12
// bits say which it is; the toolkit's own disassembler is not always installed.
#include <elf.h>

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

template <class T>
T read_at(const std::vector<char>& file, std::size_t at) {
  T value = {};
  if (at + sizeof value <= file.size()) std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

unsigned count_in(const std::vector<char>& file, const Elf64_Shdr& code) {
  unsigned count = 0;
  for (std::size_t at = 0; at < code.sh_size; at += 16) {
    const unsigned operation = read_at<std::uint64_t>(file, code.sh_offset + at) & 0xfff;
    for (const unsigned wanted : kTensorCores) count += operation == wanted ? 1 : 0;
  }
  return count;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string prefix = ".text.";
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
      const Elf64_Shdr code = section(n);
      const std::string name = file.data() + names.sh_offset + code.sh_name;
      if (name.rfind(prefix, 0) != 0) continue;
      std::printf("Tensor cores of '%s' for 'sm_%s': %u\n", name.c_str() + prefix.size(),
                  arguments[1], count_in(file, code));
    }
  }
}

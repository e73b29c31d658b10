// Any bytes as safetensors. If the first byte of an input is 0, the rest is a whole file. Otherwise
// it is the number of data bytes after the header, and the header is the rest.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "format/tensor_source.h"
#include "fuzz/seeded.h"

namespace {

std::vector<std::string> examples() {
  return {
      std::string(1, '\x0c') +
          R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
          R"("b":{"dtype":"BF16","shape":[2,1],"data_offsets":[8,12]}})",
      std::string(1, '\x05') + R"({"a":{"dtype":"F16","shape":[],"data_offsets":[0,2]},)"
                               R"("b":{"dtype":"BOOL","shape":[3],"data_offsets":[2,5]},)"
                               R"("c":{"dtype":"F64","shape":[0,7],"data_offsets":[5,5]}})"};
}

// A file in memory that has a path.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& content)
      : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (::write(descriptor_, content.data(), content.size()) !=
        static_cast<ssize_t>(content.size())) {
      std::abort();
    }
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

void use(const leq::TensorSource& source) {
  for (const leq::SourceTensor& tensor : source.tensors()) {
    if (source.find(tensor.name) != &tensor) std::abort();
    const std::size_t elements = tensor.bytes.size() / leq::dtype_bytes(tensor.dtype);
    std::vector<float> values(std::min<std::size_t>(elements, 4096));
    try {
      leq::read_floats(tensor, 0, values);
    } catch (const leq::Error&) {
    }
    source.drop(tensor);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string content(data + 1, data + size);
  if (data[0] != 0) {
    std::string length;
    for (int shift = 0; shift < 64; shift += 8) {
      length += static_cast<char>(static_cast<std::uint64_t>(content.size()) >> shift & 255);
    }
    content = length + content + std::string(data[0], 'x');
  }
  const MemoryFile file(content);
  try {
    use(*leq::open_safetensors(file.path()));
  } catch (const leq::Error&) {
  }
  return 0;
}

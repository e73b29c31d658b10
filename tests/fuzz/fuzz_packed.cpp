// Any tensors as quantized safetensors weights. The first two bytes of an input select the method,
// its bits and its groups. The third byte is the number of data bytes, in units of 32, after the
// header; the header is the rest of the input.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "format/packed_source.h"
#include "format/tensor_source.h"
#include "fuzz/seeded.h"

namespace {

using leq::PackedMethod;

std::vector<std::string> examples() {
  return {std::string("\x01\x00\x10", 3) +
              R"({"x.qweight":{"dtype":"I32","shape":[4,8],"data_offsets":[0,128]},)"
              R"("x.qzeros":{"dtype":"I32","shape":[1,1],"data_offsets":[128,132]},)"
              R"("x.scales":{"dtype":"F16","shape":[1,8],"data_offsets":[132,148]},)"
              R"("x.g_idx":{"dtype":"I32","shape":[32],"data_offsets":[148,276]},)"
              R"("pad":{"dtype":"U8","shape":[236],"data_offsets":[276,512]}})",
          std::string("\x02\x00\x10", 3) +
              R"({"x.qweight":{"dtype":"I32","shape":[32,1],"data_offsets":[0,128]},)"
              R"("x.qzeros":{"dtype":"I32","shape":[1,1],"data_offsets":[128,132]},)"
              R"("x.scales":{"dtype":"F16","shape":[1,8],"data_offsets":[132,148]},)"
              R"("pad":{"dtype":"U8","shape":[364],"data_offsets":[148,512]}})",
          std::string("\x03\x02\x08", 3) +
              R"({"x.weight_packed":{"dtype":"I32","shape":[8,4],"data_offsets":[0,128]},)"
              R"("x.weight_scale":{"dtype":"BF16","shape":[8,1],"data_offsets":[128,144]},)"
              R"("x.weight_shape":{"dtype":"I32","shape":[2],"data_offsets":[144,152]},)"
              R"("x.weight_zero_point":{"dtype":"I32","shape":[1,1],"data_offsets":[152,156]},)"
              R"("pad":{"dtype":"U8","shape":[100],"data_offsets":[156,256]}})",
          std::string("\x00\x01\x02", 3) +
              R"({"x.weight":{"dtype":"F8_E4M3","shape":[5,10],"data_offsets":[0,50]},)"
              R"("x.weight_scale_inv":{"dtype":"F32","shape":[1,1],"data_offsets":[50,54]},)"
              R"("y.weight":{"dtype":"F16","shape":[5],"data_offsets":[54,64]}})",
          std::string("\x04\x03\x02", 3) +
              R"({"x.weight":{"dtype":"U8","shape":[3,16],"data_offsets":[0,48]},)"
              R"("x.weight_scale":{"dtype":"U8","shape":[3,1],"data_offsets":[48,51]},)"
              R"("x.weight_scale_2":{"dtype":"F32","shape":[],"data_offsets":[51,55]},)"
              R"("pad":{"dtype":"U8","shape":[9],"data_offsets":[55,64]}})"};
}

leq::PackedOptions options_of(std::uint8_t method, std::uint8_t rest) {
  constexpr int kBits[] = {4, 8, 3, 2};
  constexpr std::int64_t kGroups[] = {0, -1, 32, 16};
  leq::PackedOptions options;
  options.method = static_cast<PackedMethod>(method % 5);
  options.bits = {kBits[rest & 3]};
  options.group = kGroups[rest >> 2 & 3];
  options.zeros_plus_one = (rest & 16) != 0;
  options.block_rows = options.block_columns = (rest & 32) != 0 ? 128 : 3;
  return options;
}

void use(const leq::PackedSource& source) {
  for (const leq::SourceTensor& tensor : source.tensors()) {
    if (source.find(tensor.name) == nullptr) std::abort();
    std::int64_t elements = 1;
    for (const std::int64_t size : tensor.shape) elements *= size;
    std::vector<float> values(static_cast<std::size_t>(std::min<std::int64_t>(elements, 4096)));
    try {
      source.read(tensor, elements - std::ssize(values), values);
      const auto scheme = source.own_scheme(tensor);
      leq::ChosenCodes codes;
      if (scheme && scheme->is_integer())
        source.read_codes(tensor, *scheme, 0, tensor.shape[0], codes);
    } catch (const leq::Error&) {
    }
    source.drop(tensor);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const std::string header(data + 3, data + size);
  std::string content;
  for (int shift = 0; shift < 64; shift += 8) {
    content += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> shift & 255);
  }
  content += header;
  for (int i = 0; i < data[2] * 32; ++i) content += static_cast<char>(i * 37 + data[1]);
  const int descriptor = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (::write(descriptor, content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
    std::abort();
  }
  try {
    use(leq::PackedSource(leq::open_safetensors("/proc/self/fd/" + std::to_string(descriptor)),
                          options_of(data[0], data[1])));
  } catch (const leq::Error&) {
  }
  ::close(descriptor);
  return 0;
}

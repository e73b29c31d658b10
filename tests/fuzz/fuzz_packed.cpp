// Any settings and tensors as quantized safetensors weights. The first byte of an input is the
// number of data bytes, in units of 32, after the header, the second selects the data. A line of
// config.json and the header follow.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "convert/quantization_config.h"
#include "format/packed_source.h"
#include "format/tensor_source.h"
#include "fuzz/seeded.h"

namespace {

std::vector<std::string> examples() {
  return {std::string("\x10\x00", 2) +
              R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":32}})"
              "\n"
              R"({"x.qweight":{"dtype":"I32","shape":[4,8],"data_offsets":[0,128]},)"
              R"("x.qzeros":{"dtype":"I32","shape":[1,1],"data_offsets":[128,132]},)"
              R"("x.scales":{"dtype":"F16","shape":[1,8],"data_offsets":[132,148]},)"
              R"("x.g_idx":{"dtype":"I32","shape":[32],"data_offsets":[148,276]},)"
              R"("pad":{"dtype":"U8","shape":[236],"data_offsets":[276,512]}})",
          std::string("\x10\x00", 2) +
              R"({"quantization_config":{"quant_method":"awq","w_bit":4,"q_group_size":32}})"
              "\n"
              R"({"x.qweight":{"dtype":"I32","shape":[32,1],"data_offsets":[0,128]},)"
              R"("x.qzeros":{"dtype":"I32","shape":[1,1],"data_offsets":[128,132]},)"
              R"("x.scales":{"dtype":"F16","shape":[1,8],"data_offsets":[132,148]},)"
              R"("pad":{"dtype":"U8","shape":[364],"data_offsets":[148,512]}})",
          std::string("\x08\x02", 2) +
              R"({"quantization_config":{"quant_method":"compressed-tensors","config_groups":)"
              R"({"a":{"weights":{"num_bits":4,"group_size":32}}}}})"
              "\n"
              R"({"x.weight_packed":{"dtype":"I32","shape":[8,4],"data_offsets":[0,128]},)"
              R"("x.weight_scale":{"dtype":"BF16","shape":[8,1],"data_offsets":[128,144]},)"
              R"("x.weight_shape":{"dtype":"I32","shape":[2],"data_offsets":[144,152]},)"
              R"("x.weight_zero_point":{"dtype":"I32","shape":[1,1],"data_offsets":[152,156]},)"
              R"("pad":{"dtype":"U8","shape":[100],"data_offsets":[156,256]}})",
          std::string("\x02\x01", 2) +
              R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[128,3]}})"
              "\n"
              R"({"x.weight":{"dtype":"F8_E4M3","shape":[5,10],"data_offsets":[0,50]},)"
              R"("x.weight_scale_inv":{"dtype":"U8","shape":[1,4],"data_offsets":[50,54]},)"
              R"("y.weight":{"dtype":"F16","shape":[5],"data_offsets":[54,64]}})",
          std::string("\x02\x03", 2) +
              R"({"quantization_config":{"quant_method":"modelopt","quant_algo":"NVFP4"}})"
              "\n"
              R"({"x.weight":{"dtype":"U8","shape":[3,16],"data_offsets":[0,48]},)"
              R"("x.weight_scale":{"dtype":"U8","shape":[3,1],"data_offsets":[48,51]},)"
              R"("x.weight_scale_2":{"dtype":"F32","shape":[],"data_offsets":[51,55]},)"
              R"("pad":{"dtype":"U8","shape":[9],"data_offsets":[55,64]}})",
          std::string("\x03\x03", 2) +
              R"({"quantization_config":{"quant_method":"mxfp4"}})"
              "\n"
              R"({"x_blocks":{"dtype":"U8","shape":[1,2,2,16],"data_offsets":[0,64]},)"
              R"("x_scales":{"dtype":"U8","shape":[1,2,2],"data_offsets":[64,68]},)"
              R"("pad":{"dtype":"U8","shape":[28],"data_offsets":[68,96]}})"};
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
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 2), size - 2);
  const std::string_view config = text.substr(0, text.find('\n'));
  const std::string_view header = text.substr(std::min(config.size() + 1, text.size()));
  std::string content;
  for (int shift = 0; shift < 64; shift += 8) {
    content += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> shift & 255);
  }
  content += header;
  for (int i = 0; i < data[0] * 32; ++i) content += static_cast<char>(i * 37 + data[1]);
  const int descriptor = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (::write(descriptor, content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
    std::abort();
  }
  try {
    const auto options =
        leq::read_quantization_config(leq::parse_json(config, "config.json"), "config.json");
    if (options) {
      use({leq::open_safetensors("/proc/self/fd/" + std::to_string(descriptor)), *options});
    }
  } catch (const leq::Error&) {
  }
  ::close(descriptor);
  return 0;
}

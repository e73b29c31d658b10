#include "export/safetensors_writer.h"

#include <array>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace leq {
namespace {

constexpr std::size_t kAlignment = 8;  // alignment of the data after the header

std::uint64_t element_bytes(const std::string& dtype) {
  if (dtype == "I64") return 8;
  if (dtype == "F32" || dtype == "I32") return 4;
  ensure(dtype == "I8", "safetensors: dtype ", dtype);
  return 1;
}

}  // namespace

std::uint64_t safetensor_bytes(const SafeTensor& tensor) {
  std::uint64_t bytes = element_bytes(tensor.dtype);
  for (const std::int64_t size : tensor.shape) bytes *= static_cast<std::uint64_t>(size);
  return bytes;
}

std::uint64_t write_safetensors(const std::filesystem::path& path,
                                const std::vector<SafeTensor>& tensors) {
  Json header = {{"__metadata__", Json::object({{"format", "pt"}})}};
  std::uint64_t offset = 0;
  for (const SafeTensor& tensor : tensors) {
    const std::uint64_t end = offset + safetensor_bytes(tensor);
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", Json::array({offset, end})}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  std::array<std::byte, 8> length = {};
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<std::byte>(text.size() >> (8 * i));
  }
  AtomicFile file(path);
  file.append(length);
  file.append(std::as_bytes(std::span(text)));
  for (const SafeTensor& tensor : tensors) {
    const std::vector<std::byte> bytes = tensor.bytes();
    ensure(bytes.size() == safetensor_bytes(tensor), "safetensors: tensor ", tensor.name, " has ",
           bytes.size(), " bytes, expected ", safetensor_bytes(tensor));
    file.append(bytes);
  }
  const std::uint64_t size = file.size();
  file.commit();
  return size;
}

}  // namespace leq

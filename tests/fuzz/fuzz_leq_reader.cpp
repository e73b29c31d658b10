// Any bytes as a .leq file. If the first byte of an input is 0, the rest is a whole file. Otherwise
// it is the number of blocks of 64 data bytes before the JSON, which is the rest; a valid preamble
// is then added, so that inputs pass the checksum.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "format/leq_bytes.h"
#include "format/leq_reader.h"
#include "fuzz/seeded.h"
#include "tensor/pack.h"

namespace {

std::vector<std::string> examples() {
  return {
      std::string(1, '\x02') +
          R"({"leq":{"requires":[]},"config":{"layers":1},"tensors":{"n":{"shape":[4],"scheme":"f32",)"
          R"("act":"none","planes":{"codes":{"offset":64,"bytes":16,"xxh3":"0000000000000000"}}}},)"
          R"("blobs":{"b":{"offset":128,"bytes":5,"xxh3":"0000000000000000"}}})",
      std::string(1, '\x90') +
          R"({"leq":{"requires":[]},"tensors":{"w":{"shape":[2,3],"scheme":"int8","act":"row",)"
          R"("method":"absmax","error":0.5,"planes":{)"
          R"("codes":{"offset":64,"bytes":8192,"xxh3":"0000000000000000"},)"
          R"("scales":{"offset":8256,"bytes":256,"xxh3":"0000000000000000"},)"
          R"("sums":{"offset":8512,"bytes":256,"xxh3":"0000000000000000"}}}},"blobs":{}})",
      std::string(1, '\x50') +
          R"({"leq":{"requires":[]},"tensors":{"w":{"shape":[2,3],"scheme":"int4-g128","act":"row",)"
          R"("scale_mul":0.125,"planes":{)"
          R"("codes":{"offset":64,"bytes":4096,"xxh3":"0000000000000000"},)"
          R"("scales":{"offset":4160,"bytes":128,"xxh3":"0000000000000000"}}}},"blobs":{}})"};
}

// Reads everything that a model would read; nothing may be outside of the file.
void use(const leq::LeqReader& reader) {
  for (const leq::StoredTensor& tensor : reader.tensors()) {
    if (reader.find(tensor.name) != &tensor) std::abort();
    std::vector<float> row(static_cast<std::size_t>(tensor.view.columns));
    leq::unpack_row(tensor.view, 0, row);
    leq::unpack_row(tensor.view, tensor.view.rows - 1, row);
  }
  try {
    reader.verify([](std::uint64_t, std::uint64_t) {});
  } catch (const leq::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(data + 1, data + size);
  leq::test::Bytes bytes;
  if (data[0] == 0) {
    for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  } else {
    bytes = leq::test::leq_file(text, leq::test::Bytes(std::size_t{64} * data[0]));
  }
  try {
    use(leq::LeqReader(bytes, "fuzz.leq"));
  } catch (const leq::Error&) {
  }
  return 0;
}

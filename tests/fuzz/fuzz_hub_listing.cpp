// The hub's listing of a repository: an error, or names that are paths below a folder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "fuzz/seeded.h"
#include "hub/hub.h"

namespace {

std::vector<std::string> examples() {
  return {R"({"sha":"0123456789abcdef0123456789abcdef01234567","siblings":[)"
          R"({"rfilename":"a/b.safetensors","size":1,"lfs":{"sha256":"x","size":2}}]})"};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const leq::HubRepository repository =
        leq::read_listing("a/b", "main", {reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const leq::HubFile& file : repository.files) {
      const std::filesystem::path path = std::filesystem::path("/root") / file.name;
      if (path.lexically_normal() != path) std::abort();
    }
  } catch (const leq::Error&) {
  }
  return 0;
}

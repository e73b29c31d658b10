#include "server/slot_files.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "format/leq_layout.h"
#include "server/api_fields.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNameBytes = 200;

bool is_plain(unsigned char c) { return c >= 0x20 && c != 0x7f && c != '/' && c != '\\'; }

}  // namespace

SlotFiles::SlotFiles(fs::path folder, const PrefixOwner& owner)
    : folder_(std::move(folder)), owner_(owner) {
  check_output(kept_texts());
}

fs::path SlotFiles::file(std::string_view name) const {
  const bool good = !name.empty() && name.size() <= kMostNameBytes && name.front() != '.' &&
                    std::ranges::all_of(name, is_plain) && !first_invalid_utf8(name);
  require(good, marked_field("filename"), ' ', printable(name),
          ": expected the name of a file without a path, of at most ", kMostNameBytes,
          " bytes, that does not begin with a point");
  return folder_ / name;
}

fs::path SlotFiles::kept_texts() const {
  return folder_ / ("texts-" + checksum_text(owner_.model) + ".leqprm");
}

std::uint64_t SlotFiles::write(std::string_view name, const SavedPrefix& prefix) const {
  const fs::path path = file(name);
  PrefixWriter writer(path, owner_);
  writer.add(prefix);
  writer.commit();
  return fs::file_size(path);
}

SavedPrefix SlotFiles::read(std::string_view name) const {
  const fs::path path = file(name);
  std::error_code error;
  require(fs::is_regular_file(fs::symlink_status(path, error)), marked_field("filename"), ' ',
          printable(name), ": there is no such file");
  const PrefixFile prefixes(path);
  const std::string reason = prefixes->reason_against(owner_);
  require(reason.empty(), marked_field("filename"), ' ', printable(name), ": ", reason);
  require(prefixes->size() > 0, marked_field("filename"), ' ', printable(name), ": holds no text");
  return prefixes->read(0);
}

}  // namespace leq

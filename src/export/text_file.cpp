#include "export/text_file.h"

#include <span>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace leq {

void make_export_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::error_code unknown;
  require(std::filesystem::is_directory(folder, unknown), ErrorKind::io, printable(folder.string()),
          ": cannot make this folder: ", error ? error.message() : "it is a file");
}

void remove_exported(const std::filesystem::path& file) {
  std::error_code unknown;
  if (std::filesystem::is_regular_file(std::filesystem::symlink_status(file, unknown))) {
    std::filesystem::remove(file, unknown);
  }
}

void write_text_files(const std::filesystem::path& folder, const std::vector<TextFile>& files) {
  for (const TextFile& file : files) {
    AtomicFile out(folder / file.name);
    out.append(std::as_bytes(std::span(file.text)));
    out.commit();
  }
}

}  // namespace leq

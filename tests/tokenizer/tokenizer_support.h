// Shared code of the tokenizer tests: test vectors in the formats of the shared data, folders with
// single files, and tables as a BlobFinder.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/tokenizer_import.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "tokenizer/tokenizer.h"

namespace leq::test {

inline Json load_json(const std::filesystem::path& path) {
  return parse_json(read_file(path, kMaxJsonBytes), path.string());
}

inline std::vector<Token> ids_of(const Json& json) { return json.get<std::vector<Token>>(); }

inline Tokenizer open_tokenizer(const std::filesystem::path& path) {
  return Tokenizer(import_tokenizer(path).spec);
}

inline std::vector<Token> encode(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, EncodeOptions{});
}

struct Vector {
  std::string text;
  std::vector<Token> ids;
};

// Reads llama.cpp's ggml-vocab files: texts between marks, and one line of ids for each text.
inline std::vector<Vector> ggml_vectors(const std::filesystem::path& base) {
  const std::string texts = read_file(base.string() + ".inp", 1 << 20);
  const std::string lines = read_file(base.string() + ".out", 1 << 20);
  const auto all = split(texts, "\n__ggml_vocab_test__\n");
  const auto ids = split(lines, "\n");
  std::vector<Vector> out;
  for (std::size_t i = 0; i < all.size() && i < ids.size(); ++i) {
    Vector vector{std::string(all[i]), {}};
    for (const auto word : split(ids[i], " ")) {
      if (const auto id = parse_int(word)) vector.ids.push_back(static_cast<Token>(*id));
    }
    out.push_back(std::move(vector));
  }
  return out;
}

// A temporary folder with copies of some files.
class FolderOf : public TemporaryFolder {
 public:
  FolderOf() = default;
  FolderOf(const std::filesystem::path& from, const std::vector<std::string>& names) {
    for (const auto& name : names) std::filesystem::copy_file(from / name, path() / name);
  }
  void write(const std::string& name, std::string_view text) const {
    AtomicFile file(path() / name);
    file.append(as_bytes(text));
    file.commit();
  }
};

// Provides tables in memory like those of a file.
inline BlobFinder finder(const std::vector<NamedBlob>& blobs) {
  return [&blobs](std::string_view name) -> std::optional<std::span<const std::byte>> {
    for (const auto& blob : blobs) {
      if (blob.name == name) return std::span<const std::byte>(blob.bytes);
    }
    return std::nullopt;
  };
}

}  // namespace leq::test

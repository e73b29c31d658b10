// Files of saved prefixes: tokens, their keys and values, and the states of recurrent
// layers. One kind of file for prompts, slots and all texts of a prefix cache. Files are written
// atomically, and all checksums are verified when they are read. Numbers are little-endian.
//
//   header   8 bytes "LEQPFX01"
//            u64     XXH3-64 of the rest of the header
//            u64     the model: LeqReader::fingerprint()
//            u64     bytes of the layout's name
//            ...     the layout: device, ranks, types and shape (KvCache::form)
//   then for each prefix, the most recently used first, and for an end without tokens:
//            u64     XXH3-64 of the rest of the entry
//            u64 x 4 number of tokens, bytes of keys and values, number of states, bytes of a state
//            i32 ... the tokens
//            i64 ... positions of the states, ascending
//            ...     keys and values with the state at the end (SequenceState::save), the states
//
// A file does not depend on the size of a context. Pages are stored as the device has them, so that
// a file can be used only where `layout` is the same; it is the same on every CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "model/session.h"
#include "tokenizer/spec.h"

namespace leq {

// The model and the layout of keys and values; no other can use a prefix.
struct PrefixOwner {
  std::uint64_t model = 0;  // LeqReader::fingerprint()
  std::string layout;

  bool operator==(const PrefixOwner&) const = default;
};
PrefixOwner prefix_owner(const Model& model, Session& session);

// The state of recurrent layers after `position` tokens, inside a prefix.
struct SavedState {
  std::int64_t position = 0;
  std::vector<std::byte> bytes;
};

struct SavedPrefix {
  std::vector<Token> tokens;
  std::vector<std::byte> kv;       // as SequenceState::save writes it, with the state at the end
  std::vector<SavedState> states;  // ascending positions before the end
};

std::vector<std::byte> prefix_header_bytes(const PrefixOwner& owner);
// An entry; the end of the file if the prefix has no tokens.
std::vector<std::byte> prefix_entry_bytes(const SavedPrefix& prefix);

// The prefixes of a file in memory, which must outlive the reader. All functions throw Error naming
// `source` if the bytes are truncated, damaged or not such a file. The contents of `kv` and of
// states are checked later, when they are loaded.
class PrefixReader {
 public:
  PrefixReader(std::span<const std::byte> bytes, std::string_view source);

  // Why a run with this model and layout cannot use the file; empty if it can. Files of an older
  // format have a reason and no prefixes.
  std::string reason_against(const PrefixOwner& owner) const;
  const PrefixOwner& owner() const { return owner_; }
  std::size_t size() const { return entries_.size(); }
  SavedPrefix read(std::size_t index) const;

 private:
  std::string source_;
  bool is_old_ = false;
  PrefixOwner owner_;
  std::vector<std::span<const std::byte>> entries_;
};

// A file of prefixes; its functions throw Error also if the file cannot be read.
class PrefixFile {
 public:
  explicit PrefixFile(const std::filesystem::path& path)
      : file_(path), reader_(file_.bytes(), file_.name()) {}
  const PrefixReader* operator->() const { return &reader_; }

 private:
  MappedFile file_;
  PrefixReader reader_;
};

// Writes a file prefix by prefix. Without commit() the file is unchanged. All functions throw Error
// if the file cannot be written.
class PrefixWriter {
 public:
  PrefixWriter(const std::filesystem::path& path, const PrefixOwner& owner);
  void add(const SavedPrefix& prefix) { file_.append(prefix_entry_bytes(prefix)); }
  void commit();

 private:
  AtomicFile file_;
};

class Engine;

// The texts of an engine's prefix cache, for the next start of the program.
struct KeptTexts {
  std::int64_t texts = 0, tokens = 0;
};
// Writes as many texts as would fit into the engine's cache without sharing pages. Removes the file
// if there are no texts. Throws Error as PrefixWriter and Engine::save_prefix do.
KeptTexts write_kept_texts(const std::filesystem::path& path, Engine& engine,
                           const PrefixOwner& owner);
// Loads the texts into the engine's prefix cache. No effect if the file does not exist. Throws
// Error with the reason if the file is of another model or layout, and as PrefixFile and
// Engine::load_prefix do; texts that were loaded before the error stay in the cache.
KeptTexts read_kept_texts(const std::filesystem::path& path, Engine& engine,
                          const PrefixOwner& owner);

}  // namespace leq

#include "convert/tied_head.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "convert/checkpoint_names.h"

namespace leq {
namespace {

constexpr std::size_t kCompared = 4096;  // number of values per comparison

// Compares values, because the tensors may be stored in different types.
bool are_equal(const TensorSource& source, const SourceTensor& a, const SourceTensor& b) {
  if (a.shape != b.shape) return false;
  if (a.file_dtype == b.file_dtype && !a.bytes.empty()) return std::ranges::equal(a.bytes, b.bytes);
  std::size_t size = 1;
  for (const std::int64_t extent : a.shape) size *= static_cast<std::size_t>(extent);
  std::vector<float> x(kCompared), y(kCompared);
  for (std::size_t at = 0; at < size; at += kCompared) {
    const std::size_t count = std::min(kCompared, size - at);
    x.resize(count);
    y.resize(count);
    source.read(a, static_cast<std::int64_t>(at), x);
    source.read(b, static_cast<std::int64_t>(at), y);
    if (x != y) return false;
  }
  return true;
}

}  // namespace

void settle_tying(const TensorSource& source, const Family& family, ModelConfig& config,
                  std::vector<std::string>& notes) {
  const auto names = find_text_names(source, family);
  if (!names) return;  // reported later by the tensor readers
  const SourceTensor* head = source.find(names->head);
  const SourceTensor* embedding =
      source.find(names->prefix + std::string(family.tensors.front().source));
  const std::string name = printable(names->head);
  if (head == nullptr) {
    if (config.tied) return;
    config.tied = true;
    notes.push_back("tie_word_embeddings is false but there is no " + name +
                    ": the embedding is the head");
  } else if (config.tied && !are_equal(source, *head, *embedding)) {
    config.tied = false;
    notes.push_back("warning: tie_word_embeddings is true but " + name +
                    " differs from the embedding: both are kept");
  }
}

void drop_added_beyond(TokenizerSpec& spec, std::int64_t rows, std::vector<std::string>& notes) {
  if (std::ssize(spec.pieces) <= rows) return;
  std::set<Token> added;
  for (const AddedToken& token : spec.added) added.insert(token.id);
  for (auto id = static_cast<Token>(rows); id < static_cast<Token>(spec.pieces.size()); ++id) {
    const bool is_unused = spec.types[static_cast<std::size_t>(id)] == TokenType::unused;
    if (!is_unused && !added.contains(id)) return;  // the check of the counts refuses it
  }
  std::string names;
  std::erase_if(spec.added, [&](const AddedToken& token) {
    if (token.id < rows) return false;
    names +=
        (names.empty() ? "" : ", ") + printable(spec.pieces[static_cast<std::size_t>(token.id)]);
    return true;
  });
  const auto count = static_cast<std::size_t>(rows);
  notes.push_back("the model has no weights for added tokens from id " + std::to_string(rows) +
                  " on, which are left out: " + names);
  spec.pieces.resize(count);
  spec.types.resize(count);
  if (spec.scores.size() > count) spec.scores.resize(count);
  for (Token* id : {&spec.unknown, &spec.bos, &spec.eos}) {
    if (*id >= rows) *id = kNoToken;
  }
}

}  // namespace leq

// How the files of a checkpoint say that its embeddings are made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "format/gguf_source.h"
#include "format/tensor_source.h"
#include "model/pooling.h"
#include "quantize/methods/method.h"
#include "tokenizer/spec.h"

namespace leq {

// Reads sentence-transformers' modules.json and the folders that it names. A folder without it says
// nothing, except that Qwen3-Reranker is known by its name. Throws Error naming a module or a
// pooling that is not supported. `notes` gets a line about what is not done.
EmbeddingRules read_embedding_files(const std::filesystem::path& folder,
                                    const TokenizerSpec& tokenizer,
                                    std::vector<std::string>& notes);

// The product of two matrices without an activation between them, as a tensor [W W] for
// ModelConfig::embedding_projection; each is of one of the sources' tensors.
struct DenseTensor {
  const TensorSource& source;
  const SourceTensor& tensor;
};
TensorInput embedding_projection(const DenseTensor& first, const DenseTensor& second,
                                 std::int64_t width);
// The modules Dense of modules.json; nullopt if there are none.
std::optional<TensorInput> read_embedding_projection(const std::filesystem::path& folder,
                                                     std::int64_t width);

// Reads the key "pooling_type" of the architecture; without it, the name counts as for folders. The
// text's end is the caller's to set.
EmbeddingRules read_gguf_embedding(const GgufSource& source, const TokenizerSpec& tokenizer);

}  // namespace leq

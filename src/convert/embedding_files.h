// How the files of a checkpoint say that its embeddings are made.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "format/gguf_source.h"
#include "model/pooling.h"
#include "tokenizer/spec.h"

namespace leq {

// Reads sentence-transformers' modules.json and the folders that it names. A folder without it says
// nothing, except that Qwen3-Reranker is known by its name. Throws Error naming a module or a
// pooling that is not supported. `notes` gets a line about what is not done.
EmbeddingRules read_embedding_files(const std::filesystem::path& folder,
                                    const TokenizerSpec& tokenizer,
                                    std::vector<std::string>& notes);

// Reads the key "pooling_type" of the architecture; without it, the name counts as for folders. The
// text's end is the caller's to set.
EmbeddingRules read_gguf_embedding(const GgufSource& source, const TokenizerSpec& tokenizer);

}  // namespace leq

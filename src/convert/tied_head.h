// Resolves duplicate heads, and token ids that the checkpoint has no weights for, the way
// transformers 5 loads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/tensor_source.h"
#include "model/model_config.h"
#include "models/family.h"
#include "tokenizer/spec.h"

namespace leq {

// Decides whether head and embedding are tied: a head with other weights is kept in any case, an
// absent head is the embedding. `notes` gets a line where the config says otherwise.
void resolve_tied_head(const TensorSource& source, const Family& family, ModelConfig& config,
                  std::vector<std::string>& notes);

// Leaves out added tokens without a row in the embedding: they are neither encoded nor sampled.
// `notes` gets a line.
void drop_added_beyond(TokenizerSpec& spec, std::int64_t rows, std::vector<std::string>& notes);

}  // namespace leq

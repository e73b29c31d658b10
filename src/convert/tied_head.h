// Handles duplicate heads, and token ids without weights in the checkpoint, like transformers
// 5.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/tensor_source.h"
#include "model/model_config.h"
#include "models/family.h"
#include "tokenizer/spec.h"

namespace leq {

// Decides whether head and embedding are tied: a head whose weights differ is always kept, and an
// absent head is the embedding. `notes` gets a line if this contradicts the config.
void settle_tying(const TensorSource& source, const Family& family, ModelConfig& config,
                  std::vector<std::string>& notes);

// Drops added tokens without a row in the embedding, so that they are neither encoded nor sampled.
// `notes` gets a line.
void drop_added_beyond(TokenizerSpec& spec, std::int64_t rows, std::vector<std::string>& notes);

}  // namespace leq

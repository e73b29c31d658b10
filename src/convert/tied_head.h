// What a checkpoint says twice, or of ids that it has no weights for, made one: as transformers 5
// loads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/tensor_source.h"
#include "model/model_config.h"
#include "models/family.h"
#include "tokenizer/spec.h"

namespace leq {

// Whether head and embedding are one: a head with other weights is kept whatever the config says, a
// head that is absent is the embedding. `notes` gets a line where the config says otherwise.
void settle_tying(const TensorSource& source, const Family& family, ModelConfig& config,
                  std::vector<std::string>& notes);

// Added tokens without a row in the embedding are left out: no text becomes their ids, and none is
// ever drawn.
void drop_added_beyond(TokenizerSpec& spec, std::int64_t rows, std::vector<std::string>& notes);

}  // namespace leq

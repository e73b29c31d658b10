// The tokenizer, chat template, end tokens and sampling defaults in the metadata of a GGUF file.
#pragma once

#include <string>

#include "format/gguf.h"
#include "model/open_model.h"
#include "tokenizer/spec.h"

namespace leq {

// Byte BPE ("gpt2") by the name of its pre-tokenizer, or sentencepiece BPE by scores ("llama").
// Throws Error naming the key: another tokenizer, a missing or unknown pre-tokenizer, ids out of
// range, merges of tokens that do not exist.
TokenizerSpec read_gguf_tokenizer(const GgufMetadata& metadata);

// The default template; empty where there is none.
std::string read_gguf_template(const GgufMetadata& metadata);

// All end tokens: those named by keys (eos, eot, eom), and control tokens whose content marks an
// end; and the sampling defaults of general.sampling.*.
GenerationDefaults read_gguf_generation(const GgufMetadata& metadata, const TokenizerSpec& spec);

}  // namespace leq

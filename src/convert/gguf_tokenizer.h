// Reads the tokenizer, chat template, end tokens and sampling defaults from a GGUF file's metadata.
#pragma once

#include <string>

#include "format/gguf.h"
#include "model/open_model.h"
#include "tokenizer/spec.h"

namespace leq {

// Reads byte BPE ("gpt2") with a named pre-tokenizer, or sentencepiece BPE with scores ("llama").
// Throws Error naming the key: another tokenizer, a missing or unknown pre-tokenizer, ids out of
// range, merges of tokens that do not exist.
TokenizerSpec read_gguf_tokenizer(const GgufMetadata& metadata);

// The default chat template; empty if there is none.
std::string read_gguf_template(const GgufMetadata& metadata);

// All end tokens, which are those named by keys (eos, eot, eom) and control tokens whose text marks
// an end; and the sampling defaults of general.sampling.*.
GenerationDefaults read_gguf_generation(const GgufMetadata& metadata, const TokenizerSpec& spec);

}  // namespace leq

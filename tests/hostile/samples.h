// Creates small valid files of every kind that the tools read; the cases damage these.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hostile/ask.h"

namespace leq::hostile {

// Locates and starts the programs that create the samples.
struct Tools {
  std::filesystem::path folder;  // contains leq-run and the other tools
  std::string path(const std::string& tool) const { return (folder / tool).string(); }
};

// Creates in `folder`:
//   llama/   config.json, model.safetensors, vocab.json + merges.txt, generation_config.json,
//            tokenizer_config.json with a chat template
//   sharded/ the same weights in two shards with their index, tokenizer.json, chat_template.jinja
//   spm/     the same with tokenizer.model
//   gpt2/    a checkpoint with the other layout of tensors
//   TYPE.leq for every name in model_types()
//   cert.pem, key.pem, keys.txt, slots/ (a saved text) and kept/ (texts of an earlier run) for
//   leq-server, and answer.txt: its answer to kQuestion
//   text.txt, other.txt, base.kl, chat.json, earlier.json
// Throws std::runtime_error if a tool refuses a valid file.
void make_samples(const Tools& tools, const std::filesystem::path& folder);

const std::vector<std::string>& model_types();

// leq-server prints this text, followed by its port, when it is ready.
extern const std::string kListening;
extern const Question kQuestion;

}  // namespace leq::hostile

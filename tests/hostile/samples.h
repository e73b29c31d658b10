// Small valid files of every kind that the tools read: what the cases damage.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hostile/ask.h"

namespace leq::hostile {

// How the samples' programs are found and started.
struct Tools {
  std::filesystem::path folder;  // of leq-run and the others
  std::string path(const std::string& tool) const { return (folder / tool).string(); }
};

// Makes, in `folder`:
//   llama/   config.json, model.safetensors, vocab.json + merges.txt, generation_config.json,
//            tokenizer_config.json with a chat template
//   sharded/ the same weights in two shards with their index, tokenizer.json, chat_template.jinja
//   spm/     the same with tokenizer.model
//   gpt2/    the other layout of tensors
//   TYPE.leq of every name in model_types()
//   cert.pem, key.pem, keys.txt, slots/ (a saved text) and kept/ (texts of an earlier run) for
//   leq-server, and answer.txt: what it says to kQuestion
//   text.txt, other.txt, base.kl, stats.bin, chat.json, earlier.json
// Throws std::runtime_error where a tool refuses what is whole.
void make_samples(const Tools& tools, const std::filesystem::path& folder);

const std::vector<std::string>& model_types();

// What leq-server says once it serves, before the port.
extern const std::string kListening;
extern const Question kQuestion;

}  // namespace leq::hostile

// write_gguf CHECKPOINT FILE: writes a LLaMA checkpoint as a GGUF file in f32 with a tokenizer of
// letters, for hub_test.py.
#include <fstream>
#include <iostream>

#include "convert/gguf_models.h"
#include "convert/hf_import.h"

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  const leq::ImportedModel model = leq::import_hf(argv[1]);
  leq::test::GgufWriter writer;
  leq::test::add_config(writer, model.config, "llama");
  leq::test::add_letters(writer);
  leq::test::add_tensors(writer, model, true);
  std::ofstream(argv[2], std::ios::binary) << writer.bytes();
  return 0;
}

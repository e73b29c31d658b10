// Writes a small llama as a GGUF file in which one thing is changed, and imports it.
#pragma once

#include <gtest/gtest.h>

#include "base/error.h"
#include "convert/gguf_import.h"
#include "convert/gguf_models.h"
#include "convert/hf_import.h"
#include "reference/random_checkpoint.h"
#include "temporary_folder.h"

namespace leq::test {

class SmallGguf : public ::testing::Test {
 protected:
  SmallGguf() {
    RandomCheckpoint checkpoint(folder_ / "hf");
    config_ = small_config();
    checkpoint.add_llama(config_, {});
    model_ = import_hf(checkpoint.write(config_));
  }

  GgufWriter start() const {
    GgufWriter writer;
    add_config(writer, model_.config, "llama");
    return writer;
  }
  ImportedModel read(GgufWriter writer, bool letters = true) const {
    if (letters) add_letters(writer);
    add_tensors(writer, model_, true);
    return import_gguf(folder_.write("m.gguf", writer.bytes()));
  }
  std::string error_of(const GgufWriter& writer, bool letters = true) const {
    try {
      read(writer, letters);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
  Json config_;
  ImportedModel model_;
};

}  // namespace leq::test

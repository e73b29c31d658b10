// Makes a checkpoint folder of stories260K, so that bench/method_table.sh can run on it.
//   stories260k_checkpoint stories260K.bin tok512.bin NEW_FOLDER
#include <exception>
#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "reference/stories260k.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: stories260k_checkpoint stories260K.bin tok512.bin NEW_FOLDER\n";
    return 1;
  }
  try {
    const std::filesystem::path folder = argv[3];
    leq::require(!std::filesystem::exists(folder), folder.string(),
                 ": exists; name a folder that does not");
    leq::test::write_stories260k_model(argv[1], folder);
    leq::test::write_stories260k_tokenizer(argv[2], folder);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "stories260k_checkpoint: " << error.what() << '\n';
    return 1;
  }
}

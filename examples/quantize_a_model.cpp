// Quantizes a Hugging Face folder and looks into the file:  quantize_a_model HF_DIR OUT.leq [TYPE]
#include <exception>
#include <iostream>

#include "format/leq_reader.h"
#include "quantize/run/quantize.h"

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::cerr << "usage: quantize_a_model HF_DIR OUT.leq [TYPE]\n";
    return 1;
  }
  try {
    leq::QuantizeOptions options;
    if (argc == 4) options.type = argv[3];
    options.progress = [](auto, std::int64_t done, std::int64_t total, const auto&) {
      if (done == total) std::cout << total << " tensors\n";
    };
    const auto result = leq::quantize_checkpoint(argv[1], argv[2], options);
    std::cout << result.bits_per_weight << " bits per weight\n";

    const leq::LeqReader file(argv[2], {.mode = leq::LoadMode::map});
    for (const leq::StoredTensor& tensor : file.tensors()) {
      if (tensor.error == 0) continue;
      std::cout << tensor.name << ' ' << leq::shape_text(tensor.shape) << ' '
                << leq::scheme_name(tensor.view.scheme) << " relative error " << tensor.error
                << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << "quantize_a_model: " << error.what() << '\n';
    return 1;
  }
  return 0;
}

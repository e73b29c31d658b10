// Exports a .leq file as a folder with an ONNX model: model.onnx, its data in model.onnx.data and,
// for onnxruntime-genai, its configuration and tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "export/export_target.h"
#include "model/open_model.h"

namespace leq {

// The format of linears' inputs in the exported graph.
enum class ExportedInputs : std::uint8_t {
  automatic,  // with stored scales if the file has them, otherwise f32; genai: like `file`
  file,       // quantized as in the file, or an error if a graph cannot represent this. genai: int8
              // if the file has int8, with one scale for each of the weight's blocks
  f32,        // not quantized; only the weights are
};

struct OnnxOptions {
  std::string target = "onnxruntime";
  ExportedInputs inputs = ExportedInputs::automatic;
  bool past = true;          // keys and values are inputs and outputs
  std::int64_t opset = 21;   // version of ai.onnx
  std::int64_t tokens = 0;   // fixed shape: one sequence of this length; 0: dynamic sizes
  std::int64_t context = 0;  // number of positions; 0: the model's
};

struct ExportedFolder {
  std::uint64_t bytes = 0;         // sum over all files
  std::vector<std::string> files;  // names of all files
  std::vector<std::string> notes;  // messages for users, one per line
};

// Throws Error naming the tensor and the target if the target does not support it, if the options
// contradict the target, and like AtomicFile. model.onnx is written last: a folder without it is
// incomplete.
ExportedFolder export_onnx(const Model& model, const OnnxOptions& options,
                           const std::filesystem::path& folder);

}  // namespace leq

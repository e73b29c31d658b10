// Exports a .leq file as a folder with an ONNX model: model.onnx, its data in model.onnx.data, and
// for onnxruntime-genai its configuration and tokenizer.
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
  automatic,  // with stored scales where the file has them, else f32; genai: as `file`
  file,       // quantized as the file says; what a graph cannot say is refused. genai: int8 where
              // the file has int8, with a scale for each of the weight's blocks
  f32,        // not quantized: weights alone
};

struct OnnxOptions {
  std::string target = "onnxruntime";
  ExportedInputs inputs = ExportedInputs::automatic;
  bool past = true;          // keys and values as inputs and outputs
  std::int64_t opset = 21;   // of ai.onnx
  std::int64_t tokens = 0;   // fixed shape: one sequence of so many tokens; 0: dynamic sizes
  std::int64_t context = 0;  // positions; 0: the model's
};

struct ExportedFolder {
  std::uint64_t bytes = 0;         // of all files
  std::vector<std::string> files;  // their names
  std::vector<std::string> notes;  // what a user should know, a line each
};

// Throws Error naming the tensor and the target where the target does not support it; where the
// options contradict the target; as AtomicFile does. model.onnx is written last: a folder without
// it is incomplete.
ExportedFolder export_onnx(const Model& model, const OnnxOptions& options,
                           const std::filesystem::path& folder);

}  // namespace leq

// The input tensors of a conversion: names and shapes; the bytes are read on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/pack.h"
#include "tensor/quant_scheme.h"

namespace leq {

using Shape = std::vector<std::int64_t>;

std::string shape_text(const Shape& shape);  // "[4096, 11008]"

struct SourceTensor {
  std::string name;
  DType dtype = DType::f32;  // u8 if DType lacks the file's type; see file_dtype
  Shape shape;
  std::span<const std::byte> bytes;  // row-major, little-endian
  std::string place;                 // file and offset, for errors
  std::string file_dtype;            // the file's spelling: "BF16", "F64", "BOOL"
};

// Files of a checkpoint that are downloaded while it is read; others of its folder are there.
class ArrivingFiles {
 public:
  virtual ~ArrivingFiles() = default;
  // The size of a whole file; nullopt if it is none of these.
  virtual std::optional<std::uint64_t> bytes(const std::string& name) const = 0;
  // Reads bytes from `first` on as soon as they are there, before the file is verified. Throws
  // Error if the download failed.
  virtual void read(const std::string& name, std::uint64_t first, std::span<std::byte> out) = 0;
  // Waits until all files are complete and verified; throws Error if they are not what was read.
  virtual void finish() = 0;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  const std::vector<SourceTensor>& tensors() const { return tensors_; }
  // Returns nullptr if the source has no such tensor.
  const SourceTensor* find(std::string_view name) const;
  // A hint that the bytes of a tensor will not be read again soon.
  virtual void drop(const SourceTensor& tensor) const = 0;

  // Elements [first, first + out.size()) of a tensor as f32, dequantized if the file has codes.
  // Throws Error naming the tensor if its type is not numeric or the elements exceed its end.
  virtual void read(const SourceTensor& tensor, std::int64_t first, std::span<float> out) const;
  // Whether tensors have many types, so that a converted file should record each one's type.
  virtual bool has_types() const { return false; }
  // The scheme that represents a tensor's stored values, exactly or nearly (see read_codes);
  // nullopt if there is none.
  virtual std::optional<QuantScheme> own_scheme(const SourceTensor& tensor) const;
  // Reads the codes of rows [first, first + rows) of a tensor in an integer scheme if it represents
  // all their values exactly: scale * code equals the result of `read`, and scales are f16 times a
  // scale_mul of 1 (nvfp4: any scale_mul; a divisor is taken as a factor, which may change the last
  // bit of values). Returns false if it does not.
  virtual bool read_codes(const SourceTensor& tensor, const QuantScheme& scheme, std::int64_t first,
                          std::int64_t rows, ChosenCodes& out) const;
  // Called when everything was read, before the result gets its name (ArrivingFiles::finish).
  virtual void finish() const {}

 protected:
  // Adds a tensor; if there is one of this name already, returns that one instead, else nullptr.
  const SourceTensor* add(SourceTensor tensor);
  // The index in tensors() of one of them.
  std::size_t place_of(const SourceTensor& tensor) const {
    return static_cast<std::size_t>(&tensor - tensors_.data());
  }

 private:
  std::vector<SourceTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;  // no file can make it slow
};

// Throws Error naming the tensor if elements [first, first + count) exceed the `all` that it has.
void require_elements(const SourceTensor& tensor, std::int64_t all, std::int64_t first,
                      std::size_t count);

// Elements [first, first + out.size()) of a float tensor, widened to f32. Throws Error naming the
// tensor if its dtype is not f32, f16 or bf16 or if the elements exceed its end.
void read_floats(const SourceTensor& tensor, std::int64_t first, std::span<float> out);

// Reads safetensors, one file or the shards of an index. Safe on untrusted bytes.

// Throws Error if the folder is a PEFT adapter.
void refuse_adapter(const std::filesystem::path& folder);

// `path`: a .safetensors file, a model.safetensors.index.json, or a folder with either (the index
// takes precedence). Throws Error naming file, offset and tensor: bad header, overlapping or
// missing bytes, a dtype other than F32, F16, BF16 or an integer type, or a shard of the index that
// is missing. `notes` gets a line if tensors of a file are ignored because the index omits them or
// assigns them to another file. Tensors of `arriving` files, which must outlive the source, have no
// `bytes` and can only be read.
std::unique_ptr<TensorSource> open_safetensors(const std::filesystem::path& path,
                                               std::vector<std::string>* notes = nullptr,
                                               ArrivingFiles* arriving = nullptr);

}  // namespace leq

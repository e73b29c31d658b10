// OUTPUT.partial: the finished blocks of a calibrated run, so that an interrupted one goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/work_folder.h"
#include "format/leq_reader.h"
#include "quantize/pipeline/quantize_tensor.h"

namespace leq {

// A tensor of a block, ready for the file.
struct BlockTensor {
  std::string name;  // "layers.3.q"
  Shape shape;
  QuantizedTensor quantized;
};

// What becomes of an interrupted run.
enum class UnfinishedRun : std::uint8_t {
  resume,   // it is gone on with
  replace,  // its work is removed
  refuse,   // it is an error: of several ranks, who do not resume
};

class PartialRun {
 public:
  using Say = std::function<void(const std::string& line)>;

  // Goes on with the run in `folder`, where there is one; or, as `earlier` says, removes what it
  // finished, which `say` hears, or refuses to. `identity` says all that the blocks depend on.
  // Throws Error where the run in the folder finished something and was another one, or still goes
  // on.
  PartialRun(std::filesystem::path folder, const std::string& identity, UnfinishedRun earlier,
             const Say& say);
  ~PartialRun();  // removes the folder where nothing was finished in it
  PartialRun(PartialRun&&) noexcept = default;
  PartialRun& operator=(PartialRun&&) noexcept = default;

  // Of the run that was interrupted in `folder`; nullopt where there is none.
  static std::optional<std::string> identity_of(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return work_.path(); }
  // Blocks [0, finished()) are there.
  std::int64_t finished() const { return finished_; }
  void save(const std::vector<BlockTensor>& block);  // block number finished()
  // A finished block, its checksums checked.
  std::vector<BlockTensor> load(std::int64_t layer) const;
  // Says where what is finished stays, where there is something: an error ends this run.
  void tell_kept();
  // All that was kept, at the end; the folder goes with this object.
  void remove();

 private:
  std::filesystem::path file_of(std::int64_t layer) const;

  bool holds_work() const;  // beside the identity

  WorkFolder work_;
  Say say_;
  bool told_ = false;  // what stays
  std::int64_t finished_ = 0;
};

}  // namespace leq

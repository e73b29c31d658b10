#include "format/leq_copy.h"

#include "base/json.h"
#include "format/leq_writer.h"

namespace leq {

std::uint64_t write_copy(const std::filesystem::path& path, const LeqReader& like,
                         const CopySource& source,
                         const std::function<void(Json& metadata)>& edit) {
  LeqWriter writer(path);
  for (const StoredTensor& tensor : like.tensors()) {
    const LeqReader& from = source(tensor.name);
    writer.copy_tensor(from, *from.find(tensor.name));
  }
  for (const std::string& name : like.blob_names()) writer.add_blob(name, *like.blob(name));
  Json metadata = like.metadata();
  for (const Json& feature : metadata.at("leq").at("requires")) {
    writer.add_requirement(feature.get<std::string>());
  }
  metadata.erase("leq");  // the writer sets this key itself
  edit(metadata);
  return writer.finish(metadata);
}

}  // namespace leq

#include "format/leq_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "format/leq_layout.h"

namespace leq {
namespace {

constexpr std::array<std::byte, kLeqAlignment> kZeros = {};

}  // namespace

struct LeqWriter::State {
  explicit State(const std::filesystem::path& path) : name(path.string()), file(path) {
    file.append(kZeros);  // space for the preamble, which is written last
  }

  void align() {
    const std::uint64_t over = file.size() % kLeqAlignment;
    if (over > 0) file.append(std::span(kZeros).first(kLeqAlignment - over));
  }

  // Appends the bytes at the next multiple of 64; returns the JSON entry of their byte range.
  Json append(std::span<const std::byte> bytes) {
    align();
    const std::uint64_t offset = file.size();
    file.append(bytes);
    return {{"offset", offset}, {"bytes", bytes.size()}, {"xxh3", checksum_text(checksum(bytes))}};
  }

  std::string name;
  AtomicFile file;
  Json tensors = Json::object();
  Json blobs = Json::object();
  Json requirements = Json::array();
  std::uint32_t minor_version = 0;
};

LeqWriter::LeqWriter(const std::filesystem::path& path) : state_(std::make_unique<State>(path)) {}

LeqWriter::~LeqWriter() = default;

void LeqWriter::add_tensor(const std::string& name, const Shape& shape, const PackedWeight& weight,
                           const TensorFacts& facts) {
  const std::string where = state_->name + ": tensor " + printable(name);
  require(!first_invalid_utf8(name), where, ": the name is no valid UTF-8");
  ensure(!state_->tensors.contains(name), where, ": is added twice");
  const Shape expected =
      shape.size() == 1 ? Shape{weight.columns} : Shape{weight.rows, weight.columns};
  ensure(shape == expected && (shape.size() == 2 || weight.rows == 1), where, ": shape ",
         shape_text(shape), ", but the weight is ", weight.rows, " x ", weight.columns);
  require(std::isfinite(facts.error), where, ": the quantization error is not finite");
  const bool fixed = has_stored_scale(weight.act);
  ensure(!fixed || (facts.act_scale >= kSmallestActScale && facts.act_scale <= kLargestActScale),
         where, ": act tensor needs an act_scale from ", kSmallestActScale, " to ",
         kLargestActScale, ", found ", facts.act_scale);
  const PlaneBytes bytes = plane_bytes(weight.scheme, weight.act, weight.rows, weight.columns);
  const std::array<std::pair<const char*, std::pair<const std::vector<std::byte>*, std::uint64_t>>,
                   4>
      planes = {{{"codes", {&weight.codes, bytes.codes}},
                 {"scales", {&weight.scales, bytes.scales}},
                 {"zeros", {&weight.zeros, bytes.zeros}},
                 {"sums", {&weight.sums, bytes.sums}}}};
  Json entry = {{"shape", shape},
                {"scheme", scheme_name(weight.scheme)},
                {"act", act_name(weight.act)},
                {"method", facts.method},
                {"error", facts.error},
                {"planes", Json::object()}};
  if (weight.scheme.scaling == Scaling::group) entry["scale_mul"] = weight.scale_mul;
  if (fixed) entry["act_scale"] = facts.act_scale;
  if (has_moving_scale(weight.act)) entry["online"] = online_mode_name(facts.online_mode);
  for (const auto& [plane, content] : planes) {
    const auto& [stored, size] = content;
    ensure(stored->size() == size, where, ", plane ", plane, ": expected ", size, " bytes, found ",
           stored->size());
    if (size > 0) entry["planes"][plane] = state_->append(*stored);
  }
  state_->tensors[name] = std::move(entry);
}

void LeqWriter::copy_tensor(const LeqReader& from, const StoredTensor& tensor) {
  ensure(!state_->tensors.contains(tensor.name), state_->name, ": tensor ", printable(tensor.name),
         ": is added twice");
  Json entry = from.entry(tensor.name);
  entry["planes"] = Json::object();
  for (const StoredPlane& plane : tensor.planes) {
    Json range = state_->append(from.bytes(plane));
    require(range.at("xxh3") == checksum_text(plane.xxh3), from.name(), ": tensor ",
            printable(tensor.name), ", plane ", plane.name,
            ": its checksum differs; the file is damaged, make it again");
    entry["planes"][plane.name] = std::move(range);
  }
  state_->tensors[tensor.name] = std::move(entry);
}

void LeqWriter::describe(const std::string& name, const Json& more) {
  const auto entry = state_->tensors.find(name);
  ensure(entry != state_->tensors.end(), state_->name, ": tensor ", printable(name),
         ": is described before it is added");
  for (const auto& [key, value] : more.items()) {
    ensure(!entry->contains(key), state_->name, ": tensor ", printable(name), ": key \"",
           printable(key), "\" is there already");
    (*entry)[key] = value;
  }
}

void LeqWriter::add_blob(const std::string& name, std::span<const std::byte> bytes) {
  require(!first_invalid_utf8(name), state_->name, ": blob ", printable(name),
          ": the name is no valid UTF-8");
  ensure(!state_->blobs.contains(name), state_->name, ": blob ", printable(name),
         " is added twice");
  state_->blobs[name] = state_->append(bytes);
}

void LeqWriter::add_requirement(const std::string& feature) {
  state_->requirements.push_back(feature);
  const auto known = std::ranges::find(kLeqFeatures, feature, &LeqFeature::name);
  const std::uint32_t minor = known != kLeqFeatures.end() ? known->minor_version : kLeqMinor;
  state_->minor_version = std::max(state_->minor_version, minor);
}

std::uint64_t LeqWriter::finish(const Json& metadata) {
  ensure(metadata.is_object(), state_->name, ": metadata should be a JSON object, found ",
         metadata.type_name());
  for (const char* key : {"leq", "tensors", "blobs"}) {
    ensure(!metadata.contains(key), state_->name, ": metadata may not have the key \"", key, "\"");
  }
  Json json = metadata;
  json["leq"] = {{"requires", state_->requirements}};
  json["tensors"] = state_->tensors;
  json["blobs"] = state_->blobs;
  std::string text;
  try {
    text = json.dump();
  } catch (const Error&) {
    fail(state_->name, ": the metadata hold text that is no valid UTF-8");
  }
  state_->align();
  LeqPreamble preamble = {};
  preamble.magic = kLeqMagic;
  preamble.major_version = kLeqMajor;
  preamble.minor_version = state_->minor_version;
  preamble.json_offset = state_->file.size();
  preamble.json_bytes = text.size();
  preamble.json_xxh3 = checksum(std::as_bytes(std::span(text)));
  preamble.file_bytes = preamble.json_offset + preamble.json_bytes;
  state_->file.append(std::as_bytes(std::span(text)));
  state_->file.overwrite(0, std::as_bytes(std::span(&preamble, 1)));
  state_->file.commit();
  return preamble.file_bytes;
}

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

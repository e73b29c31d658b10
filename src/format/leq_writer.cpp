#include "format/leq_writer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "format/leq_layout.h"
#include "format/padding.h"

namespace leq {
namespace {

constexpr std::array<std::byte, kLeqAlignment> kZeros = {};

}  // namespace

LeqWriter::LeqWriter(const std::filesystem::path& path, bool outline)
    : name_(path.string()), file_(path), outline_(outline) {
  file_.append(kZeros);  // space for the preamble, which is written last
}

void LeqWriter::align() {
  const std::uint64_t over = file_.size() % kLeqAlignment;
  if (over > 0) file_.append(std::span(kZeros).first(kLeqAlignment - over));
}

Json LeqWriter::append(std::span<const std::byte> bytes) {
  align();
  const std::uint64_t offset = file_.size();
  file_.append(bytes);
  return {{"offset", offset}, {"bytes", bytes.size()}, {"xxh3", checksum_text(checksum(bytes))}};
}

void LeqWriter::add_tensor(const std::string& name, const Shape& shape, const PackedWeight& weight,
                           const TensorFacts& facts) {
  if (leaves_out_padding(weight.scheme, weight.columns)) {
    add_planes(name, shape, outline_ ? weight : without_padding(weight.view()), facts, true);
  } else {
    add_planes(name, shape, weight, facts, false);
  }
}

void LeqWriter::add_planes(const std::string& name, const Shape& shape, const PackedWeight& weight,
                           const TensorFacts& facts, bool unpadded) {
  const std::string where = name_ + ": tensor " + printable(name);
  require(!first_invalid_utf8(name), where, ": the name is no valid UTF-8");
  ensure(!tensors_.contains(name), where, ": is added twice");
  const Shape expected =
      shape.size() == 1 ? Shape{weight.columns} : Shape{weight.rows, weight.columns};
  ensure(shape == expected && (shape.size() == 2 || weight.rows == 1), where, ": shape ",
         shape_text(shape), ", but the weight is ", weight.rows, " x ", weight.columns);
  require(weight.columns <= weight.scheme.max_columns(), where, ": ", weight.columns,
          " columns, a weight of type ", scheme_name(weight.scheme), " has at most ",
          weight.scheme.max_columns());
  require(std::isfinite(facts.error), where, ": the quantization error is not finite");
  const bool fixed = has_stored_scale(weight.act);
  ensure(!fixed || (facts.act_scale >= kSmallestActScale && facts.act_scale <= kLargestActScale),
         where, ": act tensor needs an act_scale from ", kSmallestActScale, " to ",
         kLargestActScale, ", found ", facts.act_scale);
  const PlaneBytes bytes =
      unpadded ? unpadded_bytes(weight.scheme, weight.rows, weight.columns)
               : plane_bytes(weight.scheme, weight.act, weight.rows, weight.columns);
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
  if (unpadded) mark_unpadded(entry);
  if (weight.scheme.scaling == Scaling::group) entry["scale_mul"] = weight.scale_mul;
  if (fixed) entry["act_scale"] = facts.act_scale;
  if (has_moving_scale(weight.act)) entry["online"] = online_mode_name(facts.online_mode);
  for (const auto& [plane, content] : planes) {
    const auto& [stored, size] = content;
    if (outline_ && size > 0) {
      align();
      entry["planes"][plane] = {
          {"offset", file_.size()}, {"bytes", size}, {"xxh3", checksum_text(0)}};
      file_.skip(size);
      continue;
    }
    ensure(stored->size() == size, where, ", plane ", plane, ": expected ", size, " bytes, found ",
           stored->size());
    if (size > 0) entry["planes"][plane] = append(*stored);
  }
  tensors_[name] = std::move(entry);
}

void LeqWriter::copy_tensor(const LeqReader& from, const StoredTensor& tensor) {
  ensure(!tensors_.contains(tensor.name), name_, ": tensor ", printable(tensor.name),
         ": is added twice");
  Json entry = from.entry(tensor.name);
  if (tensor.unpadded) mark_unpadded(entry);
  entry["planes"] = Json::object();
  for (const StoredPlane& plane : tensor.planes) {
    Json range = append(from.bytes(plane));
    require(range.at("xxh3") == checksum_text(plane.xxh3), from.name(), ": tensor ",
            printable(tensor.name), ", plane ", plane.name,
            ": its checksum differs; the file is damaged, make it again");
    entry["planes"][plane.name] = std::move(range);
  }
  tensors_[tensor.name] = std::move(entry);
}

void LeqWriter::describe(const std::string& name, const Json& more) {
  const auto entry = tensors_.find(name);
  ensure(entry != tensors_.end(), name_, ": tensor ", printable(name),
         ": is described before it is added");
  for (const auto& [key, value] : more.items()) {
    ensure(!entry->contains(key), name_, ": tensor ", printable(name), ": key \"", printable(key),
           "\" is there already");
    (*entry)[key] = value;
  }
}

void LeqWriter::add_blob(const std::string& name, std::span<const std::byte> bytes) {
  require(!first_invalid_utf8(name), name_, ": blob ", printable(name),
          ": the name is no valid UTF-8");
  ensure(!blobs_.contains(name), name_, ": blob ", printable(name), " is added twice");
  blobs_[name] = append(bytes);
}

void LeqWriter::mark_unpadded(Json& entry) {
  entry["unpadded"] = true;
  add_requirement("unpadded");
}

void LeqWriter::add_requirement(const std::string& feature) {
  if (std::ranges::find(requirements_, feature) != requirements_.end()) return;
  requirements_.push_back(feature);
  const auto known = std::ranges::find(kLeqFeatures, feature, &LeqFeature::name);
  const std::uint32_t minor = known != kLeqFeatures.end() ? known->minor_version : kLeqMinor;
  minor_version_ = std::max(minor_version_, minor);
}

std::uint64_t LeqWriter::finish(const Json& metadata) {
  ensure(metadata.is_object(), name_, ": metadata should be a JSON object, found ",
         metadata.type_name());
  for (const char* key : {"leq", "tensors", "blobs"}) {
    ensure(!metadata.contains(key), name_, ": metadata may not have the key \"", key, "\"");
  }
  Json json = metadata;
  json["leq"] = {{"requires", requirements_}};
  json["tensors"] = tensors_;
  json["blobs"] = blobs_;
  const std::string text = json.dump_any();  // provenance: names of files may be no UTF-8
  align();
  LeqPreamble preamble = {};
  preamble.magic = kLeqMagic;
  preamble.major_version = kLeqMajor;
  preamble.minor_version = minor_version_;
  preamble.json_offset = file_.size();
  preamble.json_bytes = text.size();
  preamble.json_xxh3 = checksum(std::as_bytes(std::span(text)));
  preamble.file_bytes = preamble.json_offset + preamble.json_bytes;
  file_.append(std::as_bytes(std::span(text)));
  file_.overwrite(0, std::as_bytes(std::span(&preamble, 1)));
  file_.commit();
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

#include "format/gguf_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/text.h"
#include "tensor/super_blocks.h"
#include "tensor/table_codes.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxParts = 10000;

// The end of a part's file name: "-00002-of-00005.gguf".
std::string part_ending(std::int64_t number, std::int64_t count) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "-%05lld-of-%05lld.gguf",
                static_cast<long long>(number + 1), static_cast<long long>(count));
  return text.data();
}

// A file's split metadata: its own part number, and the numbers of parts and tensors.
struct Split {
  std::int64_t number = 0;
  std::int64_t count = 1;
  std::int64_t tensors = -1;  // number of tensors in all parts; -1: unknown
};
Split split_of(const GgufMetadata& metadata) {
  Split split;
  split.number = metadata.integer("split.no").value_or(0);
  split.count = metadata.integer("split.count").value_or(1);
  split.tensors = metadata.integer("split.tensors.count").value_or(-1);
  if (split.count == 0) split.count = 1;  // some writers use 0 for "not split"
  require(split.count >= 1 && split.count <= kMaxParts && split.number >= 0 &&
              split.number < split.count,
          metadata.source(), ": part ", split.number, " (split.no) of ", split.count,
          " (split.count)");
  return split;
}

// The row in the file that corresponds to `row` in Hugging Face's order.
std::int64_t paired_row(std::int64_t row, std::int64_t head_rows) {
  const std::int64_t within = row % head_rows;
  const std::int64_t half = head_rows / 2;
  return row - within + 2 * (within % half) + within / half;
}

std::int64_t elements_of(const SourceTensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= size;
  return count;
}

// The number of columns in a row; a vector is read as a matrix with one column.
std::int64_t columns_of(const SourceTensor& tensor) {
  return tensor.shape.size() == 1 ? 1 : tensor.shape.back();
}

}  // namespace

bool begins_as_gguf_file(const fs::path& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return false;
  std::array<char, kGgufMagic.size()> magic{};
  std::ifstream file(path, std::ios::binary);
  return file.read(magic.data(), magic.size()) &&
         std::string_view(magic.data(), magic.size()) == kGgufMagic;
}

GgufSource::GgufSource(const fs::path& path) {
  files_.emplace_back(path);
  paths_.push_back(path);
  GgufFile first = parse_gguf(files_.back().bytes(), files_.back().name());
  const Split split = split_of(first.metadata);
  const std::string name = path.filename().string();
  const std::string own_ending = part_ending(split.number, split.count);
  const bool named = name.ends_with(own_ending);
  const std::string stem = named ? name.substr(0, name.size() - own_ending.size()) : name;
  require(split.number == 0, path.string(), ": is part ", split.number + 1, " of ", split.count,
          "; give the first", named ? ", " + stem + part_ending(0, split.count) : "");
  require(split.count == 1 || named, path.string(), ": is the first of ", split.count,
          " parts, which have names that end in ", own_ending, "; this one has another name");
  metadata_ = std::move(first.metadata);
  std::vector<GgufFile> parts;
  parts.push_back(std::move(first));
  for (std::int64_t i = 1; i < split.count; ++i) {
    parts.push_back(open_part(path.parent_path() / (stem + part_ending(i, split.count))));
  }
  std::int64_t count = 0;
  std::set<std::string> with_factors;
  for (const GgufFile& part : parts) {
    count += std::ssize(part.tensors);
    for (const GgufTensor& tensor : part.tensors) {
      if (tensor.type->name == "NVFP4") with_factors.insert(tensor.name);
    }
  }
  require(split.count == 1 || split.tensors < 0 || split.tensors == count, path.string(),
          ": the parts have ", count, " tensors, split.tensors.count says ", split.tensors);
  for (std::size_t i = 0; i < parts.size(); ++i) add_tensors(parts[i], i, with_factors);
}

GgufFile GgufSource::open_part(const fs::path& path) {
  require(file_exists(path), path.string(), ": this part is missing; ", paths_.front().string(),
          " needs it beside it");
  files_.emplace_back(path);
  GgufFile file = parse_gguf(files_.back().bytes(), files_.back().name());
  const Split split = split_of(file.metadata);
  const auto number = std::ssize(paths_);
  require(split.number == number && split.count == split_of(metadata_).count, path.string(),
          ": says that it is part ", split.number + 1, " of ", split.count, ", expected part ",
          number + 1);
  paths_.push_back(path);
  return file;
}

void GgufSource::add_tensors(GgufFile& file, std::size_t part,
                             const std::set<std::string>& with_factors) {
  const std::string& place = files_[part].name();
  for (GgufTensor& tensor : file.tensors) {
    const auto dot = std::min(tensor.name.rfind('.'), tensor.name.size());
    const std::string weight = tensor.name.substr(0, dot) + ".weight";
    const std::string_view ending = std::string_view(tensor.name).substr(dot);
    if ((ending == ".scale" || ending == ".input_scale") && with_factors.contains(weight)) {
      require(tensor.type->floats == DType::f32 && !tensor.bytes.empty(), place, ": tensor ",
              printable(tensor.name), ": expected numbers of type F32");
      if (ending == ".scale") factors_[weight] = tensor.bytes;
      continue;  // leq computes its own scales of inputs
    }
    SourceTensor source;
    source.name = std::move(tensor.name);
    source.dtype = tensor.type->floats.value_or(DType::u8);
    source.shape = std::move(tensor.shape);
    source.bytes = tensor.bytes;
    source.place = place + " at offset " + std::to_string(tensor.offset);
    source.file_dtype = tensor.type->name;
    require(add(source) == nullptr, source.place, ": tensor ", printable(source.name),
            " is also in another part");
    details_.push_back({tensor.type, part, 0});
  }
}

void GgufSource::unpair_rows(std::string_view name, std::int64_t heads) {
  const SourceTensor* tensor = find(name);
  if (tensor == nullptr) return;
  const std::int64_t rows = tensor->shape.front();
  require(heads > 0 && rows % (2 * heads) == 0, tensor->place, ": tensor ", printable(name),
          " has ", rows, " rows, expected ", heads, " heads of an even number of rows");
  details_[place_of(*tensor)].head_rows = rows / heads;
}

void GgufSource::drop(const SourceTensor& tensor) const {
  const MappedFile& file = files_[details_[place_of(tensor)].file];
  file.drop(tensor.bytes);
  file.require_whole();
}

std::optional<QuantScheme> GgufSource::own_scheme(const SourceTensor& tensor) const {
  return kept_scheme(type(tensor));
}

float GgufSource::factor_of(const SourceTensor& tensor, std::int64_t row) const {
  const auto found = factors_.find(tensor.name);
  if (found == factors_.end()) return 1.0f;
  const std::span<const std::byte> numbers = found->second;
  const auto count = std::ssize(numbers) / std::int64_t{sizeof(float)};
  const std::int64_t rows = elements_of(tensor) / columns_of(tensor);
  require(rows % count == 0, tensor.place, ": tensor ", printable(tensor.name), " has ", count,
          " factors for ", rows, " rows");
  float factor = 0;
  std::memcpy(&factor, numbers.data() + row / (rows / count) * std::int64_t{sizeof factor},
              sizeof factor);
  require(std::isfinite(factor) && factor > 0, tensor.place, ": tensor ", printable(tensor.name),
          " has the factor ", factor);
  return factor;
}

// Reads elements in the file's order, starting at any element.
void GgufSource::read_blocks(const SourceTensor& tensor, std::int64_t first,
                             std::span<float> out) const {
  const GgufType& of = type(tensor);
  if (of.floats) return read_floats(tensor, first, out);
  std::array<float, kMaxGgufBlock> values;
  const auto decode = [&](const std::byte* block, float factor, float* to) {
    of.decode(block, to);
    if (factor == 1.0f) return;
    std::array<std::int16_t, kMaxGgufBlock> codes;
    std::array<float, kMaxGgufBlock / 16> scales;
    of.codes(block, codes.data(), scales.data());
    const int group = kept_scheme(of)->group;
    for (int e = 0; e < of.elements; ++e) {
      to[e] = static_cast<float>(codes[static_cast<std::size_t>(e)]) *
              (scales[static_cast<std::size_t>(e / group)] * factor);
    }
  };
  for (std::size_t done = 0; done < out.size();) {
    const std::int64_t at = first + static_cast<std::int64_t>(done);
    const std::int64_t within = at % of.elements;
    const std::byte* block = tensor.bytes.data() + at / of.elements * of.bytes;
    const auto left = out.size() - done;
    const std::size_t count = std::min(left, static_cast<std::size_t>(of.elements - within));
    if (within == 0 && count == static_cast<std::size_t>(of.elements)) {
      decode(block, factor_of(tensor, at / columns_of(tensor)), out.data() + done);
    } else {
      decode(block, factor_of(tensor, at / columns_of(tensor)), values.data());
      std::copy_n(values.begin() + within, count, out.begin() + static_cast<std::ptrdiff_t>(done));
    }
    done += count;
  }
}

void GgufSource::read(const SourceTensor& tensor, std::int64_t first, std::span<float> out) const {
  const GgufType& of = type(tensor);
  require(of.floats || of.decode != nullptr, tensor.place, ": tensor ", printable(tensor.name),
          " has type ", of.name, ", which holds no weights");
  const std::int64_t all = elements_of(tensor);
  require_elements(tensor, all, first, out.size());
  const std::int64_t head_rows = details_[place_of(tensor)].head_rows;
  if (head_rows == 0) return read_blocks(tensor, first, out);
  const std::int64_t columns = columns_of(tensor);
  for (std::int64_t at = first; at < first + std::ssize(out);) {
    const std::int64_t within = at % columns;
    const std::int64_t count = std::min(columns - within, first + std::ssize(out) - at);
    read_blocks(tensor, paired_row(at / columns, head_rows) * columns + within,
                out.subspan(static_cast<std::size_t>(at - first), static_cast<std::size_t>(count)));
    at += count;
  }
}

// Reads rows of a k type as the same k scheme of leq; false if a value is not finite.
bool GgufSource::read_super(const SourceTensor& tensor, std::int64_t first, std::int64_t rows,
                            ChosenCodes& out) const {
  const GgufType& of = type(tensor);
  const SuperLayout layout = super_layout(kept_scheme(of)->kind);
  const std::int64_t columns = columns_of(tensor), blocks = columns / of.elements;
  const std::int64_t subs = layout.sub_blocks(of.elements) * layout.subs;
  out.codes.resize(static_cast<std::size_t>(rows * columns));
  out.scales.resize(static_cast<std::size_t>(rows * blocks * layout.supers));
  out.zeros.resize(static_cast<std::size_t>(rows * blocks * subs));
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::byte* block =
        tensor.bytes.data() + stored_row(tensor, first + r) * blocks * of.bytes;
    for (std::int64_t b = r * blocks; b < (r + 1) * blocks; ++b, block += of.bytes) {
      of.super(block, out.codes.data() + b * of.elements, out.scales.data() + b * layout.supers,
               out.zeros.data() + b * subs);
    }
  }
  return std::ranges::all_of(out.scales, [](float scale) { return std::isfinite(scale); });
}

std::int64_t GgufSource::stored_row(const SourceTensor& tensor, std::int64_t row) const {
  const std::int64_t head_rows = details_[place_of(tensor)].head_rows;
  return head_rows == 0 ? row : paired_row(row, head_rows);
}

bool GgufSource::read_codes(const SourceTensor& tensor, const QuantScheme& scheme,
                            std::int64_t first, std::int64_t rows, ChosenCodes& out) const {
  const GgufType& of = type(tensor);
  const bool is_uint8 = scheme == QuantScheme{CodeKind::uint_, 8, Scaling::group, kGgufGroup};
  const bool own = scheme == kept_scheme(of);
  const bool coded =
      of.codes != nullptr && (own || (is_uint8 && kept_scheme(of)->group == kGgufGroup));
  const bool own_super = of.super != nullptr && own;
  if (tensor.shape.size() < 2 || !(own_super || coded)) return false;
  const std::int64_t columns = columns_of(tensor), all = elements_of(tensor) / columns;
  ensure(first >= 0 && rows >= 0 && first <= all && rows <= all - first, tensor.place, ": rows ",
         first, " + ", rows, " of ", all);
  if (own_super) return read_super(tensor, first, rows, out);
  out.codes.resize(static_cast<std::size_t>(rows * columns));
  out.scales.resize(static_cast<std::size_t>(rows * columns / scheme.group));
  const std::int64_t blocks = columns / of.elements;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::byte* block =
        tensor.bytes.data() + stored_row(tensor, first + r) * blocks * of.bytes;
    for (std::int64_t b = 0; b < blocks; ++b, block += of.bytes) {
      const std::int64_t at = r * columns + b * of.elements;
      if (!of.codes(block, out.codes.data() + at, out.scales.data() + at / scheme.group))
        return false;
    }
  }
  if (scheme.has_byte_scales() && rows > 0) {
    const float factor = factor_of(tensor, first);
    for (float& scale : out.scales) scale *= factor;
    out.scale_mul = kByteScaleFactor * factor;
  }
  if (scheme.has_table()) numbers_to_codes(scheme.kind, out.codes);
  if (is_uint8) {
    constexpr std::uint8_t kMiddle = 128;
    for (std::int16_t& code : out.codes) code = static_cast<std::int16_t>(code + kMiddle);
    out.zeros.assign(out.scales.size(), kMiddle);
  }
  return true;
}

}  // namespace leq

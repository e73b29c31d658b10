// Writes and refuses the keys for inputs of a linear in a .leq file (act, act_scale, online).
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "format/leq_bytes.h"
#include "format/leq_reader.h"
#include "format/leq_writer.h"
#include "temporary_folder.h"

namespace leq {
namespace {

using test::Bytes;

PackedWeight packed(ActKind act) {
  const std::vector<float> values(20, 0.5f);
  return pack_weight(values, 2, 10, *parse_scheme("int8"), act, "w");
}

// Writes a file with one weight "w" that has these input formats.
Bytes written(ActKind act, const TensorFacts& facts) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m.leq";
  LeqWriter writer(path);
  writer.add_tensor("w", {2, 10}, packed(act), facts);
  writer.finish(Json::object());
  return test::read_bytes(path);
}

// Returns the same file with a changed JSON entry of "w".
Bytes edited(const Bytes& file, const std::function<void(Json&)>& edit) {
  const auto at = static_cast<std::ptrdiff_t>(test::get_u64(file, 16));
  std::string text;
  for (auto byte = file.begin() + at; byte != file.end(); ++byte) {
    text += static_cast<char>(*byte);
  }
  Json whole = parse_json(text, "m.leq");
  edit(whole["tensors"]["w"]);
  return test::leq_file(whole.dump(), Bytes(file.begin() + 64, file.begin() + at));
}

std::string error_of(const Bytes& bytes) {
  try {
    const LeqReader reader(bytes, "m.leq");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ActKeys, AStaticScaleComesBackToTheBit) {
  for (const float scale : {0.1f, 1e-20f, 1e20f, 0.012345678f}) {
    const Bytes bytes =
        written(ActKind::tensor, {.method = "absmax", .error = 0.5, .act_scale = scale});
    const LeqReader reader(bytes, "m.leq");
    const StoredTensor& tensor = reader.tensors()[0];
    EXPECT_EQ(tensor.view.act, ActKind::tensor);
    EXPECT_EQ(tensor.act_scale, scale);
    EXPECT_EQ(tensor.method, "absmax");
    EXPECT_EQ(tensor.error, 0.5);
  }
}

TEST(ActKeys, TheOnlineModeComesBackAndIsSafeWhereItIsNotSaid) {
  for (const OnlineMode mode : {OnlineMode::safe, OnlineMode::streaming}) {
    const Bytes bytes = written(ActKind::online, {.online_mode = mode});
    EXPECT_EQ(LeqReader(bytes, "m.leq").tensors()[0].online_mode, mode);
    const Bytes silent = edited(bytes, [](Json& entry) { entry.erase("online"); });
    EXPECT_EQ(LeqReader(silent, "m.leq").tensors()[0].online_mode, OnlineMode::safe);
  }
}

TEST(ActKeys, TheReaderNamesWhatIsWrong) {
  const Bytes fixed = written(ActKind::tensor, {.act_scale = 0.1f});
  const auto refuses = [](const Bytes& bytes, const char* part) {
    const std::string text = error_of(bytes);
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_NE(text.find("tensor w"), std::string::npos) << text;
  };
  for (const double scale : {0.0, -0.1, 1e-21, 1e21, 1e300}) {
    refuses(edited(fixed, [=](Json& entry) { entry["act_scale"] = scale; }), "act_scale");
  }
  refuses(edited(fixed, [](Json& entry) { entry["act_scale"] = "0.1"; }), "act_scale");
  refuses(edited(fixed, [](Json& entry) { entry.erase("act_scale"); }), "act_scale");
  refuses(edited(fixed, [](Json& entry) { entry["act"] = "row"; }), "belongs to act tensor");
  refuses(edited(fixed, [](Json& entry) { entry["online"] = "safe"; }), "belongs to act online");
  refuses(edited(fixed, [](Json& entry) { entry["act"] = "token"; }), "unknown act \"token\"");
  const Bytes online = written(ActKind::online, {});
  refuses(edited(online, [](Json& entry) { entry["online"] = "fast"; }), "\"fast\"");
}

TEST(ActKeys, TheWriterRefusesAScaleThatNoReaderTakes) {
  const test::TemporaryFolder folder;
  LeqWriter writer(folder.path() / "m.leq");
  for (const float scale : {0.0f, -1.0f, 1e-21f, 1e21f, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
    EXPECT_THROW(writer.add_tensor("w", {2, 10}, packed(ActKind::tensor), {.act_scale = scale}),
                 Error);
  }
  EXPECT_NO_THROW(writer.add_tensor("w", {2, 10}, packed(ActKind::tensor), {.act_scale = 1.0f}));
}

}  // namespace
}  // namespace leq

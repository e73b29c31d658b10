// The hex dump in docs/leq-format.md must be a complete file that can be opened, and the writer
// must produce the same bytes.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/bytes.h"
#include "base/text.h"
#include "format/leq_bytes.h"
#include "format/leq_reader.h"
#include "format/leq_writer.h"
#include "temporary_folder.h"

namespace leq {
namespace {

// Joins the bytes of the page's lines " 00000010: 00 01 02 ... text".
test::Bytes dump_in_page() {
  const auto path = std::filesystem::path(LEQ_SOURCE_DIR) / "docs" / "leq-format.md";
  std::ifstream page(path);
  test::Bytes bytes;
  for (std::string line; std::getline(page, line);) {
    unsigned offset = 0;
    int consumed = 0;
    if (std::sscanf(line.c_str(), "    %8x: %n", &offset, &consumed) != 1 || consumed != 14)
      continue;
    EXPECT_EQ(offset, bytes.size()) << line;
    for (const std::string_view pair : split(std::string_view(line).substr(14, 47), " ")) {
      if (pair.size() != 2) break;
      bytes.push_back(static_cast<std::byte>(std::stoi(std::string(pair), nullptr, 16)));
    }
  }
  return bytes;
}

const std::vector<float> kNorm = {1.0f, -0.5f, 2.0f};
const std::vector<float> kMatrix = {0.25f, -3.0f, 1.0f, 1.5f, 65504.0f, 0.0f};

TEST(FormatPage, TheDumpOpensWithTheValuesThatThePageNames) {
  const test::Bytes bytes = dump_in_page();
  ASSERT_EQ(bytes.size(), 676u);
  const LeqReader reader(bytes, "docs/leq-format.md");
  reader.verify([](std::uint64_t, std::uint64_t) {});
  ASSERT_EQ(reader.tensors().size(), 2u);
  std::vector<float> norm(3), first(3), second(3);
  unpack_row(reader.find("norm")->view, 0, norm);
  unpack_row(reader.find("w")->view, 0, first);
  unpack_row(reader.find("w")->view, 1, second);
  EXPECT_EQ(norm, kNorm);
  first.insert(first.end(), second.begin(), second.end());
  EXPECT_EQ(first, kMatrix);
  EXPECT_EQ(as_text(reader.blob("hello").value()), "hi\n");
  EXPECT_EQ(reader.metadata()["config"]["layers"], 1);
}

TEST(FormatPage, TheWriterWritesTheDump) {
  const test::TemporaryFolder folder;
  LeqWriter writer(folder.path() / "tiny.leq");
  writer.add_tensor("norm", {3}, pack_weight(kNorm, 1, 3, {}, ActKind::none, "norm"), {});
  writer.add_tensor("w", {2, 3},
                    pack_weight(kMatrix, 2, 3, *parse_scheme("f16"), ActKind::none, "w"), {});
  writer.add_blob("hello", as_bytes("hi\n"));
  EXPECT_EQ(writer.finish({{"config", {{"layers", 1}}}}), 676u);
  EXPECT_EQ(test::read_bytes(folder.path() / "tiny.leq"), dump_in_page());
}

}  // namespace
}  // namespace leq

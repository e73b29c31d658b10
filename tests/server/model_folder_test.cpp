// Tests which files of a folder are models, and the names of these models.
#include "server/model_pool.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/error.h"
#include "temporary_folder.h"

namespace leq::test {
namespace {

TEST(ModelFolder, NamesFilesAndPartsOfFiles) {
  const TemporaryFolder folder;
  for (const char* name : {"a.leq", "a.gguf", "b.gguf", "c-00001-of-00002.gguf",
                           "c-00002-of-00002.gguf", "d-00002-of-00002.gguf", "e.txt", ".f.leq"}) {
    std::ofstream(folder / name) << "12345";
  }
  std::filesystem::create_directory(folder / "g.leq");
  std::map<std::string, std::pair<std::string, std::uint64_t>> found;
  for (const ModelFile& file : models_in(folder.path())) {
    found[file.name] = {file.path.filename(), file.bytes};
  }
  EXPECT_EQ(found, (decltype(found){{"a", {"a.leq", 5}},
                                    {"a.gguf", {"a.gguf", 5}},
                                    {"b", {"b.gguf", 5}},
                                    {"c", {"c-00001-of-00002.gguf", 10}}}));
  EXPECT_THROW((void)models_in(folder / "nope"), Error);
}

}  // namespace
}  // namespace leq::test

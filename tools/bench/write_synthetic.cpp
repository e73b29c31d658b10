#include "tools/bench/write_synthetic.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "convert/tokenizer_import.h"
#include "tools/bench/parts/synthetic.h"

namespace leq {

void write_synthetic(const Options& options) {
  const std::vector<std::string>& models = options.list("model");
  require(models.size() == 1 && is_synthetic(models[0]), "--write: expected one -m ",
          "synthetic:SHAPE:TYPE, found ", models.size(), " models, the first '",
          printable(models[0]), "'");
  ThreadPool pool(0);
  const std::vector<std::int64_t> depths = options.integers("n-depth");
  const SyntheticModel model(parse_synthetic(models[0]), std::ranges::max(depths), pool);
  std::optional<TokenizerSpec> tokenizer;
  if (options.given("write-tokenizer")) {
    tokenizer = import_tokenizer(options.text("write-tokenizer")).spec;
  }
  const std::string& path = options.text("write");
  std::cerr << path << ": " << human_bytes(model.write(path, tokenizer)) << '\n';
}

}  // namespace leq

// Any bytes as a tokenizer.json: a usable tokenizer, or an Error.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "convert/hf_tokenizer.h"
#include "fuzz/seeded.h"
#include "tokenizer/tokenizer.h"

namespace {

std::vector<std::string> examples() {
  return {
      R"({"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
      R"({"type":"Split","pattern":{"Regex":"\\p{L}+|\\s+"},"behavior":"Isolated","invert":false},)"
      R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":false}]},)"
      R"("decoder":{"type":"ByteLevel"},"post_processor":{"type":"TemplateProcessing","single":)"
      R"([{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":)"
      R"({"ids":[5]}}},"added_tokens":[{"id":5,"content":"<s>","special":true,"lstrip":true}],)"
      R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"l":3,"ll":4},"ignore_merges":true,)"
      R"("merges":["a b",["l","l"]]}})",
      R"({"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
      R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"pre_tokenizer":null,)"
      R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},)"
      R"("content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ",)"
      R"("start":1,"stop":0}]},"added_tokens":[{"id":0,"content":"<unk>","special":true,)"
      R"("normalized":true}],"model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,)"
      R"("byte_fallback":true,"vocab":{"<unk>":0,"▁":1,"H":2,"e":3,"He":4,"<0xC3>":5,"<0xB6>":6},)"
      R"("merges":["H e"]}})",
      R"({"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first",)"
      R"("split":true},"decoder":{"type":"Metaspace"},"model":{"vocab":{"▁":0,"l":1,"▁l":2},)"
      R"("merges":["▁ l"]}})"};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const leq::HfTokenizer read = leq::read_hf_tokenizer(text, "fuzz.json");
    const leq::Tokenizer tokenizer(read.spec);
    const auto ids = tokenizer.encode("Hello w\xc3\xb6rld <s> 123\n\xff ab", {});
    (void)tokenizer.decode(ids, true);
  } catch (const leq::Error&) {
  }
  return 0;
}

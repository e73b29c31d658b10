// Turns generated tokens into text as they come, never emitting half a character: bytes that may
// still become a UTF-8 character are held back.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace leq {

class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder. `at_text_start`: the first token begins a text, so the
  // one space that the tokenizer added there is dropped.
  StreamDecoder(const Tokenizer& tokenizer, bool at_text_start);

  // The text that is certain after this token; special tokens add nothing.
  std::string push(Token id);
  // The rest: bytes that never became a character end as U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;  // a decoder can be assigned
  std::string held_;
  bool drop_space_;
};

}  // namespace leq

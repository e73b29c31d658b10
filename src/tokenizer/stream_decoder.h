// Converts generated tokens to text one by one without splitting characters: bytes that may still
// become a UTF-8 character are withheld.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace leq {

class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder. `at_text_start`: the first token begins a text, so the
  // space that the tokenizer added there is removed.
  StreamDecoder(const Tokenizer& tokenizer, bool at_text_start);

  // Returns the text that is final after this token; special tokens add nothing.
  std::string push(Token id);
  // Returns the rest; incomplete characters become U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;  // a pointer, so that a decoder is assignable
  std::string held_;
  bool drop_space_;
};

}  // namespace leq

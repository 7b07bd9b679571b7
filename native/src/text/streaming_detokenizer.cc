#include "text/streaming_detokenizer.h"

#include <cstddef>

namespace aiomlc {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace

std::string StreamingDetokenizer::Put(int32_t token_id) {
  std::string text;
  const size_t index = static_cast<size_t>(token_id);
  if (index >= vocabulary_->size()) return text;  // The model's vocabulary may be padded.
  const std::string& bytes = (*vocabulary_)[index];
  text.reserve(pending_.size() + bytes.size());
  for (char byte : bytes) PutByte(static_cast<uint8_t>(byte), &text);
  return text;
}

std::string StreamingDetokenizer::Finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacement);
}

void StreamingDetokenizer::PutByte(uint8_t byte, std::string* text) {
  if (!pending_.empty()) {
    if (byte >= next_min_ && byte <= next_max_) {
      pending_ += static_cast<char>(byte);
      next_min_ = 0x80;
      next_max_ = 0xbf;
      if (--num_missing_ == 0) {
        *text += pending_;
        pending_.clear();
      }
      return;
    }
    *text += Finish();
  }
  if (byte < 0x80) {
    *text += static_cast<char>(byte);
    return;
  }
  if (byte < 0xc2 || byte > 0xf4) {
    *text += kReplacement;
    return;
  }
  pending_ = static_cast<char>(byte);
  num_missing_ = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
  // The range of the second byte excludes overlong forms, surrogates and values above U+10FFFF.
  next_min_ = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
  next_max_ = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
}

bool IsUtf8(const std::string& bytes) {
  const Vocabulary vocabulary = {bytes};
  StreamingDetokenizer detokenizer(&vocabulary);
  // The detokenizer leaves valid UTF-8 unchanged and replaces everything else.
  const std::string text = detokenizer.Put(0);
  return text + detokenizer.Finish() == bytes;
}

}  // namespace aiomlc

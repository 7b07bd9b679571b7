/*!
 * \file grammar/llguidance_api.h
 * \brief The part of llguidance's C interface (version 1) that the engine uses.
 */
#ifndef AIOMLC_GRAMMAR_LLGUIDANCE_API_H_
#define AIOMLC_GRAMMAR_LLGUIDANCE_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace aiomlc::llguidance {

struct Tokenizer;
struct Matcher;

/*! \brief Limits of a parser; 0 selects the library's default. */
struct ParserLimits {
  size_t max_items_in_row;
  uint64_t initial_lexer_fuel;
  uint64_t step_lexer_fuel;
  size_t step_max_items;
  size_t max_lexer_states;
  size_t max_grammar_size;
  bool precompute_large_lexemes;
  bool verbose_errors;
};

struct ConstraintInit {
  const Tokenizer* tokenizer;
  uint32_t log_buffer_level;
  uint32_t log_stderr_level;
  bool ff_tokens_ok;
  bool backtrack_ok;
  ParserLimits limits;
  /*! \brief For fields that a later version may set, since the structure has no size field. */
  char reserved[256];
};

/*! \return The number of tokens, of which at most `capacity` are written. */
using TokenizeFn = size_t (*)(const void* user_data, const uint8_t* bytes, size_t size,
                              uint32_t* tokens, size_t capacity);

struct TokenizerInit {
  size_t struct_size;
  uint32_t vocab_size;
  uint32_t eos_token;
  const uint32_t* token_sizes;
  const uint8_t* token_bytes;
  const char* tokenizer_json;
  bool tokenize_assumes_string;
  TokenizeFn tokenize;
  bool use_greedy_tokenize;
  const void* tokenize_user_data;
  const char* const* slices;
  const uint32_t* more_eos_tokens;
  uint32_t num_more_eos_tokens;
};

/*! \brief The functions of the library, named without the prefix `llg_`. */
struct Api {
  const char* (*get_version)();
  Tokenizer* (*new_tokenizer_v2)(const TokenizerInit*, char* error, size_t error_size);
  void (*free_tokenizer)(Tokenizer*);
  void (*constraint_init_set_defaults)(ConstraintInit*, const Tokenizer*);
  Matcher* (*new_matcher)(const ConstraintInit*, const char* kind, const char* source);
  Matcher* (*clone_matcher)(const Matcher*);
  void (*free_matcher)(Matcher*);
  const char* (*matcher_get_error)(Matcher*);
  int32_t (*matcher_compute_mask_into)(Matcher*, uint32_t* mask, size_t num_bytes);
  size_t (*matcher_get_mask_byte_size)(const Matcher*);
  int32_t (*matcher_consume_token)(Matcher*, uint32_t token);
  int32_t (*matcher_compute_ff_tokens)(Matcher*, uint32_t* tokens, size_t capacity);
  bool (*matcher_is_stopped)(const Matcher*);
};

/*!
 * \brief Load the library. It is never unloaded.
 * \throws GrammarError if it cannot be loaded, lacks a function or has another major version.
 */
Api Open(const std::string& library_path);

}  // namespace aiomlc::llguidance

#endif  // AIOMLC_GRAMMAR_LLGUIDANCE_API_H_

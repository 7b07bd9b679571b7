#include "grammar/llguidance.h"

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "grammar/llguidance_api.h"

namespace aiomlc {

namespace {

/*! \brief The maximum number of forced tokens that are fetched per call. */
constexpr size_t kMaxForced = 256;

/*!
 * \brief The maximum number of bytes that a grammar may force at once.
 *
 * They are walked and tokenized again after each token, in the step thread.
 */
constexpr size_t kMaxForcedBytes = 1 << 15;

/*! \brief The error of tokenizing in this thread's last call to the library, or empty. */
thread_local std::string tokenize_failure;

/*!
 * \brief Half of the library's defaults, or less: a unit of fuel takes 0.1 to 0.3 us and about 100
 * bytes, a lexer state up to 2 kB.
 */
constexpr uint64_t kInitialFuel = 500'000;
constexpr uint64_t kStepFuel = 100'000;
constexpr size_t kMaxLexerStates = 1 << 15;

/*! \brief The maximum number of bytes of a message, which may contain a whole pattern. */
constexpr size_t kMaxMessage = 500;

/*! \return A message of the library without internal names. */
std::string Explain(std::string_view error) {
  if (error.starts_with("NoExtensionBias")) {
    return "no text matches: the grammar is circular, or contradicts itself";
  }
  if (error.find("panic") != std::string_view::npos ||
      error.find("assertion failed") != std::string_view::npos) {
    return "the grammar is too large or too complex";
  }
  error = error.substr(0, error.find("\n<non-verbose/>"));
  if (error.size() <= kMaxMessage) return std::string(error);
  size_t size = kMaxMessage;
  while ((static_cast<uint8_t>(error[size]) & 0xC0) == 0x80) --size;  // Not within a character.
  return std::string(error.substr(0, size)) + "...";
}

/*! \brief Tokenize forced text; a failure is stored, because no exception may pass the library. */
size_t TokenizeForced(const void* tokenizer, const uint8_t* bytes, size_t size, uint32_t* tokens,
                      size_t capacity) noexcept {
  if (size > kMaxForcedBytes) {
    tokenize_failure = "it leaves no choice about more than " + std::to_string(kMaxForcedBytes) +
                       " bytes of text at once";
    return 0;
  }
  try {
    const std::string_view text(reinterpret_cast<const char*>(bytes), size);
    const std::vector<int32_t> ids =
        static_cast<const ForcedTextTokenizer*>(tokenizer)->Encode(text);
    std::copy_n(ids.begin(), std::min(ids.size(), capacity), tokens);
    return ids.size();
  } catch (const std::exception& error) {
    tokenize_failure = error.what();
    return 0;
  }
}

}  // namespace

/*! \brief The loaded library and its tokenizer. */
class GrammarCompiler::Tokenizer {
 public:
  Tokenizer(const std::string& library_path, GrammarVocabulary vocabulary)
      : api(llguidance::Open(library_path)) {
    if (vocabulary.stop_token_ids.empty()) {
      // The library needs one; it gets a token that the model cannot generate.
      virtual_end = static_cast<int32_t>(vocabulary.tokens.size());
      vocabulary.tokens.emplace_back("\xff<|virtual end|>");
      vocabulary.stop_token_ids.push_back(*virtual_end);
    }
    std::vector<uint32_t> sizes;
    std::string bytes;
    for (const std::string& token : vocabulary.tokens) {
      sizes.push_back(static_cast<uint32_t>(token.size()));
      bytes += token;
    }
    const std::vector<uint32_t> ends(vocabulary.stop_token_ids.begin(),
                                     vocabulary.stop_token_ids.end());
    llguidance::TokenizerInit init = {};
    init.struct_size = sizeof(init);
    init.vocab_size = static_cast<uint32_t>(sizes.size());
    init.token_sizes = sizes.data();
    init.token_bytes = reinterpret_cast<const uint8_t*>(bytes.data());
    init.eos_token = ends.front();
    init.more_eos_tokens = ends.data() + 1;
    init.num_more_eos_tokens = static_cast<uint32_t>(ends.size() - 1);
    if (vocabulary.tokenize) {
      forced_text_.emplace(std::move(vocabulary.tokenize));
      init.tokenize_assumes_string = true;
      init.tokenize = TokenizeForced;
      init.tokenize_user_data = &*forced_text_;
    } else {
      init.use_greedy_tokenize = true;
    }
    std::array<char, 1024> error = {};
    handle = api.new_tokenizer_v2(&init, error.data(), error.size());
    if (handle == nullptr) throw GrammarError(error.data());
  }
  ~Tokenizer() { api.free_tokenizer(handle); }
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  const llguidance::Api api;
  llguidance::Tokenizer* handle;
  /*! \brief The stop token of a vocabulary that has none. */
  std::optional<int32_t> virtual_end;

 private:
  /*! \brief The library holds a pointer to it. */
  std::optional<ForcedTextTokenizer> forced_text_;
};

class GrammarCompiler::Matcher final : public GrammarMatcher {
 public:
  Matcher(std::shared_ptr<const Tokenizer> tokenizer, llguidance::Matcher* handle)
      : tokenizer_(std::move(tokenizer)), handle_(handle, api().free_matcher) {
    ThrowIfFailed();
  }

  /*!
   * \brief Compute the first mask, which clones need not compute again.
   *
   * A grammar that cannot begin fails here, before any request uses it.
   */
  void Start() {
    ForcedTokens();
    std::vector<uint32_t> mask(api().matcher_get_mask_byte_size(handle_.get()) / sizeof(uint32_t));
    if (IsComplete()) return;
    ComputeMask(mask);
    if (std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; })) {
      throw GrammarError("it only matches the empty text, and the model has no stop token");
    }
  }

  std::unique_ptr<GrammarMatcher> Clone() const override {
    std::lock_guard lock(clone_mutex_);
    return std::make_unique<Matcher>(tokenizer_, api().clone_matcher(handle_.get()));
  }

  void ComputeMask(std::span<uint32_t> mask) override {
    const size_t size = api().matcher_get_mask_byte_size(handle_.get());
    const std::optional<int32_t> virtual_end = tokenizer_->virtual_end;
    if (virtual_end.has_value() && size == mask.size_bytes() + sizeof(uint32_t)) {
      std::vector<uint32_t> with_end(mask.size() + 1);
      ComputeMask(with_end);
      std::copy_n(with_end.begin(), mask.size(), mask.begin());
      return;
    }
    if (size != mask.size_bytes()) {
      throw GrammarError("the mask must have " + std::to_string(size) + " bytes, got " +
                         std::to_string(mask.size_bytes()));
    }
    tokenize_failure.clear();
    const int32_t status = api().matcher_compute_mask_into(handle_.get(), mask.data(), size);
    ThrowIfNotTokenized();
    if (status != 0) ThrowIfFailed();
    if (virtual_end.has_value()) mask[*virtual_end / 32] &= ~(uint32_t{1} << (*virtual_end % 32));
  }

  void Consume(int32_t token_id) override {
    if (api().matcher_consume_token(handle_.get(), static_cast<uint32_t>(token_id)) != 0)
      ThrowIfFailed();
  }

  std::vector<int32_t> ForcedTokens() override {
    std::array<uint32_t, kMaxForced> tokens;
    tokenize_failure.clear();
    const int32_t count =
        api().matcher_compute_ff_tokens(handle_.get(), tokens.data(), tokens.size());
    ThrowIfNotTokenized();
    if (count < 0) ThrowIfFailed();
    return {tokens.begin(), tokens.begin() + std::max(count, 0)};
  }

  bool IsComplete() override {
    if (!api().matcher_is_stopped(handle_.get())) return false;
    ThrowIfFailed();  // A matcher that failed has stopped, too.
    return true;
  }

 private:
  const llguidance::Api& api() const { return tokenizer_->api; }

  void ThrowIfFailed() {
    const char* error = api().matcher_get_error(handle_.get());
    if (error != nullptr) throw GrammarError(Explain(error));
  }

  static void ThrowIfNotTokenized() {
    if (!tokenize_failure.empty()) throw GrammarError(tokenize_failure);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<llguidance::Matcher, void (*)(llguidance::Matcher*)> handle_;
  mutable std::mutex clone_mutex_;
};

GrammarCompiler::GrammarCompiler(const std::string& library_path, GrammarVocabulary vocabulary)
    : tokenizer_(std::make_shared<const Tokenizer>(library_path, std::move(vocabulary))) {}

GrammarCompiler::~GrammarCompiler() = default;

std::unique_ptr<GrammarMatcher> GrammarCompiler::Compile(const std::string& kind,
                                                         const std::string& source) const {
  if (source.find('\0') != std::string::npos)
    throw GrammarError("the grammar contains a NUL character");
  const llguidance::Api& api = tokenizer_->api;
  llguidance::ConstraintInit init = {};
  api.constraint_init_set_defaults(&init, tokenizer_->handle);
  init.log_buffer_level = 0;
  init.log_stderr_level = 0;
  init.limits.verbose_errors = false;
  init.limits.initial_lexer_fuel = kInitialFuel;
  init.limits.step_lexer_fuel = kStepFuel;
  init.limits.max_lexer_states = kMaxLexerStates;
  auto matcher =
      std::make_unique<Matcher>(tokenizer_, api.new_matcher(&init, kind.c_str(), source.c_str()));
  matcher->Start();
  return matcher;
}

}  // namespace aiomlc

#include "grammar/llguidance.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>
#include <utility>

#include "grammar/llguidance_api.h"

namespace aiomlc {

namespace {

/*! \brief The most forced tokens that are fetched per call. */
constexpr size_t kMaxForced = 256;

size_t Tokenize(const void* encoder, const uint8_t* bytes, size_t size, uint32_t* tokens,
                size_t capacity) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const std::vector<int32_t> ids = static_cast<const BytePairEncoder*>(encoder)->Encode(text);
  std::copy_n(ids.begin(), std::min(ids.size(), capacity), tokens);
  return ids.size();
}

}  // namespace

/*! \brief The loaded library and its tokenizer. */
class GrammarCompiler::Tokenizer {
 public:
  Tokenizer(const std::string& library_path, GrammarVocabulary vocabulary)
      : api(llguidance::Open(library_path)), vocabulary_(std::move(vocabulary)) {
    if (vocabulary_.stop_token_ids.empty()) {
      throw GrammarError("the model has no stop token");
    }
    std::vector<uint32_t> sizes;
    std::string bytes;
    for (const std::string& token : vocabulary_.tokens) {
      sizes.push_back(static_cast<uint32_t>(token.size()));
      bytes += token;
    }
    const std::vector<uint32_t> ends(vocabulary_.stop_token_ids.begin(),
                                     vocabulary_.stop_token_ids.end());
    llguidance::TokenizerInit init = {};
    init.struct_size = sizeof(init);
    init.vocab_size = static_cast<uint32_t>(sizes.size());
    init.token_sizes = sizes.data();
    init.token_bytes = reinterpret_cast<const uint8_t*>(bytes.data());
    init.eos_token = ends.front();
    init.more_eos_tokens = ends.data() + 1;
    init.num_more_eos_tokens = static_cast<uint32_t>(ends.size() - 1);
    if (vocabulary_.encoder.has_value()) {
      init.tokenize = Tokenize;
      init.tokenize_user_data = &*vocabulary_.encoder;
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

 private:
  /*! \brief Kept alive because the library holds a pointer to the encoder. */
  const GrammarVocabulary vocabulary_;
};

class GrammarCompiler::Matcher final : public GrammarMatcher {
 public:
  Matcher(std::shared_ptr<const Tokenizer> tokenizer, llguidance::Matcher* handle)
      : tokenizer_(std::move(tokenizer)), handle_(handle, api().free_matcher) {
    ThrowIfFailed();
  }

  std::unique_ptr<GrammarMatcher> Clone() const override {
    std::lock_guard lock(clone_mutex_);
    return std::make_unique<Matcher>(tokenizer_, api().clone_matcher(handle_.get()));
  }

  void ComputeMask(std::span<uint32_t> mask) override {
    const size_t size = api().matcher_get_mask_byte_size(handle_.get());
    if (size != mask.size_bytes()) {
      throw GrammarError("the mask must have " + std::to_string(size) + " bytes, got " +
                         std::to_string(mask.size_bytes()));
    }
    if (api().matcher_compute_mask_into(handle_.get(), mask.data(), size) != 0) ThrowIfFailed();
  }

  void Consume(int32_t token_id) override {
    if (api().matcher_consume_token(handle_.get(), static_cast<uint32_t>(token_id)) != 0)
      ThrowIfFailed();
  }

  std::vector<int32_t> ForcedTokens() override {
    std::array<uint32_t, kMaxForced> tokens;
    const int32_t count =
        api().matcher_compute_ff_tokens(handle_.get(), tokens.data(), tokens.size());
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
    if (const char* error = api().matcher_get_error(handle_.get())) throw GrammarError(error);
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
  return std::make_unique<Matcher>(tokenizer_,
                                   api.new_matcher(&init, kind.c_str(), source.c_str()));
}

}  // namespace aiomlc

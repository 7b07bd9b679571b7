#include "grammar/llguidance_api.h"

#include <dlfcn.h>

#include <string_view>

#include "grammar/grammar.h"

namespace aiomlc::llguidance {

namespace {

constexpr std::string_view kVersion = "llguidance@1.";

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) {
    throw GrammarError(std::string("the library of llguidance does not export ") + name);
  }
}

}  // namespace

Api Open(const std::string& library_path) {
  void* const library = dlopen(library_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw GrammarError(std::string("the library of llguidance does not load: ") + dlerror());
  }
  Api api;
  Find(library, "llg_get_version", &api.get_version);
  if (!std::string_view(api.get_version()).starts_with(kVersion)) {
    throw GrammarError(std::string("llguidance 1 is needed, this is ") + api.get_version());
  }
  Find(library, "llg_new_tokenizer_v2", &api.new_tokenizer_v2);
  Find(library, "llg_free_tokenizer", &api.free_tokenizer);
  Find(library, "llg_constraint_init_set_defaults", &api.constraint_init_set_defaults);
  Find(library, "llg_new_matcher", &api.new_matcher);
  Find(library, "llg_clone_matcher", &api.clone_matcher);
  Find(library, "llg_free_matcher", &api.free_matcher);
  Find(library, "llg_matcher_get_error", &api.matcher_get_error);
  Find(library, "llg_matcher_compute_mask_into", &api.matcher_compute_mask_into);
  Find(library, "llg_matcher_get_mask_byte_size", &api.matcher_get_mask_byte_size);
  Find(library, "llg_matcher_consume_token", &api.matcher_consume_token);
  Find(library, "llg_matcher_compute_ff_tokens", &api.matcher_compute_ff_tokens);
  Find(library, "llg_matcher_is_stopped", &api.matcher_is_stopped);
  return api;
}

}  // namespace aiomlc::llguidance

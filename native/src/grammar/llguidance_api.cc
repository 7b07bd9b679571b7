#include "grammar/llguidance_api.h"

#include <dlfcn.h>

#include <string_view>

#include "grammar/grammar.h"

namespace aiomlc::llguidance {

namespace {

constexpr std::string_view kVersionPrefix = "llguidance@1.";

template <typename Function>
void LoadFunction(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) {
    throw GrammarError(std::string("the llguidance library does not export ") + name);
  }
}

}  // namespace

Api Open(const std::string& library_path) {
  void* const library = dlopen(library_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw GrammarError(std::string("cannot load the llguidance library: ") + dlerror());
  }
  Api api;
  LoadFunction(library, "llg_get_version", &api.get_version);
  if (!std::string_view(api.get_version()).starts_with(kVersionPrefix)) {
    throw GrammarError(std::string("llguidance 1.x is required, got ") + api.get_version());
  }
  LoadFunction(library, "llg_new_tokenizer_v2", &api.new_tokenizer_v2);
  LoadFunction(library, "llg_free_tokenizer", &api.free_tokenizer);
  LoadFunction(library, "llg_constraint_init_set_defaults", &api.constraint_init_set_defaults);
  LoadFunction(library, "llg_new_matcher", &api.new_matcher);
  LoadFunction(library, "llg_clone_matcher", &api.clone_matcher);
  LoadFunction(library, "llg_free_matcher", &api.free_matcher);
  LoadFunction(library, "llg_matcher_get_error", &api.matcher_get_error);
  LoadFunction(library, "llg_matcher_compute_mask_into", &api.matcher_compute_mask_into);
  LoadFunction(library, "llg_matcher_get_mask_byte_size", &api.matcher_get_mask_byte_size);
  LoadFunction(library, "llg_matcher_consume_token", &api.matcher_consume_token);
  LoadFunction(library, "llg_matcher_compute_ff_tokens", &api.matcher_compute_ff_tokens);
  LoadFunction(library, "llg_matcher_is_stopped", &api.matcher_is_stopped);
  return api;
}

}  // namespace aiomlc::llguidance

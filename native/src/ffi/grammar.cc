/*!
 * \file ffi/grammar.cc
 * \brief The grammar compiler as FFI globals: converts arguments and results.
 */
#include "ffi/grammar.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/reflection/registry.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/llguidance.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;

class GrammarCompilerObj : public ffi::Object {
 public:
  GrammarCompilerObj(const std::string& library_path, GrammarVocabulary vocabulary)
      : compiler(library_path, std::move(vocabulary)) {}
  GrammarCompiler compiler;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.GrammarCompiler", GrammarCompilerObj, ffi::Object);
};

class GrammarCompilerRef : public ffi::ObjectRef {
 public:
  GrammarCompilerRef(const std::string& library_path, GrammarVocabulary vocabulary)
      : ObjectRef(ffi::make_object<GrammarCompilerObj>(library_path, std::move(vocabulary))) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(GrammarCompilerRef, ffi::ObjectRef,
                                                GrammarCompilerObj);
};

template <typename Call>
auto TranslateErrors(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const GrammarError& error) {
    throw ffi::Error("GrammarError", error.what(), "");
  }
}

/*! \param call Takes text as bytes, and returns the token ids. */
Tokenize ToTokenize(const ffi::Function& call) {
  return [call](std::string_view text) {
    try {
      const auto ids = call(ffi::Bytes(text.data(), text.size())).cast<ffi::Shape>();
      return std::vector<int32_t>(ids.begin(), ids.end());
    } catch (const ffi::Error& error) {
      throw GrammarError(error.message());
    }
  };
}

/*! \param tokenize None if no tokens are to be forced. */
GrammarCompilerRef CreateCompiler(const ffi::String& library_path,
                                  const ffi::Array<ffi::Bytes>& tokens,
                                  const ffi::Shape& stop_token_ids,
                                  const ffi::Optional<ffi::Function>& tokenize) {
  GrammarVocabulary vocabulary;
  for (const ffi::Bytes& token : tokens) vocabulary.tokens.emplace_back(token.data(), token.size());
  vocabulary.stop_token_ids.assign(stop_token_ids.begin(), stop_token_ids.end());
  if (tokenize.has_value()) vocabulary.tokenize = ToTokenize(tokenize.value());
  return TranslateErrors([&] { return GrammarCompilerRef(library_path, std::move(vocabulary)); });
}

GrammarRef Compile(const GrammarCompilerRef& compiler, const ffi::String& kind,
                   const ffi::String& source) {
  return TranslateErrors([&] { return GrammarRef(compiler->compiler.Compile(kind, source)); });
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::ObjectDef<GrammarObj>();
  refl::ObjectDef<GrammarCompilerObj>();
  refl::GlobalDef()
      .def("aiomlc.grammar_compiler_create", CreateCompiler)
      .def("aiomlc.grammar_compile", Compile);
}

}  // namespace
}  // namespace aiomlc

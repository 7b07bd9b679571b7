/*!
 * \file ffi/grammar.cc
 * \brief The grammar compiler as FFI globals: converts arguments and results.
 */
#include "ffi/grammar.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
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

std::vector<int32_t> ToInt32(const ffi::Bytes& packed) {
  std::vector<int32_t> values(packed.size() / sizeof(int32_t));
  // Not memcpy, here and below: the data pointer of an empty value may be null.
  std::copy_n(packed.data(), values.size() * sizeof(int32_t),
              reinterpret_cast<char*>(values.data()));
  return values;
}

/*! \param merges int32[n, 3] in native byte order: left, right, merged. */
BytePairEncoder ToEncoder(const ffi::Bytes& merges, const ffi::Map<ffi::Bytes, int64_t>& characters,
                          const ffi::Bytes& bytes) {
  std::vector<Merge> rules(merges.size() / sizeof(Merge));
  std::copy_n(merges.data(), rules.size() * sizeof(Merge), reinterpret_cast<char*>(rules.data()));
  std::unordered_map<std::string, int32_t> character_ids;
  for (const auto& [character, token_id] : characters) {
    character_ids.emplace(std::string(character.data(), character.size()),
                          static_cast<int32_t>(token_id));
  }
  std::array<int32_t, 256> byte_ids;
  byte_ids.fill(-1);
  const std::vector<int32_t> ids = ToInt32(bytes);
  std::copy_n(ids.begin(), std::min(ids.size(), byte_ids.size()), byte_ids.begin());
  return BytePairEncoder(rules, std::move(character_ids), byte_ids);
}

/*! \brief Encode text with a temporary encoder, for tests. */
ffi::Shape Encode(const ffi::Bytes& merges, const ffi::Map<ffi::Bytes, int64_t>& characters,
                  const ffi::Bytes& bytes, const ffi::Bytes& text) {
  const std::vector<int32_t> ids =
      ToEncoder(merges, characters, bytes).Encode(std::string_view(text.data(), text.size()));
  return ffi::Shape(ids.begin(), ids.end());
}

/*! \param merges Empty for a tokenizer without byte-pair merges. */
GrammarCompilerRef CreateCompiler(const ffi::String& library_path,
                                  const ffi::Array<ffi::Bytes>& tokens,
                                  const ffi::Shape& stop_token_ids, const ffi::Bytes& merges,
                                  const ffi::Map<ffi::Bytes, int64_t>& characters,
                                  const ffi::Bytes& bytes) {
  GrammarVocabulary vocabulary;
  for (const ffi::Bytes& token : tokens) vocabulary.tokens.emplace_back(token.data(), token.size());
  vocabulary.stop_token_ids.assign(stop_token_ids.begin(), stop_token_ids.end());
  if (merges.size() > 0) vocabulary.encoder = ToEncoder(merges, characters, bytes);
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
      .def("aiomlc.byte_pair_encode", Encode)
      .def("aiomlc.grammar_compiler_create", CreateCompiler)
      .def("aiomlc.grammar_compile", Compile);
}

}  // namespace
}  // namespace aiomlc

/*!
 * \file ffi/grammar.h
 * \brief A compiled grammar as an FFI object.
 */
#ifndef AIOMLC_FFI_GRAMMAR_H_
#define AIOMLC_FFI_GRAMMAR_H_

#include <tvm/ffi/object.h>
#include <tvm/ffi/tvm_ffi.h>

#include <memory>
#include <utility>

#include "grammar/grammar.h"

namespace aiomlc {

class GrammarObj : public tvm::ffi::Object {
 public:
  explicit GrammarObj(std::shared_ptr<const GrammarMatcher> matcher)
      : matcher(std::move(matcher)) {}
  std::shared_ptr<const GrammarMatcher> matcher;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.Grammar", GrammarObj, tvm::ffi::Object);
};

class GrammarRef : public tvm::ffi::ObjectRef {
 public:
  explicit GrammarRef(std::shared_ptr<const GrammarMatcher> matcher)
      : ObjectRef(tvm::ffi::make_object<GrammarObj>(std::move(matcher))) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(GrammarRef, tvm::ffi::ObjectRef, GrammarObj);
};

}  // namespace aiomlc

#endif  // AIOMLC_FFI_GRAMMAR_H_

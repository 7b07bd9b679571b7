// A chat as another language has it: the functions are found by name, the threads are its own.
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

using tvm::ffi::Function;
using tvm::ffi::Map;
using tvm::ffi::String;

// The lists of chunks that answer a request, a line each.
std::string chat(std::string request) {
  auto functions =
      Function::GetGlobalRequired("aiomlc.json_ffi.create")().cast<Map<String, Function>>();
  std::mutex mutex;
  std::condition_variable told;
  std::string answer;
  bool has_ended = false;
  functions["init_background_engine"](1, 0, Function::FromTyped([&](String chunks) {
                                        std::lock_guard<std::mutex> lock(mutex);
                                        answer += std::string(chunks) + "\n";
                                        has_ended = answer.find("\"usage\":{") != std::string::npos;
                                        told.notify_all();
                                      }));
  std::thread engine([&] { functions["run_background_loop"](); });
  std::thread stream_back([&] { functions["run_background_stream_back_loop"](); });

  functions["reload"]("{}");
  functions["chat_completion"](request, "mine");
  {
    std::unique_lock<std::mutex> lock(mutex);
    told.wait(lock, [&] { return has_ended; });
  }

  functions["exit_background_loop"]();
  engine.join();
  stream_back.join();
  return answer;
}

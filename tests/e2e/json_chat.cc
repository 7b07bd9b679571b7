// A chat from C++: it looks the functions up by name and runs the background loops in its threads.
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

// Return the lists of chunks of a request, one per line.
std::string chat(std::string request) {
  auto functions =
      Function::GetGlobalRequired("aiomlc.json_ffi.create")().cast<Map<String, Function>>();
  std::mutex mutex;
  std::condition_variable changed;
  std::string response;
  bool has_ended = false;
  functions["init_background_engine"](1, 0, Function::FromTyped([&](String chunks) {
                                        std::lock_guard<std::mutex> lock(mutex);
                                        response += std::string(chunks) + "\n";
                                        has_ended = response.find("\"usage\":{") != std::string::npos;
                                        changed.notify_all();
                                      }));
  std::thread engine([&] { functions["run_background_loop"](); });
  std::thread stream_back([&] { functions["run_background_stream_back_loop"](); });

  functions["reload"]("{}");
  functions["chat_completion"](request, "request");
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return has_ended; });
  }

  functions["exit_background_loop"]();
  engine.join();
  stream_back.join();
  return response;
}

#include "model/sharded_model.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

namespace aiomlc {

namespace {

constexpr std::chrono::milliseconds kGrace{2000};

/*! \return The end of a process in words, for example "was killed by SIGKILL". */
std::string Ending(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return "ended with status " + std::to_string(info.si_status);
#if defined(__GLIBC__)
  if (const char* name = sigabbrev_np(info.si_status))
    return std::string("was killed by SIG") + name;
#endif
  return "was killed by signal " + std::to_string(info.si_status);
}

}  // namespace

// ---- The state ----

void ShardedState::Keep(int64_t sequence_id, int64_t num_tokens, Mark mark) {
  state_->Keep(sequence_id, num_tokens, mark);
  calls_->Keep(sequence_id, num_tokens, mark);
}

void ShardedState::Add(int64_t sequence_id) {
  state_->Add(sequence_id);
  calls_->Add(sequence_id);
}

void ShardedState::Fork(int64_t source_id, int64_t sequence_id, int64_t num_tokens) {
  state_->Fork(source_id, sequence_id, num_tokens);
  calls_->Fork(source_id, sequence_id, num_tokens);
}

void ShardedState::Rewind(int64_t sequence_id, int64_t count) {
  state_->Rewind(sequence_id, count);
  calls_->Rewind(sequence_id, count);
}

void ShardedState::Remove(int64_t sequence_id) {
  state_->Remove(sequence_id);
  calls_->Remove(sequence_id);
}

size_t ShardedState::ExportBytes(int64_t /*begin*/, int64_t /*end*/) const {
  throw std::logic_error("keys and values of several shards cannot be exported");
}

void ShardedState::Export(int64_t, int64_t, int64_t, std::byte*) const { ExportBytes(0, 0); }

void ShardedState::Import(int64_t, int64_t, const std::byte*) { ExportBytes(0, 0); }

// ---- The first shard ----

ShardedModel::ShardedModel(Model* model, std::unique_ptr<Communicator> communicator,
                           std::vector<int> processors)
    : model_(model),
      communicator_(std::move(communicator)),
      processors_(std::move(processors)),
      state_(&model->state(), &calls_) {}

ShardedModel::~ShardedModel() { communicator_->Close(); }

ForwardOutput ShardedModel::Forward(const ForwardInput& input) {
  RequireHiddenLayers(input.hidden.layers, hidden_layers());
  const ProcessorScope processors(processors_);
  const Communicator::Scope scope(*communicator_);
  try {
    calls_.Forward(input, piece_traits().row_size);
    communicator_->Send(calls_.bytes());
    calls_.Clear();
    return model_->Forward(input);
  } catch (const std::exception& error) {
    communicator_->Fail(error.what());  // The others wait for the rest of the pass.
    throw;
  }
}

void ShardedModel::Interrupt() noexcept { communicator_->Interrupt(kGrace); }

// ---- The others ----

void RunShard(Model* model, Communicator* communicator) {
  const Communicator::Scope scope(*communicator);
  std::vector<std::byte> message;
  try {
    while (true) {
      communicator->Receive(&message);
      MakeCalls(message, model);
    }
  } catch (const ShardsClosed&) {
    return;
  } catch (const std::exception& error) {
    communicator->Fail("shard " + std::to_string(communicator->rank()) + ": " + error.what());
    throw;
  }
}

// ---- Watching ----

std::function<void()> WatchWorkers(std::vector<pid_t> processes) {
  return [processes = std::move(processes)] {
    for (size_t i = 0; i < processes.size(); ++i) {
      siginfo_t info{};
      // The status stays for Python, which reaps its child.
      const int status =
          waitid(P_PID, static_cast<id_t>(processes[i]), &info, WEXITED | WNOHANG | WNOWAIT);
      if (status == 0 && info.si_pid == 0) continue;
      const std::string how = status == 0 ? Ending(info) : "has ended";
      throw ShardError("shard " + std::to_string(i + 1) + " (process " +
                       std::to_string(processes[i]) + ") " + how);
    }
  };
}

std::function<void()> WatchParent(pid_t parent) {
  return [parent] {
    if (getppid() != parent) throw ShardsClosed();
  };
}

}  // namespace aiomlc

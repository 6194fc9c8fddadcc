// SPDX-License-Identifier: Apache-2.0
// WorkerProcess: one sluice-worker as sluiced sees it: its process (by pidfd) and its control
// socket. Owned by a session, used from sluiced's one thread. It starts, sends and kills, by the
// spawner, and checks that what comes is a well-formed message; what a message means is the
// session's business.
//
//   spawn() --Spawned--> runs, has been sent Start --Exited, or its pidfd--> on_worker_exit
//           --Failed---> on_worker_exit with the error
//
// The worker gets descriptor 3 (control), /dev/null as 0 and 1, a socket as 2 whose lines are
// logged here, and nothing else.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/io/fd_watch.h"
#include "mediator/io/peers/peer_thread.h"
#include "mediator/io/spawner_link.h"
#include "mediator/io/worker_output.h"

namespace sluice::io {

struct WorkerSpec {
  // What the process is, and so what it may say: kStart, or kWitness (worker_protocol.h).
  worker_protocol::Type is = worker_protocol::Type::kStart;
  worker_protocol::Start start;
  std::vector<int> fds;  // in the order of StartFd; borrowed for as long as the WorkerProcess lives
  std::shared_ptr<PeerThread> peers;  // closes our ends of its sockets
  std::shared_ptr<LoopBudget>
      loop_time;      // of its vGPU; null: its messages have only their own pace
  uint64_t vgpu = 0;  // SpawnerLink::Vgpu's number; 0: it is no vGPU's
  Fd soft_gpu;  // the last of them, if there is one. Closed here once the worker has it: it is
                // known to live by the locks of this open file
};

// The shared file of the software GPU, for one worker alone: in its prison there is no such path,
// and its uid may not open it. No file: none is named.
Result<Fd> open_soft_gpu(const std::string& path);

struct WorkerExit {
  Error start_error;  // with a code: it never ran, and the rest means nothing
  bool signaled = false;
  int value = 0;             // signal or exit status
  std::string text() const;  // "died of signal 9 (Killed)", "exited with status 1"
};

class WorkerProcess final : private SpawnerLink::Client {
 public:
  class Owner {
   public:
    virtual void on_worker_message(const worker_protocol::Message& message) = 0;
    // It sent something that is no message: nothing more is read from it.
    virtual void on_worker_bad(const std::string& why) = 0;
    // It closed its end. Usually it is about to exit; it may also live on.
    virtual void on_worker_hangup() = 0;
    // The kernel's log has a fault of it, of this kind (Xid).
    virtual void on_worker_xid(int number) = 0;
    // The answer to ask_starved().
    virtual void on_worker_starved(uint64_t ns) = 0;
    // It is gone and reaped. Called once, last; may destroy the WorkerProcess.
    virtual void on_worker_exit(const WorkerExit& exit) = 0;

   protected:
    ~Owner() = default;
  };

  // Has it started; Start follows when it exists. `owner` and `spawner` outlive the object.
  static Result<std::unique_ptr<WorkerProcess>> spawn(boost::asio::io_context& io,
                                                      SpawnerLink& spawner, WorkerSpec spec,
                                                      Owner& owner);
  // Has it killed if it still runs, and waits until it has gone.
  ~WorkerProcess();

  // An error if the worker does not read (its socket is full) or is gone.
  Result<void> send(const worker_protocol::Message& message, std::span<const int> fds = {});
  // Whether it reads what has descriptors, so that it may be sent more of it.
  bool may_take_descriptors();
  void kill();
  // For how long nothing of it ran although something of it could have: Owner::on_worker_starved().
  void ask_starved();
  pid_t pid() const { return pid_; }  // -1: not yet

 private:
  WorkerProcess(boost::asio::io_context& io, SpawnerLink& spawner, Owner& owner)
      : io_(io), spawner_(spawner), owner_(owner), late_(io) {}
  void on_socket(bool exited);
  void on_spawned(pid_t pid, Fd pidfd) override;
  void on_spawn_failed(const Error& error) override;
  void on_exited(bool signaled, int value) override;
  void on_xid(int number) override;
  void on_starved(uint64_t ns) override { owner_.on_worker_starved(ns); }
  void on_spawner_lost() override;
  void finish(const WorkerExit& exit);

  boost::asio::io_context& io_;
  SpawnerLink& spawner_;
  Owner& owner_;
  WorkerSpec spec_;
  uint64_t id_ = 0;
  pid_t pid_ = -1;
  size_t unread_files_ = 0;  // messages with descriptors, since it had read all that was sent
  bool gone_ = false;        // it will not be heard of again
  bool orphaned_ = false;    // its spawner has died
  Fd socket_, pidfd_;
  FdWatch socket_watch_, exit_watch_;
  Timer late_;
  WorkerOutput output_;
};

}  // namespace sluice::io

// WorkerProcess: one sluice-worker as sluiced sees it: its process (by pidfd) and its control socket.
// Owned by a session, used from sluiced's one thread. It starts, sends, kills and reaps, and checks
// that what comes is a well-formed message; what a message means is the session's business.
//
// The worker gets descriptor 3 (control), /dev/null as 0 and 1, our stderr as 2, and nothing else.
#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/io/fd_watch.h"

namespace sluice::io {

struct WorkerSpec {
  std::string path;
  std::vector<std::string> environment;  // NAME=value, all that it gets
  worker_protocol::Start start;
  std::array<int, worker_protocol::kStartFdCount> fds;  // borrowed
};

struct WorkerExit {
  bool signaled = false;
  int value = 0;  // signal or exit status
  std::string text() const;  // "died of signal 9 (Killed)", "exited with status 1"
};

class WorkerProcess {
 public:
  class Owner {
   public:
    virtual void on_worker_message(const worker_protocol::Message& message) = 0;
    // It sent something that is no message: nothing more is read from it.
    virtual void on_worker_bad(const std::string& why) = 0;
    // It closed its end. Usually it is about to exit; it may also live on.
    virtual void on_worker_hangup() = 0;
    // It is gone and reaped. Called once, last; may destroy the WorkerProcess.
    virtual void on_worker_exit(const WorkerExit& exit) = 0;

   protected:
    ~Owner() = default;
  };

  // Starts it and sends Start. `owner` outlives the object.
  static Result<std::unique_ptr<WorkerProcess>> spawn(boost::asio::io_context& io,
                                                      const WorkerSpec& spec, Owner& owner);
  // Kills it if it still runs, and waits for it: nobody else can.
  ~WorkerProcess();

  // An error if the worker does not read (its socket is full) or is gone.
  Result<void> send(const worker_protocol::Message& message);
  void kill();
  pid_t pid() const { return pid_; }

 private:
  WorkerProcess(Owner& owner) : owner_(owner) {}
  void on_socket(bool exited);
  void on_exit();

  Owner& owner_;
  pid_t pid_ = -1;
  bool reaped_ = false;
  Fd socket_, pidfd_;
  FdWatch socket_watch_, exit_watch_;
};

}  // namespace sluice::io

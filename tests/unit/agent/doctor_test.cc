// SPDX-License-Identifier: Apache-2.0
// The doctor where something is wrong: each finding has its mend, and what hangs or dies in the
// driver is a finding. Where all is right: tests/system/cases_cudart.py, through the channel.
#include "guest-agent/agent/doctor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "mediator/base/unix_socket.h"

namespace sluice::guest {
namespace {

DoctorOptions nothing_there() {
  DoctorOptions o;
  o.socket = "/no/such/socket";
  o.sysfs = "/no/such/sysfs";
  o.driver = "libnone-of-this-name.so.1";
  return o;
}
const Finding& named(const std::vector<Finding>& findings, const std::string& name) {
  static const Finding none;
  for (const Finding& f : findings)
    if (f.name == name) return f;
  ADD_FAILURE() << "no check " << name;
  return none;
}

TEST(Doctor, WithoutAnythingEachCheckSaysWhatToDo) {
  const auto findings = examine(nothing_there());
  ASSERT_EQ(findings.size(), 9u);
  EXPECT_FALSE(all_right(findings));
  EXPECT_NE(named(findings, "device").mend.find("sluicectl attach"), std::string::npos);
  EXPECT_NE(named(findings, "agent").mend.find("systemctl start sluice-guest-agent"),
            std::string::npos);
  EXPECT_NE(named(findings, "libcuda").mend.find("install sluice-guest-agent"), std::string::npos);
  for (const char* name : {"host", "transport", "driver", "channel", "runtime", "launch"})
    EXPECT_EQ(named(findings, name).state, Finding::State::kSkipped) << name;
  for (const Finding& f : findings)
    EXPECT_EQ(f.state == Finding::State::kWrong, !f.mend.empty()) << f.name;
  EXPECT_NE(as_text(findings).find("wrong    device"), std::string::npos) << as_text(findings);
}

TEST(Doctor, AnotherDriverIsNamed) {
  DoctorOptions o = nothing_there();
  o.driver = SLUICE_TEST_OTHER_DRIVER;
  const auto findings = examine(o);
  EXPECT_NE(named(findings, "libcuda").fact.find("is another driver"), std::string::npos);
  EXPECT_NE(named(findings, "libcuda").mend.find("ldconfig"), std::string::npos);
}

TEST(Doctor, ADriverThatDiesOrHangsIsAFinding) {
  DoctorOptions o = nothing_there();
  o.driver = SLUICE_TEST_BAD_DRIVER;
  ::setenv("SLUICE_TEST_DRIVER", "dies", 1);
  const auto died = examine(o);
  EXPECT_EQ(named(died, "libcuda").state, Finding::State::kRight);
  EXPECT_EQ(named(died, "driver").state, Finding::State::kWrong);
  EXPECT_EQ(named(died, "driver").fact, "the check died of signal 6");
  EXPECT_FALSE(named(died, "driver").mend.empty());
  EXPECT_EQ(named(died, "channel").state, Finding::State::kSkipped);
  // On a busy machine not even the library may be loaded by then.
  ::setenv("SLUICE_TEST_DRIVER", "hangs", 1);
  DoctorOptions hurried = o;
  hurried.deadline_s = 1;
  const auto hung = examine(hurried);
  EXPECT_NE(as_text(hung).find("no answer within 1 s"), std::string::npos) << as_text(hung);
  EXPECT_FALSE(all_right(hung));
  ::setenv("SLUICE_TEST_DRIVER", "refuses", 1);
  const auto findings = examine(o);
  EXPECT_EQ(named(findings, "driver").fact, "cuInit: CUDA_ERROR_\"NO\" DEVICE");
  EXPECT_NE(as_json(findings, false).find("cuInit: CUDA_ERROR_\\\"NO\\\" DEVICE"),
            std::string::npos)
      << "quotes and tabs that a library says stay inside: " << as_json(findings, false);
}

TEST(Doctor, ALocalSocketStandsInForTheDevice) {
  char folder[] = "/tmp/sluice-doctor-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  DoctorOptions o = nothing_there();
  o.socket = std::string(folder) + "/socket";
  auto listener = listen_unix(o.socket, SOCK_SEQPACKET, 0600);
  ASSERT_TRUE(listener) << listener.error().message;
  const auto findings = examine(o);
  EXPECT_EQ(named(findings, "device").state, Finding::State::kRight);
  EXPECT_EQ(named(findings, "agent").state, Finding::State::kRight);
  EXPECT_EQ(named(findings, "host").state, Finding::State::kRight);
  ::unlink(o.socket.c_str());
  ::rmdir(folder);
}

}  // namespace
}  // namespace sluice::guest

// SPDX-License-Identifier: Apache-2.0
// What the host reads as text: domain XML, configuration, requests at the admin socket.
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include <string>

#include "mediator/core/domain_xml.h"
#include "mediator/daemon/admin/json_rpc.h"
#include "mediator/daemon/setup/config.h"
#include "tests/fuzz/targets.h"

namespace sluice::fuzz {

bool check_domain_xml(std::string_view text) {
  auto domain = parse_domain_xml(text);
  if (!domain) return refused(domain.error());
  require(!domain->vgpu.empty() && domain->vgpu.size() <= 48 && !domain->socket.empty(),
          "a vGPU has a name and a socket", domain->vgpu);
  return true;
}

bool check_config(std::string_view text) {
  auto config = parse_config(text, "sluice.toml");
  if (!config)
    require(config.error().message.starts_with("sluice.toml:"), "an error names the file",
            config.error().message);
  return config.ok();
}

// A method that reads parameters in every way, and answers.
bool check_rpc(std::string_view line) {
  RpcDispatcher dispatcher;
  dispatcher.add("vgpu.create", [](const boost::json::object& params, RpcReply reply) {
    RpcParams p(params);
    const std::string name = p.required_text("name");
    (void)p.text("note");
    (void)p.number("weight", 1, 1000);
    (void)p.size("memory");
    if (auto wrong = p.finish()) return reply.error(*wrong);
    reply.value(boost::json::object{{"name", name}});
  });
  int answers = 0;
  bool any_result = false;
  dispatcher.handle(line, [&](std::string answer) {
    ++answers;
    if (answer.empty()) return;
    any_result = answer.find("\"result\":") != std::string::npos;
    require(answer.find('\n') == std::string::npos, "an answer is one line", answer);
    boost::system::error_code bad;
    (void)boost::json::parse(answer, bad);
    require(!bad, "an answer is JSON", answer);
  });
  require(answers == 1, "a line is answered once", line);
  return any_result;
}

}  // namespace sluice::fuzz

// SPDX-License-Identifier: Apache-2.0
// The admin socket: JSON-RPC as the specification has it, requests of every wrong kind, and that
// one bad client never disturbs another.
#include <sys/eventfd.h>
#include <sys/un.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "mediator/daemon/admin/turns.h"
#include "mediator/io/fd_watch.h"
#include "tests/support/test_daemon.h"

namespace sluice::test {
namespace {

namespace json = boost::json;

class AdminTest : public DaemonTest {
 protected:
  void SetUp() override { start(); }
  json::object call(const std::string& method, const std::string& params = "{}") {
    return rpc(R"({"jsonrpc":"2.0","id":1,"method":")" + method + R"(","params":)" + params + "}")
        .as_object();
  }
  // The error's code, 0 if there is none.
  int64_t code(const json::value& answer) {
    const json::value* e = answer.as_object().if_contains("error");
    return e ? e->as_object().at("code").as_int64() : 0;
  }
};

// A client on the real socket.
class Client {
 public:
  explicit Client(const std::string& path) {
    auto s = connect_unix(path, SOCK_STREAM);
    EXPECT_TRUE(s.ok());
    socket_ = std::move(*s);
  }
  bool send(const std::string& text) {
    return ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(text.size());
  }
  // A line, if one has come.
  std::optional<std::string> line() {
    char buffer[65536];
    ssize_t n = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n == 0) closed = true;
    if (n > 0) text_.append(buffer, static_cast<size_t>(n));
    const size_t end = text_.find('\n');
    if (end == std::string::npos) return std::nullopt;
    std::string l = text_.substr(0, end);
    text_.erase(0, end + 1);
    return l;
  }
  bool closed = false;

 private:
  Fd socket_;
  std::string text_;
};

TEST_F(AdminTest, CreatesListsSetsShowsAndDeletes) {
  auto made = call("vgpu.create", R"({"name":"a","weight":300,"memory_bytes":"8G","priority":2})");
  ASSERT_EQ(code(made), 0) << json::serialize(made);
  EXPECT_EQ(made.at("result").at("weight").as_int64(), 300);
  EXPECT_EQ(made.at("result").at("memory_bytes").to_number<uint64_t>(), 8ull << 30);
  EXPECT_EQ(call("vgpu.list").at("result").as_array().size(), 1u);
  EXPECT_EQ(code(call("vgpu.set", R"({"name":"a","weight":7})")), 0);
  EXPECT_FALSE(made.at("result").at("paused").as_bool());
  auto paused = call("vgpu.set", R"({"name":"a","paused":1})");
  EXPECT_TRUE(paused.at("result").at("paused").as_bool());
  auto shown = call("vgpu.show", R"({"name":"a"})");
  EXPECT_EQ(shown.at("result").at("weight").as_int64(), 7);
  EXPECT_EQ(daemon_->executor().stats(daemon_->find("a")->id()).share.weight, 7u);
  EXPECT_EQ(code(call("vgpu.delete", R"({"name":"a"})")), 0);
  EXPECT_EQ(call("vgpu.list").at("result").as_array().size(), 0u);
}

TEST_F(AdminTest, AnOwnerIsKeptAndPrintable) {
  const std::string long_owner(65, 'x');
  EXPECT_NE(code(call("vgpu.create", R"({"name":"a","owner":")" + long_owner + R"("})")), 0);
  EXPECT_NE(code(call("vgpu.create", R"({"name":"a","owner":"x\u001b[2J"})")), 0);
  EXPECT_EQ(code(call("vgpu.create", R"({"name":"a","owner":"libvirt:1"})")), 0);
  EXPECT_EQ(call("vgpu.list").at("result").at(0).at("owner").as_string(), "libvirt:1");
}

TEST_F(AdminTest, LimitsAndGroupsAreLive) {
  EXPECT_EQ(code(call("group.set", R"({"name":"vm-1","weight":300,"max_permille":500})")), 0);
  auto made =
      call("vgpu.create", R"({"name":"a","group":"vm-1","latency":"low","min_permille":100})");
  ASSERT_EQ(code(made), 0) << json::serialize(made);
  EXPECT_EQ(made.at("result").at("group").as_string(), "vm-1");
  EXPECT_EQ(made.at("result").at("latency").as_string(), "low");
  EXPECT_EQ(code(call("vgpu.set", R"({"name":"a","max_permille":250,"latency":"batch"})")), 0);
  auto shown = call("vgpu.show", R"({"name":"a"})").at("result");
  EXPECT_EQ(shown.at("max_permille").as_int64(), 250);
  EXPECT_EQ(shown.at("min_permille").as_int64(), 100);
  EXPECT_EQ(shown.at("latency").as_string(), "batch");
  const auto share = daemon_->executor().stats(daemon_->find("a")->id()).share;
  EXPECT_EQ(share.max_permille, 250u);
  EXPECT_EQ(code(call("vgpu.set", R"({"name":"a","max_permille":0,"group":""})")), 0);
  EXPECT_EQ(call("vgpu.show", R"({"name":"a"})").at("result").at("group").as_string(), "");
  EXPECT_EQ(code(call("vgpu.set", R"({"name":"a","min_permille":600})")), 0);
  EXPECT_NE(code(call("vgpu.create", R"({"name":"b","min_permille":500})")), 0);
  EXPECT_EQ(call("group.list").at("result").as_array().size(), 1u);
}

TEST_F(AdminTest, AVgpuMayInsistOnTheHostsMode) {
  EXPECT_EQ(code(call("vgpu.create", R"({"name":"a","mode":"strict"})")), 0);
  const auto refused = call("vgpu.create", R"({"name":"b","mode":"shared"})");
  EXPECT_NE(code(refused), 0);
  EXPECT_NE(json::serialize(refused).find("scheduler.mode"), std::string::npos);
  EXPECT_EQ(call("vgpu.list").at("result").as_array().size(), 1u);
  EXPECT_EQ(call("info").at("result").at("mode").as_string(), "strict");
}

TEST_F(AdminTest, EveryMethodAnswers) {
  call("vgpu.create", R"({"name":"a"})");
  for (const char* method :
       {"version", "info", "policies", "vgpu.list", "stats", "metrics", "top", "events"}) {
    auto answer = call(method);
    EXPECT_EQ(code(answer), 0) << method << json::serialize(answer);
    // And takes no parameter that it does not know.
    EXPECT_EQ(code(call(method, R"({"nonsense":1})")), kRpcInvalidParams) << method;
  }
  EXPECT_EQ(call("stats").at("result").at("vgpus").as_array().size(), 1u);
  EXPECT_EQ(call("top").at("result").at("vgpus").as_array().size(), 1u);
}

// Prometheus' text format: each metric has its HELP and TYPE before its samples, each series is
// there once, values are numbers.
TEST_F(AdminTest, MetricsAreWhatPrometheusReads) {
  call("vgpu.create", R"({"name":"a","weight":7})");
  call("vgpu.create", R"({"name":"b"})");
  const auto text = std::string(call("metrics").at("result").as_string());
  ASSERT_FALSE(text.empty());
  ASSERT_EQ(text.back(), '\n');
  const std::regex sample(
      "([a-z_]+)(\\{[a-z]+=\"[^\"]*\"(,[a-z]+=\"[^\"]*\")*\\})? ([0-9]+(\\.[0-9]+)?)");
  std::map<std::string, std::string> types, values;
  std::string family;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    SCOPED_TRACE(line);
    std::smatch m;
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_FALSE(types.contains(family)) << "twice";
      EXPECT_GT(line.size(), 8 + family.size()) << "no help";
    } else if (line.starts_with("# TYPE ")) {
      ASSERT_EQ(line.substr(7, family.size() + 1), family + " ");
      types[family] = line.substr(8 + family.size());
    } else {
      ASSERT_TRUE(std::regex_match(line, m, sample));
      const std::string name = m[1];
      const bool part =
          types[family] == "summary" && (name == family + "_sum" || name == family + "_count");
      EXPECT_TRUE(name == family || part);
      EXPECT_EQ(types[family] == "counter", name.ends_with("_total"));
      EXPECT_TRUE(values.emplace(name + m[2].str(), m[4]).second) << "twice";
    }
  }
  EXPECT_EQ(values["sluice_vgpu_weight{vgpu=\"a\"}"], "7");
  EXPECT_EQ(values["sluice_vgpu_weight{vgpu=\"b\"}"], "100");
  EXPECT_EQ(values["sluice_vgpu_eviction_seconds_count{vgpu=\"b\"}"], "0");
  EXPECT_EQ(values.count("sluice_vgpu_eviction_seconds{vgpu=\"a\",quantile=\"0.99\"}"), 1u);
  EXPECT_EQ(values["sluice_uptime_seconds"].find('-'), std::string::npos);
}

TEST_F(AdminTest, TheAlertRulesNameMetricsThatThereAre) {
  call("vgpu.create", R"({"name":"a"})");
  const auto text = std::string(call("metrics").at("result").as_string());
  std::ifstream file(SLUICE_SOURCE_ROOT "/docs/operating/sluice-alerts.yml");
  std::stringstream rules;
  rules << file.rdbuf();
  const std::string names = rules.str();
  const std::regex metric("sluice_[a-z_]+");
  size_t count = 0;
  for (std::sregex_iterator it(names.begin(), names.end(), metric), end; it != end; ++it, ++count)
    EXPECT_NE(text.find("\n# TYPE " + it->str() + " "), std::string::npos) << it->str();
  EXPECT_GT(count, 5u);
}

TEST_F(AdminTest, EventsAreTheLogAndGoOnFromANumber) {
  log::init("test", log::Level::kInfo);
  call("vgpu.create", R"({"name":"a"})");
  auto events = call("events").at("result").as_object();
  const uint64_t last = events.at("last").to_number<uint64_t>();
  ASSERT_GT(last, 0u);
  EXPECT_NE(json::serialize(events).find("vgpu a: created"), std::string::npos);
  EXPECT_EQ(call("events", R"({"after":)" + std::to_string(last) + "}")
                .at("result")
                .at("events")
                .as_array()
                .size(),
            0u);
  EXPECT_EQ(call("events", R"({"limit":1})").at("result").at("events").as_array().size(), 1u);
  log::init("test", log::Level::kError);
}

TEST_F(AdminTest, WrongRequestsGetTheSpecificationsErrors) {
  struct Case {
    const char* line;
    int64_t code;
  };
  const Case cases[] = {
      {"{", kRpcParseError},
      {"", kRpcParseError},
      {"\xff\xfe", kRpcParseError},
      {R"({"jsonrpc":"2.0","id":1,"method":"version"} extra)", kRpcParseError},
      {"3", kRpcInvalidRequest},
      {"null", kRpcInvalidRequest},
      {"[]", kRpcInvalidRequest},
      {"{}", kRpcInvalidRequest},
      {R"({"jsonrpc":"1.0","id":1,"method":"version"})", kRpcInvalidRequest},
      {R"({"jsonrpc":"2.0","id":{},"method":"version"})", kRpcInvalidRequest},
      {R"({"jsonrpc":"2.0","id":1e999,"method":"version"})", kRpcInvalidRequest},
      {R"({"jsonrpc":"2.0","id":1,"method":5})", kRpcInvalidRequest},
      {R"({"jsonrpc":"2.0","id":1})", kRpcInvalidRequest},
      {R"({"jsonrpc":"2.0","id":1,"method":"vgpu.explode"})", kRpcMethodNotFound},
      {R"({"jsonrpc":"2.0","id":1,"method":"version","params":[1]})", kRpcInvalidParams},
      {R"({"jsonrpc":"2.0","id":1,"method":"vgpu.create"})", kRpcInvalidParams},
  };
  for (const Case& c : cases) {
    auto answer = rpc(c.line);
    ASSERT_TRUE(answer.is_object()) << c.line;
    EXPECT_EQ(code(answer), c.code) << c.line;
    EXPECT_FALSE(answer.at("error").at("message").as_string().empty());
  }
  std::string deep(5000, '[');
  EXPECT_EQ(code(rpc(deep)), kRpcParseError);
}

TEST_F(AdminTest, WrongParametersAreRefusedByName) {
  call("vgpu.create", R"({"name":"a"})");
  struct Case {
    const char* method;
    const char* params;
    const char* word;
  };
  const Case cases[] = {
      {"vgpu.create", R"({"name":""})", "name"},
      {"vgpu.create", R"({"name":"../x"})", "name"},
      {"vgpu.create", R"({"name":"a/b"})", "name"},
      {"vgpu.create", R"({"name":"-x"})", "name"},
      {"vgpu.create", R"({"name":"\u0000"})", "name"},
      {"vgpu.create", R"({"name":"a"})", "already"},
      {"vgpu.create", R"({"name":5})", "name"},
      {"vgpu.create", R"({"name":"b","weight":0})", "weight"},
      {"vgpu.create", R"({"name":"b","weight":10001})", "weight"},
      {"vgpu.create", R"({"name":"b","weight":-1})", "weight"},
      {"vgpu.create", R"({"name":"b","weight":1.5})", "weight"},
      {"vgpu.create", R"({"name":"b","weight":1e300})", "weight"},
      {"vgpu.create", R"({"name":"b","memory_bytes":"lots"})", "memory_bytes"},
      {"vgpu.create", R"({"name":"b","priority":32})", "priority"},
      {"vgpu.create", R"({"name":"b","socket":"relative"})", "absolute"},
      {"vgpu.create", R"({"name":"b","socket":"/nonexistent/x.sock"})", "bind"},
      {"vgpu.create", R"({"name":"b","slots":65})", "slots"},
      {"vgpu.create", R"({"name":"b","region_bytes":100000000})", "power of two"},
      {"vgpu.create", R"({"name":"b","slots":64,"region_bytes":"32M"})", "room"},
      {"vgpu.create", R"({"name":"b","colour":"red"})", "colour"},
      {"vgpu.create", R"({"name":"b","mode":"loose"})", "strict or shared"},
      {"vgpu.set", R"({"name":"zz"})", "zz"},
      {"vgpu.set", R"({"name":"a","latency":"soon"})", "low, normal or batch"},
      {"vgpu.set", R"({"name":"a","min_permille":300,"max_permille":200})", "above the maximum"},
      {"vgpu.set", R"({"name":"a","max_permille":1001})", "max_permille"},
      {"vgpu.set", R"({"name":"a","paused":2})", "paused"},
      {"vgpu.set", R"({"name":"a","group":"nobody"})", "there is no group 'nobody'"},
      {"vgpu.set", R"({"name":"a","latency":"low","target_p99_us":1})", "cannot be kept"},
      {"group.set", R"({"name":"g","parent":"nobody"})", "there is no group 'nobody'"},
      {"group.set", R"({"name":"../g"})", "a group's name"},
      {"vgpu.set", R"({"name":"a","weight":"7"})", "weight"},
      {"vgpu.show", R"({"name":"zz"})", "zz"},
      {"vgpu.delete", R"({})", "name"},
      {"top", R"({"window_ms":1})", "window_ms"},
  };
  for (const Case& c : cases) {
    auto answer = call(c.method, c.params);
    ASSERT_NE(code(answer), 0) << c.method << c.params;
    EXPECT_NE(json::serialize(answer.at("error")).find(c.word), std::string::npos)
        << c.params << json::serialize(answer);
  }
  EXPECT_EQ(daemon_->vgpus().size(), 1u) << "nothing half made";
  const std::string long_name(200, 'x');
  EXPECT_NE(code(call("vgpu.create", R"({"name":")" + long_name + R"("})")), 0);
}

TEST_F(AdminTest, TwoVgpusCannotShareASocket) {
  call("vgpu.create", R"({"name":"a"})");
  const std::string socket = daemon_->find("a")->spec().socket;
  EXPECT_NE(code(call("vgpu.create", R"({"name":"b","socket":")" + socket + R"("})")), 0);
  EXPECT_NE(code(call("vgpu.create", R"({"name":"b","socket":")" +
                                         daemon_->config().admin_socket_path() + R"("})")),
            0);
}

TEST_F(AdminTest, BatchesAndNotifications) {
  auto answer = rpc(R"([{"jsonrpc":"2.0","id":1,"method":"version"},
                        {"jsonrpc":"2.0","method":"vgpu.create","params":{"name":"quiet"}},
                        {"jsonrpc":"2.0","id":"x","method":"nope"}, 5])");
  ASSERT_TRUE(answer.is_array());
  EXPECT_EQ(answer.as_array().size(), 3u);
  EXPECT_NE(daemon_->find("quiet"), nullptr);
  EXPECT_TRUE(rpc(R"({"jsonrpc":"2.0","method":"version"})").is_null());
  std::string many = "[";
  for (size_t i = 0; i <= limits::kMaxAdminBatch; ++i) many += i ? ",1" : "1";
  EXPECT_EQ(code(rpc(many + "]")), kRpcInvalidRequest);
}

TEST_F(AdminTest, BadClientsDoNotDisturbGoodOnes) {
  const std::string path = config_.admin_socket_path();
  const std::string question = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"version\"}\n";
  Client good(path), half(path), endless(path), deaf(path);
  half.send("{\"jsonrpc\":");
  // One that never ends its line gets an error and is cut off.
  const std::string filler(8192, 'x');
  std::optional<std::string> reply;
  ASSERT_TRUE(run_until([&] {
    endless.send(filler);
    if (!reply) reply = endless.line();
    return reply.has_value();
  }));
  EXPECT_NE(reply->find("-32600"), std::string::npos) << *reply;
  ASSERT_TRUE(run_until([&] { return endless.line(), endless.closed; }));
  // One that asks and never reads is hung up on.
  const std::string big = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"policies\"}\n";
  run_until([&] {
    for (int i = 0; i < 100; ++i)
      if (!deaf.send(big)) return errno == EPIPE || errno == ECONNRESET;
    return false;
  });
  std::optional<std::string> answer;
  ASSERT_TRUE(good.send(question));
  ASSERT_TRUE(run_until([&] { return (answer = good.line()).has_value(); }));
  EXPECT_NE(answer->find("sluiced"), std::string::npos);
  // In pieces, several at once, empty lines, CR LF.
  ASSERT_TRUE(half.send("\"2.0\",\"id\":7,\"method\":\"version\"}\r\n\n  \n" + question));
  for (int i = 0; i < 2; ++i) {
    answer.reset();
    ASSERT_TRUE(run_until([&] { return (answer = half.line()).has_value(); }));
    EXPECT_NE(answer->find("result"), std::string::npos) << *answer;
  }
}

// How many answers of one client may come before that of another one, which asks after it. The loop
// takes turns; both are in the same process as the test, so no clock is involved.
constexpr int kAnswersBefore = 8;

TEST_F(AdminTest, AClientThatAsksWithoutEndIsServedInTurn) {
  const std::string path = config_.admin_socket_path();
  const std::string question = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"version\"}\n";
  Client greedy(path), good(path);
  for (int round = 0; round < 20; ++round) {
    while (greedy.send(question)) {
    }
    int before = 0;
    ASSERT_TRUE(good.send(question));
    ASSERT_TRUE(run_until([&] {
      while (greedy.line()) ++before;
      return good.line().has_value();
    }));
    EXPECT_LE(before, kAnswersBefore);
  }
}

// What wakes the loop beside them, as a worker's ring, is served between any two of their requests.
TEST_F(AdminTest, ManyClientsAtOnceAreServedOneByOne) {
  constexpr size_t kClients = 30, kEach = 3;
  const std::string question = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"metrics\"}\n";
  std::deque<Client> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.emplace_back(config_.admin_socket_path());
    io_.poll();  // accepts it
    io_.restart();
  }
  for (size_t i = 0; i < kEach; ++i)
    for (Client& c : clients) ASSERT_TRUE(c.send(question));
  Fd ring(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
  size_t rings = 0, answers = 0, most = 0;
  io::FdWatch watch(io_, ring.get(), [&] {
    ++rings;
    size_t now = 0;
    for (Client& c : clients)
      while (c.line()) ++now;
    answers += now;
    most = std::max(most, now);
  });
  ASSERT_TRUE(run_until([&] { return answers == kClients * kEach; }));
  EXPECT_GE(rings, answers);
  // One that was under way, and one more.
  EXPECT_LE(most, 2u);
}

// Of two users one has used up its share of the loop: it waits, and keeps nobody else.
TEST(AdminTurnsTest, WhoHasUsedUpItsShareKeepsNobodyElse) {
  boost::asio::io_context io(1);
  io::LoopShares least;  // for years nothing more, after the first turn
  least.each = least.all = 1e-12;
  least.burst_ns = least.all_burst_ns = 0;
  io::LoopBudgets budgets(least), others({});
  const auto greedy = std::make_shared<AdminUser>(), good = std::make_shared<AdminUser>();
  greedy->loop_time = budgets.make();
  good->loop_time = others.make();
  AdminTurns turns(io);
  int greedys = 0, goods = 0;
  for (int i = 0; i < 20; ++i) {
    turns.add(greedy, [&] { ++greedys; });
    turns.add(good, [&] { ++goods; });
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (goods < 20 && std::chrono::steady_clock::now() < end) io.run_one();
  EXPECT_EQ(goods, 20);
  EXPECT_EQ(greedys, 1);
}

TEST_F(AdminTest, ABatchIsServedInTurn) {
  const std::string path = config_.admin_socket_path();
  const std::string one = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"version\"}";
  std::string batch = "[" + one;
  for (size_t i = 1; i < limits::kMaxAdminBatch; ++i) batch += "," + one;
  Client greedy(path), good(path);
  ASSERT_TRUE(greedy.send(batch + "]\n" + one + "\n"));
  ASSERT_TRUE(good.send(one + "\n"));
  std::optional<std::string> all, answer;
  ASSERT_TRUE(run_until([&] { return (answer = good.line()).has_value(); }));
  EXPECT_FALSE(greedy.line()) << "its batch is not over yet";
  ASSERT_TRUE(run_until([&] { return (all = greedy.line()).has_value(); }));
  EXPECT_EQ(boost::json::parse(*all).as_array().size(), limits::kMaxAdminBatch);
  ASSERT_TRUE(run_until([&] { return (answer = greedy.line()).has_value(); }));
  EXPECT_TRUE(boost::json::parse(*answer).is_object()) << "what followed it, after it";
}

TEST_F(AdminTest, ABatchWithTooLongAnswersIsCutOff) {
  log::init("test", log::Level::kInfo);
  for (int i = 0; i < 30; ++i) log::info("{}", std::string(4000, 'x'));
  log::init("test", log::Level::kError);
  const std::string one = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"events\"}";
  std::string batch = "[" + one;
  for (size_t i = 1; i < limits::kMaxAdminBatch; ++i) batch += "," + one;
  Client client(config_.admin_socket_path());
  ASSERT_TRUE(client.send(batch + "]\n"));
  std::optional<std::string> answer;
  ASSERT_TRUE(run_until([&] { return (answer = client.line()).has_value(); }));
  EXPECT_NE(answer->find("too long"), std::string::npos) << answer->substr(0, 200);
}

// What was sent before the end is done, although nobody waits for the answer.
TEST_F(AdminTest, RequestsOfAClientThatHasGoneAreDone) {
  {
    Client client(config_.admin_socket_path());
    std::string batch;
    for (const char* name : {"a1", "a2", "a3"})
      batch += std::string(batch.empty() ? "[" : ",") +
               R"({"jsonrpc":"2.0","method":"vgpu.create","params":{"name":")" + name + "\"}}";
    ASSERT_TRUE(client.send(batch + "]\n"));
  }
  ASSERT_TRUE(run_until([&] { return call("vgpu.list").at("result").as_array().size() == 3; }));
}

TEST_F(AdminTest, ConnectionsAreBounded) {
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < limits::kMaxAdminConnections; ++i) {
    clients.push_back(std::make_unique<Client>(config_.admin_socket_path()));
    run_for_a_moment();  // connecting would block once the backlog is full
  }
  Client more(config_.admin_socket_path());
  std::optional<std::string> reply;
  ASSERT_TRUE(run_until([&] { return (reply = more.line()).has_value(); }));
  EXPECT_NE(reply->find("too many"), std::string::npos);
  clients.clear();
  run_for_a_moment();
  Client again(config_.admin_socket_path());
  again.send("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"version\"}\n");
  ASSERT_TRUE(run_until([&] { return (reply = again.line()).has_value(); }));
  EXPECT_NE(reply->find("result"), std::string::npos);
}

TEST(AdminPermission, RootAndOurOwnOnly) {
  EXPECT_TRUE(may_administer({1, 0, 5}, {}, 100, 200));
  EXPECT_TRUE(may_administer({1, 100, 5}, {}, 100, 200));
  EXPECT_TRUE(may_administer({1, 7, 200}, {}, 100, 200));
  EXPECT_TRUE(may_administer({1, 7, 8}, {4, 200}, 100, 200));
  EXPECT_FALSE(may_administer({1, 7, 8}, {4, 100}, 100, 200));
}

}  // namespace
}  // namespace sluice::test

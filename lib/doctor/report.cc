#include "doctor/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace neox {

NLOHMANN_JSON_SERIALIZE_ENUM(Verdict, {{Verdict::kFine, "fine"},
                                       {Verdict::kNote, "note"},
                                       {Verdict::kWrong, "wrong"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Blame, {{Blame::kNode, "node"}, {Blame::kNobody, "nobody"}})

namespace {

using Json = nlohmann::json;

constexpr double kClockSeconds = 1;

Json json_of(const Finding& f) {
  return {{"verdict", f.verdict}, {"check", f.check}, {"text", f.text}};
}

Json json_of(const Rate& r) {
  return {{"name", r.name}, {"unit", r.unit}, {"value", r.value}, {"blame", r.blame}};
}

template <class T>
Json list_of(const std::vector<T>& items) {
  Json list = Json::array();
  for (const auto& item : items) list.push_back(json_of(item));
  return list;
}

NodeRow& row_of(std::vector<NodeRow>& nodes, const std::string& host) {
  auto found = std::ranges::find(nodes, host, &NodeRow::host);
  return found == nodes.end() ? nodes.emplace_back(NodeRow{.host = host}) : *found;
}

void keep_slowest(std::vector<Rate>& rates, const Rate& rate) {
  auto found = std::ranges::find(rates, rate.name, &Rate::name);
  if (found == rates.end())
    rates.push_back(rate);
  else
    found->value = std::min(found->value, rate.value);
}

std::vector<NodeRow> rows_of(std::span<const RankReport> reports) {
  std::vector<NodeRow> nodes;
  for (const RankReport& report : reports) {
    NodeRow& node = row_of(nodes, report.host);
    ++node.ranks;
    node.facts.insert(report.facts.begin(), report.facts.end());
    for (const Rate& rate : report.rates) keep_slowest(node.rates, rate);
    // What is within the error of the measurement counts as none.
    if (std::abs(report.clock_offset) > report.clock_error) node.clock_offset = report.clock_offset;
  }
  return nodes;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

const Rate* rate_of(const NodeRow& node, const std::string& name) {
  auto found = std::ranges::find(node.rates, name, &Rate::name);
  return found == node.rates.end() ? nullptr : &*found;
}

double median_of(const std::vector<NodeRow>& nodes, const std::string& name) {
  std::vector<double> values;
  for (const NodeRow& node : nodes)
    if (const Rate* rate = rate_of(node, name)) values.push_back(rate->value);
  return values.size() < 2 ? 0 : median(values);
}

// The names in the order in which the nodes have them.
std::vector<std::string> rate_names(const std::vector<NodeRow>& nodes) {
  std::vector<std::string> names;
  for (const NodeRow& node : nodes)
    for (const Rate& rate : node.rates)
      if (std::ranges::find(names, rate.name) == names.end()) names.push_back(rate.name);
  return names;
}

bool is_slow(const std::vector<NodeRow>& nodes, const Rate& rate) {
  return rate.value < kSlow * median_of(nodes, rate.name);
}

void add(Diagnosis& diagnosis, const std::string& host, const Finding& finding) {
  auto same = [&](const Diagnosis::Shared& shared) {
    return shared.finding.check == finding.check && shared.finding.text == finding.text;
  };
  auto found = std::ranges::find_if(diagnosis.findings, same);
  if (found == diagnosis.findings.end())
    found = diagnosis.findings.insert(found, {.finding = finding});
  if (std::ranges::find(found->hosts, host) == found->hosts.end()) found->hosts.push_back(host);
}

void exclude(Diagnosis& diagnosis, const std::string& host) {
  auto& hosts = diagnosis.exclude;
  if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
}

std::string number(double value) {
  return value >= 1000 ? std::to_string(std::llround(value)) : printed("%.3g", value);
}

void find_slow(Diagnosis& diagnosis) {
  for (const NodeRow& node : diagnosis.nodes)
    for (const Rate& rate : node.rates) {
      if (!is_slow(diagnosis.nodes, rate)) continue;
      bool blamed = rate.blame == Blame::kNode;
      add(diagnosis, node.host,
          {blamed ? Verdict::kWrong : Verdict::kNote, rate.name,
           concat("slow: ", number(rate.value), " ", rate.unit, ", the median of the nodes is ",
                  number(median_of(diagnosis.nodes, rate.name)))});
      if (blamed) exclude(diagnosis, node.host);
    }
}

// value -> the nodes that have it
using Holders = std::map<std::string, std::vector<std::string>>;

std::map<std::string, Holders> facts_of(const std::vector<NodeRow>& nodes) {
  std::map<std::string, Holders> facts;
  for (const NodeRow& node : nodes)
    for (const auto& [fact, value] : node.facts) facts[fact][value].push_back(node.host);
  return facts;
}

// Where two values are held by as many nodes, who is unlike the others is not known: that is said
// of all, so that none is left out.
void find_different(Diagnosis& diagnosis) {
  auto count = [](const auto& held) { return held.second.size(); };
  for (const auto& [fact, held] : facts_of(diagnosis.nodes)) {
    if (held.size() < 2) continue;
    auto most = std::ranges::max_element(held, {}, count);
    bool tie = std::ranges::count(held, most->second.size(), count) > 1;
    std::vector<std::string> all;
    for (const auto& [value, hosts] : held) {
      all.push_back(concat("'", value, "' on ", join(hosts, ",")));
      if (tie || value == most->first) continue;
      for (const std::string& host : hosts)
        add(diagnosis, host,
            {Verdict::kWrong, fact,
             concat("'", value, "', where most nodes have '", most->first, "'")});
    }
    if (!tie) continue;
    for (const NodeRow& node : diagnosis.nodes)
      add(diagnosis, node.host, {Verdict::kWrong, fact, "the nodes differ: " + join(all, ", ")});
  }
}

void find_wrong_clocks(Diagnosis& diagnosis) {
  for (const NodeRow& node : diagnosis.nodes)
    if (std::abs(node.clock_offset) > kClockSeconds)
      add(diagnosis, node.host,
          {Verdict::kWrong, "clock",
           concat(number(std::abs(node.clock_offset)), " s ",
                  node.clock_offset > 0 ? "ahead of" : "behind",
                  " the node of rank 0: start chrony or ntpd there")});
}

const char* word_of(Verdict verdict) {
  if (verdict == Verdict::kFine) return "ok";
  return verdict == Verdict::kNote ? "note" : "WRONG";
}

using Table = std::vector<std::vector<std::string>>;

std::string aligned(const Table& table) {
  std::string out;
  for (const std::string& line : in_columns(table, Align::kLeft)) out += line + '\n';
  return out;
}

Table table_of(const Diagnosis& diagnosis) {
  const auto names = rate_names(diagnosis.nodes);
  Table table = {{"node", "ranks"}};
  for (const std::string& name : names) {
    for (const NodeRow& node : diagnosis.nodes)
      if (const Rate* rate = rate_of(node, name)) {
        table[0].push_back(name + " " + rate->unit);
        break;
      }
  }
  table[0].push_back("clock s");
  for (const NodeRow& node : diagnosis.nodes) {
    auto& row = table.emplace_back(std::vector<std::string>{node.host, std::to_string(node.ranks)});
    for (const std::string& name : names) {
      const Rate* rate = rate_of(node, name);
      row.push_back(!rate ? "-"
                          : number(rate->value) + (is_slow(diagnosis.nodes, *rate) ? " *" : ""));
    }
    row.push_back(number(node.clock_offset));
  }
  return table;
}

}  // namespace

std::string without_host(std::string_view text, std::string_view host) {
  bool named = text.starts_with(host) && text.substr(host.size()).starts_with(": ");
  return std::string(named ? text.substr(host.size() + 2) : text);
}

std::string pack(const RankReport& r) {
  return Json{{"rank", r.rank},
              {"local_rank", r.local_rank},
              {"host", r.host},
              {"findings", list_of(r.findings)},
              {"facts", r.facts},
              {"rates", list_of(r.rates)},
              {"clock_offset", r.clock_offset},
              {"clock_error", r.clock_error}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankReport unpack(const std::string& text) {
  Json json = Json::parse(text);
  RankReport report{.rank = json.at("rank"),
                    .local_rank = json.at("local_rank"),
                    .host = json.at("host"),
                    .facts = json.at("facts"),
                    .clock_offset = json.at("clock_offset"),
                    .clock_error = json.at("clock_error")};
  for (const Json& f : json.at("findings"))
    report.findings.push_back({f.at("verdict"), f.at("check"), f.at("text")});
  for (const Json& r : json.at("rates"))
    report.rates.push_back({r.at("name"), r.at("unit"), r.at("value"), r.at("blame")});
  return report;
}

bool Diagnosis::fine() const {
  return std::ranges::none_of(findings,
                              [](const Shared& s) { return s.finding.verdict == Verdict::kWrong; });
}

Diagnosis diagnose(std::span<const RankReport> reports) {
  Diagnosis diagnosis{.nodes = rows_of(reports)};
  for (const RankReport& report : reports)
    for (const Finding& finding : report.findings) add(diagnosis, report.host, finding);
  find_different(diagnosis);
  find_slow(diagnosis);
  find_wrong_clocks(diagnosis);
  for (const auto& [finding, hosts] : diagnosis.findings)
    // What is wrong everywhere is not cured by other nodes.
    if (finding.verdict == Verdict::kWrong && hosts.size() < diagnosis.nodes.size())
      for (const std::string& host : hosts) exclude(diagnosis, host);
  return diagnosis;
}

std::string show(const Diagnosis& diagnosis) {
  Table lines;
  for (Verdict verdict : {Verdict::kFine, Verdict::kNote, Verdict::kWrong})
    for (const auto& [finding, hosts] : diagnosis.findings) {
      if (finding.verdict != verdict) continue;
      bool all = hosts.size() == diagnosis.nodes.size();
      lines.push_back(
          {word_of(verdict), finding.check, (all ? "" : join(hosts, ",") + ": ") + finding.text});
    }
  std::string out = lines.empty() ? "" : aligned(lines);
  out += "\n" + aligned(table_of(diagnosis));
  bool slow = std::ranges::any_of(diagnosis.nodes, [&](const NodeRow& node) {
    return std::ranges::any_of(node.rates,
                               [&](const Rate& rate) { return is_slow(diagnosis.nodes, rate); });
  });
  if (slow) out += concat("* below ", kSlow, " of the median of the nodes\n");
  if (!diagnosis.exclude.empty())
    out += concat("\nto do without: --exclude=", join(diagnosis.exclude, ","), "\n");
  return out + (diagnosis.fine() ? "\nfine\n" : "\nsomething is wrong\n");
}

std::string show_json(const Diagnosis& diagnosis) {
  Json nodes = Json::array(), findings = Json::array();
  for (const NodeRow& node : diagnosis.nodes) {
    Json rates = Json::object();
    for (const Rate& rate : node.rates)
      rates[rate.name] = {
          {"value", rate.value}, {"unit", rate.unit}, {"slow", is_slow(diagnosis.nodes, rate)}};
    nodes.push_back({{"node", node.host},
                     {"ranks", node.ranks},
                     {"facts", node.facts},
                     {"rates", rates},
                     {"clock_offset", node.clock_offset}});
  }
  for (const auto& [finding, hosts] : diagnosis.findings) {
    Json json = json_of(finding);
    json["nodes"] = hosts;
    findings.push_back(json);
  }
  return Json{{"fine", diagnosis.fine()},
              {"exclude", diagnosis.exclude},
              {"nodes", nodes},
              {"findings", findings}}
             .dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace neox

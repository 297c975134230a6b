#include "jinja/statements.h"

#include <algorithm>
#include <utility>

#include "jinja/blocks.h"

namespace neox::jinja {
namespace {

using Kind = Token::Kind;

// Reads the statements of a template.
class Reader {
 public:
  explicit Reader(const std::vector<Token>& tokens) : in_(tokens) {}

  Block whole() {
    Block all = block({});
    if (!in_.is(Kind::kEnd)) in_.fail("{% " + in_.token().text + " %} ends nothing");
    return all;
  }

 private:
  // Up to a tag of one of these names, behind whose {% the reader stands then.
  Block block(const std::vector<std::string>& ends) {
    constexpr int kDeepest = 200;
    if (++depth_ > kDeepest) in_.fail("blocks stand too deep");
    int begun = in_.token().line;
    Block statements;
    while (!in_.is(Kind::kEnd)) {
      if (in_.is(Kind::kText)) {
        statements.push_back([text = in_.take(Kind::kText, "")](Scope&, GrowingText& out) {
          out += text;
          return Flow::kOn;
        });
        continue;
      }
      int line = in_.token().line;
      if (in_.is(Kind::kPrint)) {
        statements.push_back(at_line(line, print()));
        continue;
      }
      in_.take(Kind::kBlock, "a tag");
      if (std::ranges::find(ends, in_.token().text) != ends.end() || ends_something()) {
        --depth_;
        return statements;
      }
      if (auto statement = tag()) statements.push_back(at_line(line, std::move(statement)));
    }
    if (!ends.empty())
      in_.fail("{% " + ends.back() + " %} is missing, of what began in line " +
               std::to_string(begun));
    --depth_;
    return statements;
  }

  bool ends_something() const {
    return in_.token().text.starts_with("end") || in_.is_name("else") || in_.is_name("elif");
  }

  static Statement at_line(int line, Statement statement) {
    return [line, statement = std::move(statement)](Scope& scope, GrowingText& out) {
      try {
        return statement(scope, out);
      } catch (Failure& failure) {
        if (failure.line == 0) failure.line = line;
        throw;
      }
    };
  }

  void end_of_tag() { in_.take(Kind::kBlockEnd, "the end of the tag, %},"); }

  void end_of_block(const char* name) {
    in_.take_name(name);
    end_of_tag();
  }

  Statement print() {
    in_.take(Kind::kPrint, "");
    Expression value = in_.values();
    in_.take(Kind::kPrintEnd, "the end of the tag, }},");
    return [value](Scope& scope, GrowingText& out) {
      out += text_of(value(scope));
      return Flow::kOn;
    };
  }

  // None for what only parts the text.
  Statement tag() {
    if (in_.skip_name("if")) return condition();
    if (in_.skip_name("for")) return loop();
    if (in_.skip_name("set")) return set();
    if (in_.skip_name("macro")) return macro();
    if (in_.skip_name("call")) return call();
    if (in_.skip_name("with")) return with();
    if (in_.skip_name("filter")) return filtered();
    if (in_.skip_name("generation")) return generation();
    for (auto [name, flow] : {std::pair("break", Flow::kBreak), {"continue", Flow::kContinue}})
      if (in_.skip_name(name)) {
        end_of_tag();
        return [flow = flow](Scope&, GrowingText&) { return flow; };
      }
    in_.fail("{% " + in_.token().text + " %} is not known");
  }

  Statement condition() {
    std::vector<std::pair<Expression, Block>> cases;
    Block otherwise;
    do {
      Expression when = in_.values();
      end_of_tag();
      cases.emplace_back(std::move(when), block({"elif", "else", "endif"}));
    } while (in_.skip_name("elif"));
    if (in_.skip_name("else")) {
      end_of_tag();
      otherwise = block({"endif"});
    }
    end_of_block("endif");
    return [cases = std::move(cases), otherwise = std::move(otherwise)](Scope& scope,
                                                                        GrowingText& out) {
      for (const auto& [when, then] : cases)
        if (truth(when(scope))) return run(then, scope, out);
      return run(otherwise, scope, out);
    };
  }

  Targets targets() {
    bool brackets = in_.skip_sign("(");
    Targets names;
    do names.push_back(in_.take(Kind::kName, "a name"));
    while (in_.skip_sign(","));
    if (brackets) in_.take_sign(")");
    return names;
  }

  Statement loop() {
    Loop loop{.targets = targets()};
    in_.take_name("in");
    loop.items = in_.values(Parser::Condition::kNone);
    if (in_.skip_name("if")) loop.condition = in_.expression();
    if (in_.is_name("recursive")) in_.fail("loops that are recursive are not known");
    end_of_tag();
    loop.body = block({"else", "endfor"});
    if (in_.skip_name("else")) {
      end_of_tag();
      loop.otherwise = block({"endfor"});
    }
    end_of_block("endfor");
    return loop;
  }

  Statement set() {
    Targets names = targets();
    if (in_.skip_sign(".")) {
      std::string member = in_.take(Kind::kName, "a name");
      in_.take_sign("=");
      return set_member(names.front(), member);
    }
    if (!in_.skip_sign("=")) return set_block(names);
    Expression value = in_.values();
    end_of_tag();
    return [=](Scope& scope, GrowingText&) {
      assign(scope, names, value(scope));
      return Flow::kOn;
    };
  }

  Statement set_member(const std::string& name, const std::string& member) {
    Expression value = in_.values();
    end_of_tag();
    return [=](Scope& scope, GrowingText&) {
      const Value* space = scope.find(name);
      if (!space || !space->map() || space->map()->is != Map::Is::kNamespace)
        throw Failure("'" + name + "' is no namespace: only of one can a member be set");
      space->map()->set(member, value(scope));
      return Flow::kOn;
    };
  }

  // The text up to {% endNAME %}, as kText in the filters of the tag.
  Expression text_until(const char* end, const Expression& filters) {
    end_of_tag();
    Block body = block({end});
    end_of_block(end);
    return [=](Scope& scope) {
      auto inner = inside(scope);
      GrowingText text;
      run(body, *inner, text);
      inner->names[kText] = text.take();
      return filters(*inner);
    };
  }

  Statement set_block(const Targets& names) {
    Expression text = text_until("endset", in_.filters(kGiven));
    return [=](Scope& scope, GrowingText&) {
      assign(scope, names, text(scope));
      return Flow::kOn;
    };
  }

  // {% filter upper | trim %}: as if a value stood before the first.
  Statement filtered() {
    Expression text = text_until("endfilter", in_.filters(in_.filter(kGiven)));
    return [=](Scope& scope, GrowingText& out) {
      out += text_of(text(scope));
      return Flow::kOn;
    };
  }

  Statement with() {
    std::vector<std::pair<std::string, Expression>> names;
    while (!in_.is(Kind::kBlockEnd)) {
      if (!names.empty()) in_.take_sign(",");
      std::string name = in_.take(Kind::kName, "a name");
      in_.take_sign("=");
      names.emplace_back(name, in_.expression());
    }
    end_of_tag();
    Block body = block({"endwith"});
    end_of_block("endwith");
    return [=](Scope& scope, GrowingText& out) {
      auto inner = inside(scope);
      for (const auto& [name, value] : names) inner->names[name] = value(scope);
      return run(body, *inner, out);
    };
  }

  // What transformers marks as written by the model, for its own masks.
  Statement generation() {
    end_of_tag();
    Block body = block({"endgeneration"});
    end_of_block("endgeneration");
    return [=](Scope& scope, GrowingText& out) { return run(body, scope, out); };
  }

  std::vector<std::pair<std::string, Expression>> parameters() {
    std::vector<std::pair<std::string, Expression>> all;
    in_.take_sign("(");
    while (!in_.skip_sign(")")) {
      if (!all.empty()) in_.take_sign(",");
      std::string name = in_.take(Kind::kName, "a name");
      all.emplace_back(name, in_.skip_sign("=") ? in_.expression() : Expression());
    }
    return all;
  }

  Statement macro() {
    auto macro = std::make_shared<Macro>();
    macro->name = in_.take(Kind::kName, "a name");
    macro->parameters = parameters();
    end_of_tag();
    macro->body = block({"endmacro"});
    end_of_block("endmacro");
    return [macro](Scope& scope, GrowingText&) {
      scope.names[macro->name] = callable(macro, scope);
      return Flow::kOn;
    };
  }

  // {% call(a) name(b) %}: the block is the macro `caller` of the macro that is called.
  Statement call() {
    auto block_of = std::make_shared<Macro>();
    block_of->name = "caller";
    if (in_.is_sign("(")) block_of->parameters = parameters();
    std::string name = in_.take(Kind::kName, "the name of a macro");
    CallArguments given = in_.arguments();
    end_of_tag();
    block_of->body = block({"endcall"});
    end_of_block("endcall");
    return [=](Scope& scope, GrowingText& out) {
      const Value* macro = scope.find(name);
      if (!macro || !macro->function()) throw Failure("there is no macro " + name);
      Arguments all = given.of(scope);
      auto inner = inside(scope);
      all.named.emplace_back("caller", callable(block_of, *inner));
      out += text_of((*macro->function())(all));
      return Flow::kOn;
    };
  }

  static constexpr const char* kText = "{% the text of a block %}";  // no name of a template
  const Expression kGiven = [](Scope& scope) { return *scope.find(kText); };
  Parser in_;
  int depth_ = 0;
};

}  // namespace

Block statements_of(const std::vector<Token>& tokens) { return Reader(tokens).whole(); }

}  // namespace neox::jinja

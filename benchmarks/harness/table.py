"""Markdown tables of the lines that benchmarks print (harness/lines.py)."""
from harness.lines import higher_is_better, is_ours, spread

UNITS = {"FLOP/s": ("FLOP/s", 1000), "bytes/s": ("B/s", 1000), "bytes": ("B", 1000)}


def number(value):
    """Three significant digits or all of them: 0.0123, 1.23, 12.3, 1,234."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.{1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 4}f}"


def human(value, unit):
    """12.3 GFLOP/s"""
    name, step = UNITS.get(unit, (None, None))
    if name is None:
        return f"{number(value)} {unit}"
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(value) < step or prefix == "P":
            return f"{value:.3g} {prefix}{name}"
        value /= step


def with_spread(values, show):
    middle, least, most = spread(values)
    return show(middle) if len(values) == 1 else f"{show(middle)} ({show(least)}..{show(most)})"


def figures(lines):
    """The lines of the comparison: {(case, metric): {who: [line of each round]}}, in the order they came."""
    found = {}
    for line in lines:
        if "value" in line and line.get("phase") != "sweep":
            sides = found.setdefault((line["case"], line.get("metric", "")), {})
            sides.setdefault(line["who"], []).append(line)
    return found


def values(lines):
    return [line["value"] for line in lines]


def best(sides, whose):
    """The name with the best median of those for which whose(line) holds; None where there is none."""
    some = {who: spread(values(ls))[0] for who, ls in sides.items() if whose(ls[0])}
    if not some:
        return None
    up = higher_is_better(next(iter(sides.values()))[0])
    return (max if up else min)(some, key=some.get)


def ratios(mine, other):
    """How many times as good as the other, for each round that both have; of the medians where they have none."""
    by_round = {line.get("round"): line["value"] for line in other}
    pairs = [(m["value"], by_round[m.get("round")]) for m in mine if m.get("round") in by_round]
    pairs = pairs or [(spread(values(mine))[0], spread(values(other))[0])]
    up = higher_is_better(mine[0])
    return [a / b if up else b / a for a, b in pairs if a and b]


def samples(lines):
    """Of a step, as lines say it: 16, or those of all."""
    return ", ".join(map(str, sorted({line["micro"] for line in lines if "micro" in line}, reverse=True)))


class Ceilings:
    """What the machine gave at most in this run."""

    def __init__(self, lines, published=None):
        self.published, self.matmuls = published, {}
        for (case, metric), sides in figures(lines).items():
            for line in (line for ls in sides.values() for line in ls if metric == "FLOP/s"):
                key = line.get("threads", 0), line["dtype"], case
                self.matmuls.setdefault(key, []).append(line["value"])

    def matmul(self, threads, dtype):
        """The best shape's median rate; a run in bf16 may compute in fp32 where that is faster. 0: not measured."""
        fits = ("fp32",) if dtype == "fp32" else ("fp32", "bf16")
        rates = [spread(v)[0] for (t, d, _), v in self.matmuls.items() if t == threads and d in fits]
        return max(rates, default=0)


def row(who, lines, reference, ceilings):
    """The cells of one side of one case; reference: the best of ours, for the peers."""
    one = lines[0]
    rate = spread(values(lines))[0] * one["flops"] if "flops" in one else 0
    matmul = ceilings.matmul(one.get("threads", 0), one.get("dtype", "fp32")) if rate else 0
    memory = max((line.get("peak_bytes", 0) for line in lines), default=0)
    unit = one.get("metric", "")
    plain = "" if unit in UNITS else unit
    against = ratios(reference, lines) if reference and not is_ours(one) else []
    better = with_spread(against, lambda v: f"{v:.2f}") if against else ""
    if better and samples(reference) != samples(lines):
        better += f", with {samples(reference)} against {samples(lines)} samples a step"
    return {
        "case": one["case"], "who": who, "unit": plain,
        "median (least..most)": with_spread(values(lines), lambda v: number(v) if plain else human(v, unit)),
        "per CPU second": with_spread([line["per_cpu_second"] for line in lines], number) if "per_cpu_second" in one else "",
        "model FLOP/s": human(rate, "FLOP/s") if rate else "",
        "of matmul": f"{rate / matmul:.0%}" if matmul else "",
        "of published peak": f"{rate / ceilings.published:.1%}" if rate and ceilings.published else "",
        "of ceiling": f"{spread([l['of ceiling'] for l in lines])[0]:.0%}" if "of ceiling" in one else "",
        "peak memory": human(memory, "bytes") if memory else "",
        "samples a step": samples(lines),
        "ours is better by": better,
        "note": next((line["note"] for line in lines if "note" in line), "")}


def comparison(lines, ceilings):
    """Rows of all cases: ours first, then the peers, the best first."""
    rows = []
    for sides in figures(lines).values():
        mine = best(sides, is_ours)
        up = higher_is_better(next(iter(sides.values()))[0])
        def order(who):
            middle = spread(values(sides[who]))[0]
            return not is_ours(sides[who][0]), -middle if up else middle
        rows += [row(who, sides[who], mine and sides[mine], ceilings) for who in sorted(sides, key=order)]
    return rows


def tried(lines):
    """Rows of the peers' settings, the best of each case first; what was tried again is one row."""
    sweep = [line for line in lines if line.get("phase") == "sweep"]
    sweep.sort(key=lambda line: "value" in line)
    rows = list({(line["case"], line["who"], line.get("metric")): line for line in sweep}.values())
    cases = list(dict.fromkeys(line["case"] for line in rows))
    rows.sort(key=lambda line: (cases.index(line["case"]), -line.get("value", 0)))
    return [{"case": line["case"], "setting": line["who"], "samples a step": samples([line]),
             line.get("metric") or "value": number(line["value"]) if "value" in line else line.get("error", ""),
             "peak memory": human(line["peak_bytes"], "bytes") if line.get("peak_bytes") else ""}
            for line in rows]


def markdown(rows):
    """A table without the columns that are empty everywhere; a case is named once."""
    columns = [c for c in dict.fromkeys(key for r in rows for key in r) if any(r.get(c) for r in rows)]
    if not columns:
        return ""
    text = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    last = None
    for r in rows:
        cells = [str(r.get(c) or "").replace("|", "/").replace("\n", " ") for c in columns]
        if columns[0] == "case" and r.get("case") == last:
            cells[0] = ""
        last = r.get("case")
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def failures(lines):
    return [{"case": line["case"], "who": line["who"], "error": line["error"]} for line in lines
            if "error" in line and line.get("phase") != "sweep"]


def describe(facts):
    shown = {key: value for key, value in facts.items() if value not in ("", None)}
    return "\n".join(f"- {key}: {value}" for key, value in shown.items()) + "\n"


def report(results):
    """All of a run: {"facts": {...}, "published_peak": FLOP/s or None, "lines": [...]} -> Markdown."""
    lines = results["lines"]
    ceilings = Ceilings(lines, results.get("published_peak"))
    text = ["# Benchmarks", "", describe(results["facts"])]
    for suite in dict.fromkeys(line.get("suite", "") for line in lines):
        mine = [line for line in lines if line.get("suite", "") == suite]
        text += [f"## {suite}", ""]
        for title, rows in (("", comparison(mine, ceilings)), ("Settings of the peers that were tried", tried(mine)),
                            ("What failed", failures(mine))):
            if rows:
                text += [f"{title}\n"] if title else []
                text.append(markdown(rows))
    return "\n".join(text)

"""A bar chart of a suite as SVG: for each case a bar of each side, as long as its share of the best, with its spread."""
import html

from harness.lines import higher_is_better, is_ours, spread
from harness.table import figures, human, values

WIDTH, BAR, GAP, LEFT, RIGHT = 1000, 16, 14, 430, 170
OURS, PEER, INK = "#1f6feb", "#9aa4af", "#1b1f24"


def text(x, y, what, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
            f'fill="{INK}">{html.escape(what)}</text>')


def bar(y, who, lines, longest):
    """One side: its name, its bar, a line from the least to the greatest round, its median."""
    middle, least, most = spread(values(lines))
    room = (WIDTH - LEFT - RIGHT) / longest if longest else 0
    name = who if len(who) <= 72 else who[:71] + "…"
    middle_y = y + BAR / 2
    return [text(LEFT - 8, y + BAR - 4, name, "end"),
            f'<rect x="{LEFT}" y="{y}" width="{middle * room:.1f}" height="{BAR - 3}" '
            f'fill="{OURS if is_ours(lines[0]) else PEER}"/>',
            f'<line x1="{LEFT + least * room:.1f}" x2="{LEFT + most * room:.1f}" y1="{middle_y - 1:.1f}" '
            f'y2="{middle_y - 1:.1f}" stroke="{INK}"/>',
            text(LEFT + most * room + 6, y + BAR - 4, human(middle, lines[0].get("metric", "")))]


def svg(lines, title):
    """The chart of these lines; "" where they compare nothing."""
    parts, y = [], 44
    for (case, metric), sides in figures(lines).items():
        up = higher_is_better(next(iter(sides.values()))[0])
        parts.append(text(12, y, f"{case}: {metric}{'' if up else ' (less is better)'}", weight="bold"))
        y += 8
        longest = max(max(values(ls)) for ls in sides.values())
        for who, ls in sorted(sides.items(), key=lambda side: not is_ours(side[1][0])):
            parts += bar(y, who, ls, longest)
            y += BAR
        y += GAP + 8
    if not parts:
        return ""
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" '
            f'font-family="sans-serif" font-size="11">')
    frame = f'<rect width="{WIDTH}" height="{y}" fill="white"/>'
    return "\n".join([head, frame, text(12, 20, title, weight="bold"), *parts, "</svg>"]) + "\n"

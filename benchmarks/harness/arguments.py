"""Options that suites have alike which run a program of ours beside peers in Python, and where builds lie."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build_of(device):
    return ROOT / "build" / {"cpu": "release", "cuda": "cuda"}[device]


def add_program(parser, program):
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--budget", type=float, default=1e6, help="seconds for all of it")
    parser.add_argument("--program", help=f"{program}; default: that of the build of this device")


def add_to(parser, program, limit, limited):
    add_program(parser, program)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=limit, help=limited)
    parser.add_argument("--python", default=sys.executable, help="of the peers")
    parser.add_argument("--versions", default="", help="of its packages")
    parser.add_argument("--cache", help="directory of compiled code; default: one that ends with the run")
    parser.add_argument("--no-peers", action="store_true")


def program_of(a, place, how):
    """The path of the program; ends the process where there is none. place: in a build; how: to build it."""
    program = a.program or str(build_of(a.device) / place)
    if not os.path.exists(program):
        sys.exit(f"{program} is missing: {how}, or name another with --program")
    return program

"""Instructions of our own code on the path of a batch, counted by valgrind and compared with what is recorded.

  python3 dev/lib/instructions.py            compare, as dev/test does
  python3 dev/lib/instructions.py --record   write benches/link/instructions.json anew

Counts do not depend on how busy the machine is. What depends on the processor, the checksum, is counted apart and taken
off (see benches/link/count.rs). Compilers differ by a few percent: the recorded one stands beside the figures.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import musl  # noqa: E402
from common import REPO, Fault, say  # noqa: E402

BASELINE = REPO / "benches/link/instructions.json"
SIZES = ["1k", "16k", "1m"]
TOLERANCE = 0.05
INSTALL = "apt-get install valgrind"


def build():
    """As the static binary is built: what is counted is what is released."""
    return musl.build("towpath-link", "towpath-count")[0]


def collected(binary, mode, size):
    """Instructions of one run, and how many batches went through it."""
    done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", binary, mode, size],
                          capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        raise Fault(f"valgrind towpath-count {mode} {size}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return int(found.group(1)), int(done.stdout.split()[0])


def count(binary):
    """Instructions a batch, by size."""
    figures = {}
    for size in SIZES:
        full, batches = collected(binary, "full", size)
        base, _ = collected(binary, "base", size)
        figures[size] = round((full - base) / batches)
    return figures


def compiler():
    said = subprocess.run(["rustc", "--version"], stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
    return said.split()[1]


def check():
    if shutil.which("valgrind") is None:
        raise Fault(f"valgrind is missing, without which instructions cannot be counted: {INSTALL}")
    recorded = json.loads(BASELINE.read_text())
    figures = count(build())
    faults = []
    for size, now in figures.items():
        before = recorded["instructions_per_batch"][size]
        change = now / before - 1
        say(f"{size:>4}: {now} instructions a batch, recorded {before} ({change:+.1%})")
        if change > TOLERANCE:
            faults.append(f"{size}: {now} instructions a batch instead of {before} ({change:+.1%})")
        elif change < -TOLERANCE:
            say("      better than recorded: record it, or the gain may be lost unnoticed")
    if faults:
        using = compiler()
        other = "" if using == recorded["rustc"] else f" (recorded with rustc {recorded['rustc']}, this is {using})"
        raise Fault("; ".join(faults) + other + ". If that is meant: python3 dev/lib/instructions.py --record")


def record():
    figures = count(build())
    BASELINE.write_text(json.dumps({"rustc": compiler(), "instructions_per_batch": figures}, indent=2) + "\n")
    say(f"recorded {figures}")


if __name__ == "__main__":
    try:
        record() if sys.argv[1:] == ["--record"] else check()
    except (Fault, OSError, subprocess.SubprocessError) as fault:
        say(f"instructions: {fault}")
        sys.exit(1)

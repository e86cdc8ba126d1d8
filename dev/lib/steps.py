"""The steps of dev/test, one after the other; a failed one does not keep the others from running."""

import json
import os
import pathlib
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import documents  # noqa: E402
import instructions  # noqa: E402
import licences  # noqa: E402
import real  # noqa: E402
import selftest  # noqa: E402
from common import REPO, Fault, cache, say  # noqa: E402

MINUTE = 60


class Failed(Exception):
    pass


def command(*words, deadline_s=30 * MINUTE, **environment):
    """Runs a program with its output passed on; fails on its exit code and on the deadline."""
    try:
        done = subprocess.run(words, cwd=REPO, env={**os.environ, **environment}, timeout=deadline_s,
                              stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {deadline_s} s") from None
    if done.returncode != 0:
        raise Failed(f"exit code {done.returncode}")


def cargo_json(*words):
    done = subprocess.run(["cargo", *words], cwd=REPO, stdout=subprocess.PIPE, text=True, timeout=10 * MINUTE,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failed(f"cargo {words[0]}: exit code {done.returncode}")
    return done.stdout


def static_binary():
    """Builds the static `towpath` as it is handed out, and returns its path. The tests below run it, not another one."""
    done = subprocess.run([REPO / "dev/build-static"], cwd=REPO, stdout=subprocess.PIPE, text=True,
                          timeout=40 * MINUTE, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failed(f"dev/build-static: exit code {done.returncode}")
    return done.stdout.strip().splitlines()[-1]


def simulation():
    """Schedules of the fault simulation, and the faults that are planted in the mirror to try the oracle."""
    command("cargo", "test", "--locked", "--profile", "simulation", "--test", "protocol", "--", "--ignored", "--exact",
            "--nocapture", "--test-threads=1", "sim::schedules_lose_and_double_nothing", "sim::planted_faults_are_seen",
            TOWPATH_SIM_SCHEDULES="2000")


def main():
    quick, long = sys.argv[1] == "quick", sys.argv[1] == "long"
    if os.environ.get("CI") == "true" and "CARGO_TARGET_DIR" not in os.environ:
        os.environ["CARGO_TARGET_DIR"] = str(cache() / "target")
    os.environ.setdefault("CARGO_TERM_COLOR", "never")
    binary = []
    metadata = ("metadata", "--format-version", "1", "--locked", "--all-features")
    steps = [
        ("format", lambda: command("cargo", "fmt", "--all", "--check")),
        ("clippy", lambda: command("cargo", "clippy", "--locked", "--workspace", "--all-targets", "--all-features",
                                   "--", "-D", "warnings")),
        ("tests", lambda: command("cargo", "test", "--locked", "--workspace", "--all-features")),
        ("Rust documentation", lambda: command("cargo", "doc", "--locked", "--workspace", "--no-deps",
                                               "--document-private-items", RUSTDOCFLAGS="-D warnings")),
        ("licences and banned crates", lambda: licences.check(json.loads(cargo_json(*metadata)))),
        ("links and file names in documents", documents.check),
        ("the development tools themselves", selftest.check),
    ]
    if not quick:
        steps += [
            ("fault simulation", simulation),
            ("static release build", lambda: binary.append(static_binary())),
            # Behind it, since it takes the same dependencies.
            ("instructions on the path of a batch", instructions.check),
            ("real Kafka", lambda: real.check(binary[0], long) if binary else fail("the static build failed")),
        ]
    results = []
    for name, step in steps:
        say(f"\n=== {name}")
        began = time.monotonic()
        try:
            step()
            fault = None
        except (Failed, Fault, AssertionError) as caught:
            fault = str(caught) or "an assertion does not hold"
            say(f"--- {name} failed: {fault}")
        results.append((name, fault, time.monotonic() - began))
    sys.stderr.flush()
    print("\nSummary")
    for name, fault, seconds in results:
        print(f"  {'ok    ' if fault is None else 'FAILED'} {seconds:7.1f} s  {name}{': ' + fault if fault else ''}")
    failed = sum(1 for _, fault, _ in results if fault)
    skipped = ""
    if quick:
        print("  LEFT OUT: everything against real Kafka, the fault simulation, the static build and the count of instructions (--quick)."
              " Run dev/test without it before handing in.")
        skipped = ", 3 skipped"
    elif not long:
        print(f"  LEFT OUT: {len(real.LONG)} tests against real Kafka that take an hour more (--long).")
    print(f"\n{len(results) - failed} passed, {failed} failed{skipped}")
    return 1 if failed else 0


def fail(text):
    raise Failed(text)


if __name__ == "__main__":
    sys.exit(main())

"""The steps of dev/test, one after the other; a failed one does not keep the others from running."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import documents  # noqa: E402
import instructions  # noqa: E402
import licences  # noqa: E402
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


# These compare contents and bear company; what is not here measures pauses, and runs alone.
IN_COMPANY = ("real::copies::", "real::open::", "real::losses::", "real::transactions::", "differential::")

# Ten minutes of log surgery and elections. The same cases run on machines and embedded clusters in the tests above, and
# three of them (records lost, another writer, a remote topic that is gone) on real Kafka each time.
LONG = (
    "real_retention_that_overtakes_is_a_loss_and_compaction_is_none",
    "real_an_unclean_election_at_the_source_is_named_with_its_exact_range",
    "real_a_truncated_source_is_named_and_goes_on_behind_the_common_history",
    "real_a_source_topic_created_anew_is_named_while_the_mirror_runs",
    "real_a_source_topic_created_anew_is_named_while_the_mirror_runs_without_topic_ids",
    "real_a_source_topic_created_anew_is_named_at_the_next_start",
    "real_a_source_topic_created_anew_is_named_at_the_next_start_without_topic_ids",
    "real_a_truncated_target_gets_again_what_it_lost",
)


def real_kafka(binary, long):
    """The ignored tests whose names have a part that starts with `real_`: some two at a time, the rest one by one."""
    words = ("cargo", "test", "--locked", "--test", "protocol", "--", "--ignored")
    listed = cargo_json(*words[1:], "real_", "--list")
    names = re.findall(r"^(\S*\breal_\w+): test$", listed, re.M)
    unknown = [name for name in LONG if not any(found.endswith("::" + name) for found in names)]
    if unknown:
        raise Failed(f"there is no such test any more: {', '.join(unknown)}")
    if not long:
        names = [name for name in names if name.rsplit("::", 1)[-1] not in LONG]
    together = [name for name in names if name.startswith(IN_COMPANY)]
    alone = [name for name in names if name not in together]
    if not together or not alone:
        raise Failed("there is no test against real Kafka")
    faults = []
    try:
        for tests, threads in ((together, 2), (alone, 1)):
            try:
                command(*words, "--exact", *tests, f"--test-threads={threads}", deadline_s=60 * MINUTE,
                        TOWPATH_BIN=binary, TOWPATH_REAL_KAFKA="1")
            except Failed as fault:
                faults.append(str(fault))
    finally:
        subprocess.run([REPO / "dev/kafka", "stop", "--orphans"], timeout=120, check=False)
    if faults:
        raise Failed("; ".join(faults))


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
            ("real Kafka", lambda: real_kafka(binary[0], long) if binary else fail("the static build failed")),
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
        print(f"  LEFT OUT: {len(LONG)} tests against real Kafka that take ten minutes more (--long).")
    print(f"\n{len(results) - failed} passed, {failed} failed{skipped}")
    return 1 if failed else 0


def fail(text):
    raise Failed(text)


if __name__ == "__main__":
    sys.exit(main())

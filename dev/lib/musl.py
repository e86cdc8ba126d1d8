"""Builds programs of this workspace as static binaries for musl, the way they are released.

The standard library for musl comes from rustup, or, where rustup cannot have it, is built from Debian's rust-web-src with
Debian's rustc-web. C code in crates is compiled by musl-gcc. The build directory is cargo's, or in the cache outside the
clone; all programs share it, so that dependencies are compiled once.
"""

import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys

from common import REPO, Fault, cache, say

MINUTE = 60
DEBIAN_CARGO, DEBIAN_RUSTC = pathlib.Path("/usr/bin/cargo"), pathlib.Path("/usr/bin/rustc")
DEBIAN_STD = pathlib.Path("/usr/lib/rustlib/src/rust/library")
REMEDY = ("neither way to a musl standard library is open: `rustup target add {target}` needs rustup and its server;"
          " building it needs Debian's rustc-web, cargo-web and rust-web-src (apt-get install)")


def from_rustup(target):
    """Whether rustup has, or now has, the standard library of `target`."""
    if shutil.which("rustup") is None:
        return False
    try:
        had = subprocess.run(["rustup", "target", "list", "--installed"], stdout=subprocess.PIPE, text=True,
                             timeout=MINUTE, stdin=subprocess.DEVNULL, cwd=REPO)
        if target in had.stdout.split():
            return True
        say(f"asking rustup for {target}")
        return subprocess.run(["rustup", "target", "add", target], timeout=5 * MINUTE, stdin=subprocess.DEVNULL,
                              stdout=sys.stderr, cwd=REPO).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def from_source():
    return all(path.exists() for path in (DEBIAN_CARGO, DEBIAN_RUSTC, DEBIAN_STD))


def standard_library(target, wanted=None):
    """Where the standard library comes from: `rustup` or `source`."""
    if shutil.which("musl-gcc") is None:
        raise Fault("missing: musl-gcc, the C compiler for musl (Debian: musl-tools); as root, dev/test installs it")
    if wanted in (None, "rustup") and from_rustup(target):
        return "rustup"
    if wanted in (None, "source") and from_source():
        return "source"
    raise Fault(REMEDY.format(target=target))


def build(package, binary, wanted=None):
    """The path of a program, and where its standard library came from."""
    target = f"{platform.machine()}-unknown-linux-musl"
    std = standard_library(target, wanted)
    words = ["build", "--release", "--locked", "-p", package, "--bin", binary, "--target", target,
             "--message-format=json-render-diagnostics"]
    # Settings of somebody's shell must not decide what is released.
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith("CARGO_PROFILE_RELEASE_") and key != "RUSTFLAGS"}
    environment.setdefault("CARGO_TARGET_DIR", str(cache() / "target"))
    triple = target.replace("-", "_")
    environment.setdefault(f"CC_{triple}", "musl-gcc")
    if std == "rustup":
        program = "cargo"
    else:
        program = str(DEBIAN_CARGO)
        words += ["-Zbuild-std=std,panic_abort"]
        # Debian ships musl's start files and library in musl-dev; its compiler knows no copies of its own.
        environment |= {"RUSTC": str(DEBIAN_RUSTC), "RUSTC_BOOTSTRAP": "1",
                        f"CARGO_TARGET_{triple.upper()}_LINKER": "musl-gcc",
                        f"CARGO_TARGET_{triple.upper()}_RUSTFLAGS":
                            "-C target-feature=+crt-static -C link-self-contained=no -C relocation-model=static"
                            " -C link-arg=-lgcc"}
        environment["CARGO_TARGET_DIR"] += "/std-from-source"
        environment[f"CARGO_TARGET_{triple.upper()}_RUSTFLAGS"] += f" -L native={unwinder(environment)}"
    try:
        done = subprocess.run([program, *words], cwd=REPO, env=environment, stdout=subprocess.PIPE, text=True,
                              timeout=30 * MINUTE, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Fault("the static build was not done after 30 minutes") from None
    if done.returncode != 0:
        raise Fault(f"the static build failed: {program}: exit code {done.returncode}")
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == binary:
            return pathlib.Path(message["executable"]), std
    raise Fault("cargo names no executable")


def unwinder(environment):
    """A folder where the linker finds gcc's unwinder under the name that std asks for."""
    folder = pathlib.Path(environment["CARGO_TARGET_DIR"]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    # A text file in the place of an archive is read as a linker script.
    (folder / "libunwind.a").write_text("INPUT(-lgcc_eh)\n")
    return folder

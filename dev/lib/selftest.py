"""The checkers are checked: each must find a planted fault, else what it says about Towpath means nothing."""

import pathlib
import py_compile
import subprocess
import tempfile

import batches
import documents
import licences
import real
from common import DEV, REPO, Fault


def check():
    for test in (programs_compile, crc, licence_expressions, segment_differences, committed_batches, document_faults,
                 tests_that_fail_or_hang):
        test()
        print(f"ok  {test.__name__}")


def programs_compile():
    with tempfile.TemporaryDirectory() as scratch:
        for path in [*DEV.glob("lib/*.py"), *(path for path in DEV.iterdir() if path.is_file())]:
            if path.suffix == ".py" or path.read_bytes().startswith(b"#!/usr/bin/env python3"):
                py_compile.compile(str(path), cfile=f"{scratch}/{path.name}c", doraise=True)


def crc():
    assert batches.crc32c(b"123456789") == 0xE3069283, "the published check value"
    assert batches.crc32c(b"") == 0, "nothing"


def licence_expressions():
    good = ["MIT", "MIT OR Apache-2.0", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception", "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT"]
    bad = ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0 WITH Other-exception", "(MIT OR ISC) AND OpenSSL", "Unlicense"]
    for text in good:
        assert licences.permitted(text), text
    for text in bad:
        assert not licences.permitted(text), text
    package = {"name": "ring", "version": "1", "license": "MIT", "source": "registry", "links": None}
    for change in ({}, {"name": "a", "license": None}, {"name": "a", "license": "GPL-3.0"},
                   {"name": "a", "links": "ssl"}):
        try:
            licences.check({"packages": [{**package, **change}]})
        except Fault:
            continue
        raise AssertionError(f"not refused: {package | change}")


def plain(*values):
    return batches.encode([(1000, b"key", value, [(b"h", None)]) for value in values], 1000)


def segments(source, target, *options):
    """The exit code of dev/segments over two topics made of these batches."""
    with tempfile.TemporaryDirectory() as scratch:
        for side, content in (("source", source), ("target", target)):
            folder = pathlib.Path(scratch, side, "t-0")
            folder.mkdir(parents=True)
            (folder / "00000000000000000000.log").write_bytes(b"".join(content))
        return subprocess.run([DEV / "segments", f"{scratch}/source", "t", f"{scratch}/target", "t", *options],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60).returncode


def segment_differences():
    one, two = plain(b"one", b"two"), plain(b"three")
    flipped = bytearray(one)
    flipped[-3] ^= 1
    renumbered = bytearray(one)
    renumbered[0:8] = (77).to_bytes(8, "big")
    later = batches.encode([(1001, b"key", b"three", [(b"h", None)])], 1001)
    assert segments([one, two], [one, two]) == 0
    assert segments([one, two], [bytes(renumbered), two]) == 0, "offsets may differ"
    for what, target in {"a payload byte": [bytes(flipped), two], "a batch less": [one], "a batch more": [one, two, two],
                         "another order": [two, one], "another timestamp": [one, later],
                         "joined batches": [plain(b"one", b"two", b"three")], "nothing": []}.items():
        assert segments([one, two], target) == 1, f"{what} is not found"
    assert segments([one, two], [one], "--at-most-target") == 0
    assert segments([one, two], [two], "--at-most-target") == 1
    assert segments([], []) == 1, "nothing compared is no success"


def transactional(batch, producer, control=None):
    changed = bytearray(batch)
    changed[22] |= 0x10 | (0x20 if control is not None else 0)
    changed[43:51] = producer.to_bytes(8, "big")
    return bytes(changed)


def marker(producer, commit):
    key = (0).to_bytes(2, "big") + int(commit).to_bytes(2, "big")
    return transactional(batches.encode([(1000, key, b"\0\0\0\0\0\0", [])], 1000), producer, commit)


def committed_batches():
    kept, dropped, other = plain(b"kept"), plain(b"dropped"), plain(b"plain")
    source = [transactional(kept, 1), transactional(dropped, 2), other, marker(2, False), marker(1, True)]
    assert segments(source, [kept, other], "--committed") == 0
    assert segments(source, [kept, dropped, other], "--committed") == 1
    assert segments(source, [kept, dropped, other]) == 0, "without --committed only control batches are skipped"
    numbered = []
    for offset, batch in enumerate([*source, transactional(kept, 3), other]):
        numbered.append(offset.to_bytes(8, "big") + batch[8:])
    assert segments(numbered, [kept, other], "--committed") == 0, "an open transaction holds back what follows"


def document_faults():
    def faults(text):
        return len(list(documents.faults_in(REPO / "README.md", text)))

    good = ["[a](Cargo.toml) `dev/kafka start` `src/lib.rs` [b](https://example.com/x) `dev/<name>`",
            "# One Head\n[c](#one-head)", "```\n[a](no-such-file.md)\n```"]
    bad = ["[a](no-such-file.md)", "[a](#no-such-heading)", "see `src/no_such_file.rs`"]
    for text in good:
        assert faults(text) == 0, text
    for text in bad:
        assert faults(text) == 1, text


def tests_that_fail_or_hang():
    """What runs the tests against real Kafka tells one that passed from one that failed, hung, or did not run."""
    with tempfile.TemporaryDirectory() as scratch:
        program = pathlib.Path(scratch, "program")
        program.write_text('#!/bin/sh\ncase "$3" in\n'
                           'good) echo "test result: ok. 1 passed; 0 failed" ;;\n'
                           'bad) echo "test result: FAILED"; exit 101 ;;\n'
                           'none) echo "test result: ok. 0 passed; 0 failed" ;;\n'
                           'hung) sleep 60 & wait ;;\nesac\n')
        program.chmod(0o755)
        deadline, real.TEST_DEADLINE_S = real.TEST_DEADLINE_S, 1
        try:
            faults = {name: real.run_one(program, "", name)[0] for name in ("good", "bad", "none", "hung")}
        finally:
            real.TEST_DEADLINE_S = deadline
    assert faults == {"good": None, "bad": "exit code 101", "none": "it did not run", "hung": "not done after 1 s"}, faults

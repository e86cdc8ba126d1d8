"""Relative links in the Markdown files lead somewhere, and the files they name in backticks exist."""

import re
import subprocess
import urllib.parse

from common import REPO, Fault

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(<?([^)\s>]+)>?[^)]*\)|!\[[^\]]*\]\(([^)\s]+)\)")
# The first word of `dev/kafka start` counts; <…>, * and … stand for something else.
NAMED = re.compile(r"`\.?/?((?:src|docs|dev|protocol-tests|benches|fuzz|\.ci)/[^\s`]*)")


def slug(heading):
    """The anchor that hosting sites give a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def without_code(text):
    return re.sub(r"^(```|~~~).*?^\1", lambda block: "\n" * block.group().count("\n"), text, flags=re.M | re.S)


def anchors(text):
    return {slug(line.lstrip("#")) for line in without_code(text).splitlines() if line.startswith("#")}


def faults_in(path, text):
    text = without_code(text)
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{path.relative_to(REPO) if path.is_relative_to(REPO) else path}:{number}"
        for found in LINK.finditer(re.sub(r"`[^`]*`", "``", line)):
            target = found.group(1) or found.group(2)
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            file, _, anchor = urllib.parse.unquote(target).partition("#")
            there = (path.parent / file).resolve() if file else path
            if file and not there.exists():
                yield f"{place}: {target} leads nowhere"
            elif anchor and there.suffix == ".md" and anchor not in anchors(there.read_text() if file else text):
                yield f"{place}: {target} has no such heading"
        for found in NAMED.finditer(line):
            name = found.group(1).rstrip(".,:;")
            name = re.sub(r":\d+$", "", name)
            if not re.search(r"[<>*…{}$]", name) and not (REPO / name).exists():
                yield f"{place}: there is no {name}"


def check():
    listed = subprocess.run(["git", "ls-files", "-z", "--", "*.md"], cwd=REPO, stdout=subprocess.PIPE, text=True,
                            timeout=60, check=True).stdout
    paths = [REPO / name for name in listed.split("\0") if name and (REPO / name).exists()]
    found = [fault for path in paths for fault in faults_in(path, path.read_text())]
    if not paths:
        found.append("there is no document at all")
    if found:
        raise Fault("\n".join(found))
    print(f"{len(paths)} documents checked")

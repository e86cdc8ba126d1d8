"""The small Java programs of dev/java, compiled into the cache on first use and after every change."""

import hashlib
import shutil
import subprocess
import tempfile
import pathlib

from common import DEFAULT_VERSION, DEV, Fault, cache, java_command, libs, locked, need, tail_text


def known():
    return sorted(path.stem for path in (DEV / "java").glob("*.java") if "void main(" in path.read_text())


def compiled():
    """Compiles all of them together; the folder's name is the hash of the sources."""
    sources = sorted((DEV / "java").glob("*.java"))
    digest = hashlib.sha256(DEFAULT_VERSION.encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    ready = cache() / "java" / digest.hexdigest()[:16]
    if ready.is_dir():
        return ready
    need("java", "javac")
    jars = libs(DEFAULT_VERSION)
    with locked(cache() / "java" / ".lock"):
        if ready.is_dir():
            return ready
        work = pathlib.Path(tempfile.mkdtemp(prefix=".compile-", dir=ready.parent))
        try:
            done = subprocess.run(["javac", "-nowarn", "-d", str(work), "-cp", f"{jars}/*", *map(str, sources)],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
            if done.returncode != 0:
                raise Fault(f"the Java tools do not compile:\n{tail_text(done.stdout)}")
            work.rename(ready)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return ready


def command(tool, arguments):
    if tool not in known():
        raise Fault(f"no Java tool named {tool!r}; there are: {', '.join(known())}")
    return java_command(DEFAULT_VERSION, tool, arguments, ["-Xmx1g"], extra_classpath=[compiled()])

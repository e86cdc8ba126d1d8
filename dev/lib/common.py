"""What the development tools share: the cache outside the clone, jars, Java, locks, processes."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DEV = pathlib.Path(__file__).resolve().parent.parent
REPO = DEV.parent
DEFAULT_VERSION = "4.3.1"
QUIET_SLF4J = "1.7.36"
# Bindings that would compete with slf4j-simple for the log output.
OTHER_LOG_BINDINGS = ("slf4j-reload4j-", "slf4j-log4j12-", "log4j-slf4j-impl-", "log4j-slf4j2-impl-", "logback-classic-")


class Fault(Exception):
    """Something the person at the keyboard has to know; printed without a stack trace."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def cache():
    """The folder for jars, compiled tools and the state of running clusters; never inside the clone."""
    given = os.environ.get("TOWPATH_CACHE")
    if given:
        folder = pathlib.Path(given)
    else:
        folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "towpath"
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(path, deadline_s=600):
    """Holds an advisory lock on `path`; the kernel frees it when the process dies, however it dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        end = time.monotonic() + deadline_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Fault(f"another process has held {path} for {deadline_s} s") from None
                time.sleep(0.05)
        yield


def parsed(version):
    try:
        return tuple(int(part) for part in version.split("."))
    except ValueError:
        raise Fault(f"{version!r} is no Kafka version, expected something like {DEFAULT_VERSION}") from None


def is_kraft(version):
    return parsed(version) >= (3, 3)


def need(*programs):
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise Fault(
            f"missing: {', '.join(missing)} (Debian: java and javac are in openjdk-17-jdk-headless, mvn in maven,"
            " kcat in kcat); as root, dev/test installs them"
        )


def artefacts(version):
    """Maven coordinates for one release: broker, tools, MirrorMaker."""
    number = parsed(version)
    scala = "2.13" if number >= (2, 4) else "2.11"
    wanted = [("org.apache.kafka", f"kafka_{scala}", version), ("org.slf4j", "slf4j-simple", QUIET_SLF4J)]
    if number >= (3, 0):
        wanted.append(("org.apache.kafka", "kafka-tools", version))
    if number >= (2, 4):
        wanted += [("org.apache.kafka", name, version) for name in ("connect-mirror", "connect-runtime")]
    if number < (1, 0):
        wanted.append(("javax.xml.bind", "jaxb-api", "2.3.1"))
    if number < (2, 0):
        wanted.append(("log4j", "log4j", "1.2.17"))
    return wanted


def libs(version):
    """The folder with one release's jars, fetched by Maven on first use."""
    home = cache() / "kafka" / version
    ready = home / "libs"
    if ready.is_dir():
        return ready
    need("java", "mvn")
    with locked(home / ".lock"):
        if ready.is_dir():
            return ready
        say(f"fetching the jars of Kafka {version} with Maven")
        work = pathlib.Path(tempfile.mkdtemp(prefix=".fetch-", dir=home))
        try:
            dependencies = "".join(
                f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version></dependency>"
                for g, a, v in artefacts(version)
            )
            (work / "pom.xml").write_text(
                '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
                "<groupId>dev</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
                f"<dependencies>{dependencies}</dependencies></project>\n"
            )
            command = ["mvn", "-q", "-B", "-f", str(work / "pom.xml"), "dependency:copy-dependencies"]
            command += ["-DincludeScope=runtime", f"-DoutputDirectory={work / 'libs'}"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=540,
                                  stdin=subprocess.DEVNULL)
            if done.returncode != 0:
                raise Fault(f"Maven could not fetch Kafka {version}:\n{tail_text(done.stdout)}")
            for jar in (work / "libs").iterdir():
                if jar.name.startswith(OTHER_LOG_BINDINGS):
                    jar.unlink()
            (work / "libs").rename(ready)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return ready


def java_command(version, main, arguments, options=(), log_level="warn", extra_classpath=()):
    classpath = os.pathsep.join([*map(str, extra_classpath), f"{libs(version)}/*"])
    return ["java", *options, f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-cp", classpath, main, *arguments]


def tail_text(text, lines=40):
    return "\n".join(text.splitlines()[-lines:])


def tail(path, lines=40):
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 64 * 1024))
            return tail_text(file.read().decode("utf-8", "replace"), lines)
    except FileNotFoundError:
        return "(no log)"


# A process is known by id and start time together: ids are reused, and a wrong one must never get a signal.

def started_ticks(pid):
    """The kernel's start time of a process, or None when it is gone or only a zombie is left."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def alive(pid, ticks):
    return bool(pid) and ticks is not None and started_ticks(pid) == ticks


def end_process(pid, ticks, kill, deadline_s=30):
    """Stops one process and waits for it. Returns False when it had to be killed after being asked."""
    if not alive(pid, ticks):
        return True
    asked = True
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
    if not kill and not gone_within(pid, ticks, deadline_s):
        asked = False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if not gone_within(pid, ticks, 20):
        raise Fault(f"process {pid} does not go away")
    return asked


def gone_within(pid, ticks, deadline_s):
    end = time.monotonic() + deadline_s
    while alive(pid, ticks):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True

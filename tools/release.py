"""`make release`: builds the published files twice and compares, checks, installs and lists them.

It writes to dist/: sdist, wheel, the zip for --py-files, SHA256SUMS of these, and an SBOM (CycloneDX) of a fresh
installation. They are built from the files of the last commit, in two folders, and every file has the time of that
commit; any difference is an error. The zip must have the sources of that commit and nothing else. Nothing is uploaded:
.github/workflows/release.yml does that from a tag. `python -m build` is one of its steps; `uv build` would be the same
step.

    python -m tools.release [build | try]

`build` runs only tools whose hashes are known. `try` installs what is in dist/ with the newest dependencies, whose code
nobody has pinned, so the sums are made before and compared after it. The workflow does the two on different machines,
and publishes what the first one has made.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tools.make_zip import differences, write_zip

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
WORK = ROOT / "build" / "release"
SUMS = "SHA256SUMS"
TOOLS = ["build", "twine", "cyclonedx-bom", "setuptools", "wheel"]
# Their files, by tools/lock.py: what builds the published files is not chosen by an index.
HASHED_TOOLS = "requirements-release.txt"
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7"
PYTHONS = range(10, 20)

# Runs in a fresh environment with only the wheel and its dependencies: rows are sent and acknowledged.
SMOKE = """\
import sys, pyarrow as pa
from kafka_sink import Producer
from kafka_sink.testing import EmbeddedBroker
with EmbeddedBroker(topics={"t": 2}) as broker:
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4"}) as producer:
        sent = producer.send_arrow(pa.table({"value": [b"%d" % n for n in range(1000)]}), topic="t").result(30)
    assert sent.row_count == 1000, sent
"""


class ReleaseFailed(Exception):
    pass


def main(steps: Sequence[str]) -> int:
    try:
        WORK.mkdir(parents=True, exist_ok=True)
        for step in steps or STEPS:
            STEPS[step]()
    except (ReleaseFailed, subprocess.CalledProcessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def _build_files() -> None:
    for folder in (WORK, DIST):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    tools = _tools()
    epoch = int(_output("git", "log", "-1", "--format=%ct"))
    first, second = (_build(WORK / name, tools, epoch) for name in ("first", "second"))
    _compare(first, second)
    for path in first:
        shutil.copy(path, DIST)
    _say("built twice, with identical bytes: " + ", ".join(path.name for path in first))
    wheel = _wheel()
    archive = DIST / wheel.name.replace("-py3-none-any.whl", ".zip")
    write_zip(archive, WORK / "first" / "source")
    if problems := differences(archive, WORK / "second" / "source"):
        raise ReleaseFailed(f"{archive.name} is not made of the sources of the last commit: {', '.join(problems)}")
    _run(tools, "-m", "twine", "check", "--strict", *map(str, [wheel, *DIST.glob("*.tar.gz")]))
    text = "".join(f"{digest}  {name}\n" for name, digest in sums_of(DIST).items())
    (DIST / SUMS).write_text(text)
    print(text, end="")


def _try_files() -> None:
    """The files must be the same before and after code that nobody has pinned has run beside them."""
    before, wheel = sums_of(DIST), _wheel()
    check_sums(DIST)
    installed = [_install(python, wheel) for python in pythons()]
    name = wheel.name.replace("-py3-none-any.whl", ".cdx.json")
    _run_tool(
        _tools(), "cyclonedx-py", "environment", str(installed[0]), "--output-reproducible", "--output-format", "JSON",
        "--output-file", str(DIST / name),
    )  # fmt: skip
    _lint_workflows()
    after = sums_of(DIST)
    after.pop(name)
    changed = sorted(each for each in before.keys() | after if each != name and before.get(each) != after.get(each))
    if changed:
        raise ReleaseFailed(f"what was installed has changed dist/: {', '.join(changed)}")


def sums_of(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def check_sums(folder: Path) -> None:
    """Raises unless the folder has the files of its SHA256SUMS, as they are there."""
    listed = dict(line.split("  ")[::-1] for line in (folder / SUMS).read_text().splitlines())
    found = {name: digest for name, digest in sums_of(folder).items() if name in listed}
    if not listed or found != listed:
        wrong = sorted(name for name in listed if found.get(name) != listed[name])
        raise ReleaseFailed(f"{folder} has not the files of its {SUMS}: {', '.join(wrong) or 'it names none'}")


def _wheel() -> Path:
    return next(DIST.glob("*.whl"))


def _tools() -> Path:
    made = WORK / "tools" / "bin" / "python"
    if made.exists():
        return made
    return _environment(WORK / "tools", Path(sys.executable), ["--require-hashes", "-r", str(ROOT / HASHED_TOOLS)])


def _lint_workflows() -> None:
    """Runs actionlint, a Go program: an installed one, or one that Go builds from its module."""
    linter = ["actionlint"] if shutil.which("actionlint") else ["go", "run", ACTIONLINT]
    if not shutil.which(linter[0]):
        _say("the workflows are not linted: neither actionlint nor go is installed")
        return
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    subprocess.run([*linter, *map(str, workflows)], check=True, cwd=WORK)
    _say("linted: " + ", ".join(path.name for path in workflows))


def pythons() -> Iterator[Path]:
    """Every Python on this machine that the package supports."""
    for minor in PYTHONS:
        for found in (shutil.which(f"python3.{minor}"), *sorted(_of_pyenv(minor))):
            if found and _is_python(found, minor):
                yield Path(found)
                break


def _of_pyenv(minor: int) -> Iterator[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return (str(path) for path in root.glob(f"versions/3.{minor}.*/bin/python3"))


def _is_python(name: str, minor: int) -> bool:
    """Runs it, because a version manager's shim may exist and not work."""
    code = "import sys, ensurepip; print(sys.version_info.minor)"
    answer = subprocess.run([name, "-c", code], capture_output=True, text=True)
    return answer.returncode == 0 and answer.stdout.strip() == str(minor)


def _build(folder: Path, tools: Path, epoch: int) -> list[Path]:
    """Builds from the files of the last commit, so that other files in the tree cannot get in."""
    source, target = folder / "source", folder / "dist"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONPATH": ""}
    command = [str(tools), "-m", "build", "--no-isolation", "--outdir", str(target), str(source)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    for sdist in target.glob("*.tar.gz"):
        sdist.write_bytes(normalise(sdist.read_bytes(), epoch))
    return sorted(target.iterdir())


def normalise(sdist: bytes, epoch: int) -> bytes:
    """Sets owner, order and time of the files, which setuptools takes from the file system."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(sdist), mode="r:gz") as given,
        gzip.GzipFile("", "wb", fileobj=packed, mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as made,
    ):
        for entry in sorted(given.getmembers(), key=lambda each: each.name):
            clean = tarfile.TarInfo(entry.name)
            clean.type, clean.size, clean.mtime = entry.type, entry.size, epoch
            clean.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            made.addfile(clean, given.extractfile(entry) if entry.isfile() else None)
    return packed.getvalue()


def _compare(first: list[Path], second: list[Path]) -> None:
    names = [path.name for path in first]
    if names != [path.name for path in second] or len(names) != 2:
        raise ReleaseFailed(f"the two builds have different files: {names} and {[path.name for path in second]}")
    for one, other in zip(first, second, strict=True):
        if one.read_bytes() != other.read_bytes():
            raise ReleaseFailed(f"{one.name} differs between the two builds: {one} and {other}")


def _install(python: Path, wheel: Path) -> Path:
    minor = re.sub(r"\D", "", _output(str(python), "-c", "import sys; print(sys.version_info[:2])"))
    environment = _environment(WORK / f"python{minor}", python, [str(wheel)])
    _run(environment, "-m", "pip", "check", "-q")
    _run(environment, "-c", SMOKE)
    # A pin that needs a newer Python makes pip refuse all of them, and with them the first command of a newcomer.
    pins = ("--dry-run", "-q", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt"))
    _run(environment, "-m", "pip", "install", *pins, f"{wheel}[dev]")
    said = _output(str(environment.parent / "pykafka-sink"), "--version")
    _say(f"installed, run, and constraints.txt resolved with {_output(str(environment), '-V')}: {said}")
    return environment


def _environment(folder: Path, python: Path, wanted: list[str]) -> Path:
    subprocess.run([str(python), "-m", "venv", str(folder)], check=True)
    made = folder / "bin" / "python"
    _run(made, "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted)
    return made


def _run(python: Path, *words: str) -> None:
    environment = {**os.environ, "PYTHONPATH": ""}
    # Outside of the tree, so that the installed package is imported.
    subprocess.run([str(python), *words], check=True, cwd=WORK, env=environment)


def _run_tool(python: Path, name: str, *words: str) -> None:
    subprocess.run([str(python.parent / name), *words], check=True, cwd=ROOT)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def _say(text: str) -> None:
    print(text, flush=True)


STEPS: dict[str, Callable[[], None]] = {"build": _build_files, "try": _try_files}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

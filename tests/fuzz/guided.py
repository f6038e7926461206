"""Coverage-guided search for inputs that a decoder neither decodes nor refuses with one of its errors.

Usage: python -m tests.fuzz.guided [--seconds 20] [--target jaas] (make fuzz-guided SECONDS=60)

Each target runs in a separate process, for this number of seconds, under atheris (libFuzzer for Python), which changes
inputs so that they reach lines that none has reached before. Inputs that it finds are left in tests/fuzz/findings:
rename each and move it to tests/fuzz/corpus/<target>, where a test replays it in every run.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
CORPUS, FINDINGS = FOLDER / "corpus", FOLDER / "findings"
INPUT_BYTES_MAX = 4096


def search(name: str, seconds: int, folder: Path) -> None:
    """Never returns, since libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["kafka_sink"]):
        from tests.fuzz.guided_targets import by_name

        target = by_name()[name]
    for number, seed in enumerate(target.seeds):
        (folder / f"seed-{number}").write_bytes(seed)
    FINDINGS.mkdir(exist_ok=True)
    words = [f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}", f"-artifact_prefix={FINDINGS}/{name}-"]
    atheris.Setup([sys.argv[0], *words, "-timeout=10", "-rss_limit_mb=2048", str(folder)], target.run)
    atheris.Fuzz()


def started(name: str, seconds: int) -> tuple[int, str]:
    """The number of inputs tried and, if something was found, the output of libFuzzer."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.fuzz.guided", "--seconds", str(seconds), "--one", name, folder]
        run = subprocess.run(command, capture_output=True, text=True, timeout=seconds * 3 + 120)
    tried = re.findall(r"^(?:Done (\d+) runs|#(\d+)\t)", run.stderr, re.MULTILINE)
    count = max((int(done or shown) for done, shown in tried), default=0)
    return count, "" if run.returncode == 0 else (run.stdout + run.stderr)[-3000:]


def main() -> None:
    parser = argparse.ArgumentParser(description="coverage-guided search in every decoder")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--target", action="append")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        search(options.one[0], options.seconds, Path(options.one[1]))
    from tests.fuzz.guided_targets import by_name

    names = options.target or list(by_name())
    total, findings = 0, 0
    for name in names:
        count, said = started(name, options.seconds)
        total += count
        findings += bool(said)
        print(f"{name:40} {count:10} inputs {'FOUND' if said else ''}\n{said}", end="", flush=True)
    print(f"{total} inputs in {len(names) * options.seconds / 60:.1f} minutes, {findings} targets with findings")
    raise SystemExit(1 if findings else 0)


if __name__ == "__main__":
    main()

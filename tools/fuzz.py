"""Run the fuzzers of core/fuzz and plugin/fuzz, two at a time; add what they find to the corpus.

    python tools/fuzz.py --seconds 600 [receiver handshake ...]

An input that makes a fuzzer fail lies in build/fuzz/findings. When it is mended, copy it to the
corpus of the target, where it is a test from then on. New inputs that reach more code are minimised
into the corpus, the smaller half of a kilobyte each, at most 60 for each target.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "fuzz"
FOLDERS = ("core/fuzz", "plugin/fuzz")
MOST_BYTES = 2048  # of an input
MOST_FILES = 60  # of a corpus that is kept


def targets() -> dict[str, Path]:
    """Return the program of each target, by its noun."""
    return {
        source.stem.removesuffix("_fuzz"): BUILD / folder / source.stem
        for folder in FOLDERS
        for source in sorted((ROOT / folder).glob("*_fuzz.cc"))
    }


def corpus_of(program: Path, noun: str) -> Path:
    """Return the folder of the inputs that are kept for a target."""
    return ROOT / program.parent.relative_to(BUILD) / "corpus" / noun


def fuzz(noun: str, program: Path, seconds: int) -> bool:
    """Run one target; return whether it found nothing."""
    findings = BUILD / "findings" / noun
    findings.mkdir(parents=True, exist_ok=True)
    kept = corpus_of(program, noun)
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as found:
        options = [f"-max_total_time={seconds}", f"-max_len={MOST_BYTES}", "-print_final_stats=1"]
        log = findings / "log"
        command = [str(program), *options, f"-artifact_prefix={findings}/", found, str(kept)]
        with log.open("w") as file:
            code = subprocess.call(command, stdout=file, stderr=file)
        lines = [line for line in log.read_text(errors="replace").splitlines() if "cov:" in line]
        print(f"{noun}: exit code {code}; {lines[-1] if lines else 'no coverage'}", flush=True)
        if code == 0:
            keep(program, Path(found), kept)
    return code == 0


def keep(program: Path, found: Path, kept: Path) -> None:
    """Minimise what was found together with the corpus, and keep the smallest files."""
    with tempfile.TemporaryDirectory() as merged:
        command = [str(program), "-merge=1", merged, str(kept), str(found)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        files = sorted(Path(merged).iterdir(), key=lambda path: path.stat().st_size)
        for path in files[: max(0, MOST_FILES - len(list(kept.iterdir())))]:
            shutil.copy(path, kept / path.name)


def main() -> int:
    """Build and run the targets; return 0 if none of them failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=600, help="time of each target")
    parser.add_argument("targets", nargs="*", metavar="target", help="nouns (default: all)")
    options = parser.parse_args()
    if shutil.which("clang++-19") is None:
        print("fuzzing needs clang++-19: python tools/system_packages.py fuzz", file=sys.stderr)
        return 1
    environ = {**os.environ, "CMAKE_GENERATOR": "Ninja"}
    subprocess.run(["cmake", "--preset", "fuzz"], cwd=ROOT, env=environ, check=True)
    programs = {
        noun: program
        for noun, program in targets().items()
        if not options.targets or noun in options.targets
    }
    names = [program.name for program in programs.values()]
    build = ["cmake", "--build", "--preset", "fuzz", "--target", *names]
    subprocess.run(build, cwd=ROOT, check=True)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(fuzz, *item, options.seconds) for item in programs.items()]
        return 0 if all(call.result() for call in calls) else 1


if __name__ == "__main__":
    sys.exit(main())

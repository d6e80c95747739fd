"""The client under `contextd conformance`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness import PROGRAM

DRIVER = Path(__file__).with_name("driver.py")


def test_the_client_passes_the_conformance_kit() -> None:
    kit = [PROGRAM, "conformance", "--timeout", "1m", "--", sys.executable, str(DRIVER)]
    done = subprocess.run(kit, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr

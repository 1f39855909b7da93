"""The skip policy: what is required fails where it would be skipped."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize(("required", "outcome"), [("", "2 skipped"), ("1", "1 failed, 1 skipped")])
def test_a_skipped_browser_test_fails_where_everything_is_required(tmp_path, required, outcome):
    (tmp_path / "conftest.py").write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.conftest import *\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.browser\ndef test_needed(): pytest.skip('no browser here')\ndef test_other(): pytest.skip('not now')\n"
    )
    env = os.environ | {"WORKBENCH_REQUIRE_ALL": required}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "markers=browser: x",
        "-c",
        "/dev/null",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=60, check=False)
    assert outcome in done.stdout, done.stdout + done.stderr
    assert ("no browser here" in done.stdout) == bool(required)


def test_a_test_has_a_home_of_its_own_and_no_key(own_home):
    from pathlib import Path

    assert Path.home() == own_home and not [n for n in os.environ if n.endswith("_API_KEY")]

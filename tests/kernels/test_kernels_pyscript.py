"""Python writers followed on paper: each script was also run by a Python on the same file, whose result stands here."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from traceparse.kernels import pyscript
from traceparse.kernels.workspace import Text, Workspace

TEXT = "x = 1\ny = 2\nx = 1\n"

SCRIPTS = [
    "p = 'f.py'\ns = open(p).read()\ns = s.replace('y = 2', 'y = 3')\nopen(p, 'w').write(s)\n",
    "from pathlib import Path\np = Path('f.py')\np.write_text(p.read_text().replace('x', 'z', 1))\n",
    "with open('f.py') as f:\n    s = f.read()\nold, new = 'x = 1', 'x = 7'\nassert old in s\nwith open('f.py', 'w') as f:\n    f.write(s.replace(old, new))\n",
    "s = open('f.py').read()\nfor a, b in [('x', 'u'), ('y', 'v')]:\n    s = s.replace(a, b)\nopen('f.py', 'w').write(s)\n",
    "s = open('f.py').read()\ndef rep(a, b, n=1):\n    global s\n    assert s.count(a) == n, a\n    s = s.replace(a, b)\nrep('y = 2', 'y = 4')\nrep('x', 'k', n=2)\nopen('f.py', 'w').write(s)\n",
    "s = open('f.py').read()\nrep = 'q'\ni = s.index('y')\ns = s[:i] + rep + s[i + 1:]\nopen('f.py', 'w').write(s)\n",
    "lines = open('f.py').read().split('\\n')\nlines[1] = f'y = {40 + 2}'\nopen('f.py', 'w').write('\\n'.join(lines))\n",
    "lines = open('f.py').readlines()\nlines.insert(1, 'new\\n')\nopen('f.py', 'w').writelines(lines)\n",
    "s = open('f.py').read()\nif 'zzz' in s:\n    s = ''\nelse:\n    s += 'end\\n'\nopen('f.py', 'w').write(s)\n",
    "f = open('f.py', 'a')\nf.write('tail\\n')\nf.close()\n",
    "import shutil, os\nshutil.copy('f.py', 'g.py')\nopen('f.py', 'w').write('gone\\n')\nos.replace('g.py', 'f.py')\n",
    "open('f.py', 'w').write(open('f.py').read())\n",
    "s = open('f.py').read()\nassert 'nope' in s\nopen('f.py', 'w').write('never')\n",
    "import sys\ns = open('f.py').read()\nif 'nope' not in s:\n    sys.exit(1)\nopen('f.py', 'w').write('never')\n",
    "for n in range(3):\n    if n == 2:\n        break\n    open('f.py', 'a').write(str(n))\n",
    "import textwrap\nopen('f.py', 'w').write(textwrap.dedent('''\n    a\n      b\n'''))\n",
]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_file_is_what_python_leaves(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.py").write_text(TEXT)
    with contextlib.suppress(AssertionError, SystemExit):
        exec(compile(script, "script", "exec"), {"__name__": "__main__"})  # our own scripts above, as the oracle
    workspace = Workspace("/r", "/r")
    workspace.write("f.py", Text(TEXT, True), "write")
    assert pyscript.run(script, workspace, "/r")
    assert workspace.files["f.py"] == Text((tmp_path / "f.py").read_text(), True)


@pytest.mark.parametrize(
    "script",
    [
        "import re\ns = open('f.py').read()\nopen('f.py', 'w').write(re.sub('x', 'y', s))\n",
        "import os\nif os.environ.get('A'):\n    open('f.py', 'w').write('a')\n",
        "import sys\nopen('f.py', 'w').write(sys.stdin.read())\n",
        "s = open('f.py').read()\nwhile s.count('x'):\n    s = s.replace('x', '', 1)\nopen('f.py', 'w').write(s)\n",
        "s = open('f.py').read().split('\\n')\ndel s[0]\nopen('f.py', 'w').write('\\n'.join(s))\n",
        "s = [c for c in open('f.py')]\nopen('f.py', 'w').writelines(s)\n",
        "s = open('unseen.py').read()\nopen('f.py', 'w').write(s + 'x')\n",
    ],
)
def test_what_is_not_on_the_list_makes_the_file_partial(script: str) -> None:
    workspace = Workspace("/r", "/r")
    workspace.write("f.py", Text(TEXT, True), "write")
    assert pyscript.run(script, workspace, "/r")
    assert not workspace.files["f.py"].whole


def test_nothing_is_executed_and_bombs_end() -> None:
    workspace = Workspace("/r", "/r")
    for script in (
        "s = 'a' * 10**9\nopen('f.py', 'w').write(s)\n",
        "s = 'a'\nfor i in range(900):\n    s = s + s\n",
        "def f():\n    f()\nf()\n",
        "x = 'a' * 1000000\nx = x.replace('a', x)\n",
        "l = []\nl.append(l)\nopen('f.py', 'w').write(str(l))\n",
        "__import__('os').system('touch /tmp/never')\n",
    ):
        pyscript.run(script, workspace, "/r")
    assert not pyscript.run("def broken(:\n", workspace, "/r")


def test_a_partial_file_stays_partial_through_a_replace() -> None:
    workspace = Workspace("/r", "/r")
    workspace.write("f.py", Text("head x = 1\n", False), "write")
    pyscript.run(
        "s = open('f.py').read()\nassert 'tail' in s\nopen('f.py', 'w').write(s.replace('x = 1', 'x = 2'))\n",
        workspace,
        "/r",
    )
    assert workspace.files["f.py"] == Text("head x = 2\n", False)

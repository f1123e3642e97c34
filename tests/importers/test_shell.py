import pytest

from foretell.importers.shell import read_commands, understood


def heads(script: str) -> list[str]:
    """What each command has behind `--n`."""
    return [words[words.index("--n") + 1] for words in read_commands(script)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("n=2 # small\nrun --n $n", ["2"]),
        ("n=8; d=64\nrun --n $d", ["64"]),
        ("export n=8 m=4\nrun --n ${m}", ["4"]),
        ("n='a b'\nrun --n \"$n\"", ["a b"]),
        ("n=2\nrun --n '$n'", ["$n"]),
        ('n=2\nrun --n "it\'s $n"', ["it's 2"]),
        ("n=2\nm=$n\nn=4\nrun --n $m", ["2"]),
        ("n=2\nrun --n $n\nn=4\nrun --n $n", ["2", "4"]),
        ("n=2\nrun --n \\\n  $n # --n 3", ["2"]),
        ("n=2\n# n=3 \\\nrun --n $n", ["2"]),
        ("n=1\nn=2 run --n $n", ["1"]),
        ("list='2 4'\nfor n in $list; do run --n $n; done\nrun --n $n", ["2", "4", "4"]),
        ("for a in 1 2\ndo\nfor b in 3 4\ndo\nrun --n $a$b\ndone\ndone", ["13", "14", "23", "24"]),
        ("n=8\nfor i in 1 2; do run --n $n; n=4; done", ["8", "4"]),
        ("n=8\nif [ ! -d logs ]; then mkdir logs; fi\nrun --n $n", ["8"]),
        ("n=2\ncat > f <<EOF\nn=4\nEOF\nrun --n $n", ["2"]),
        ("n=2\ncat <<-'E' | tee x\n\tn=4\n\trun --n 9\n\tE\nrun --n $n", ["2"]),
        ("n=2\nrun --n $n <<<4\nn=4\nrun --n $n", ["2", "4"]),
        ("n=8\ncd code && run --n $n > log$n 2>&1 &", ["8"]),
    ],
)
def test_what_the_text_tells(script: str, expected: list[str]) -> None:
    assert heads(script) == expected


@pytest.mark.parametrize(
    "script",
    [
        "run --n $n",
        "n=$1\nrun --n $n",
        "n=$((2*4))\nrun --n $n",
        "n=(2 4)\nrun --n $n",
        "n=2\nn+=4\nrun --n $n",
        "n=2\n((n*=2))\nrun --n $n",
        "n=2\nlet n=n+1\nrun --n $n",
        "n=2\nread n\nrun --n $n",
        "n=2\nunset n\nrun --n $n",
        "n=2\nsource settings\nrun --n $n",
        "n=2\nif [ $1 ]; then n=4; fi\nrun --n $n",
        "n=2\n[ -z $1 ] && n=4\nrun --n $n",
        "case $1 in a) n=2;; *) n=4;; esac\nrun --n $n",
        "n=2\nwhile true; do run --n $n; n=4; done",
        "n=2\nf() { n=4; }\nf\nrun --n $n",
        "n=2\nf() {\n  run --n $n\n}\nn=4\nf",
        "n=2\nfunction f {\n  run --n $n\n}\nn=4\nf",
        "n=2\nf() # one\n{\n  run --n $n\n}\nn=4\nf",
        "n=2\nfunction f # one\n{\n  run --n $n\n}\nn=4\nf",
        "n=2\nf() \\\n{\n  run --n $n\n}\nn=4\nf",
        "n=2\nfunction f.x {\n  run --n $n\n}\nn=4\nf.x",
        "n=2\nf() for i in 1; do run --n $n; done\nn=4\nf",
        "n=2\nf() if true; then run --n $n; fi\nn=4\nf",
        "n=2\nselect n in 4 6; do run --n $n; done",
        "for n in $(seq 3); do run --n $n; done",
        "for ((n=0; n<3; n++)); do run --n $n; done",
        "for n in {1..3}; do run --n $n; done",
        "for n in 2 4; do let n=n*2; run --n $n; done",
    ],
)
def test_what_only_a_run_would_tell(script: str) -> None:
    assert not any(map(understood, heads(script)))


@pytest.mark.parametrize("text", ["", "$", "a$b", "`a`", "{1..3}", "{a,b}"])
def test_not_understood(text: str) -> None:
    assert not understood(text)


@pytest.mark.parametrize("text", ["a", "0.7,0.1", '{"a": 1, "b": 2}'])
def test_understood(text: str) -> None:
    assert understood(text)


def test_a_quotation_that_does_not_end() -> None:
    with pytest.raises(ValueError, match="line 2: a quotation does not end"):
        list(read_commands("run\nrun --n 'a"))

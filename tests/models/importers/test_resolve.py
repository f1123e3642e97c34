import pytest

from foretell.models.importers.arguments import Facts, Known, Value
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.infer import Told, infer
from foretell.models.importers.resolve import ask, needs, resolve
from foretell.models.importers.script import Script
from foretell.models.importers.sources import CODE_BASES
from tests.models.importers import published


def facts(origin: str, **values: Value) -> Facts:
    return {name: Known(value, origin) for name, value in values.items()}


def told(form: str = "autoformer", **changes: object) -> Told:
    source, architecture = ("patchtst",) * 2 if form == "official" else ("tslib", form)
    layout = published.layout(source, architecture)  # type: ignore[arg-type]
    return infer(published.publish(published.make(form, **changes), layout), layout)


def solve(
    form: str = "autoformer",
    *,
    source: str = "tslib",
    flags: Facts | None = None,
    runs: tuple[Facts, ...] | None = None,
    complete: bool = True,
    setting: Facts | None = None,
    defaults: bool = False,
    **changes: object,
) -> Facts:
    return resolve(
        CODE_BASES[source],  # type: ignore[index]
        "patchtst" if form == "official" else form,
        told(form, **changes),
        flags=flags or {},
        script=None if runs is None else Script(runs, complete),
        setting=setting or {},
        defaults=defaults,
    )


def test_flags_go_before_setting() -> None:
    found = solve(flags=facts("--n_heads", n_heads=4), setting=facts("setting", n_heads=2))
    assert found["n_heads"] == Known(4, "--n_heads")


def test_setting_agrees_with_the_file() -> None:
    found = solve(setting=facts("setting", d_model=8, seq_len=24))
    assert found["d_model"] == Known(8, "the file")
    assert found["seq_len"] == Known(24, "setting")


@pytest.mark.parametrize("given", ["flags", "setting"])
def test_who_contradicts_the_file_is_wrong(given: str) -> None:
    with pytest.raises(
        ImporterError, match="contradictions: d_model is 16 by them, 8 by the file; e_layers is 5"
    ):
        solve(**{given: facts("them", d_model=16, e_layers=5)})  # type: ignore[arg-type]


def test_setting_contradicts_script() -> None:
    runs = (facts("a.sh", seq_len=48),)
    with pytest.raises(ImporterError, match=r"seq_len is 24 by setting, 48 by a\.sh"):
        solve(setting=facts("setting", seq_len=24), runs=runs)
    found = solve(
        setting=facts("setting", seq_len=24), runs=runs, flags=facts("--seq_len", seq_len=24)
    )
    assert found["seq_len"].origin == "--seq_len"


def test_a_script_leaves_the_rest_to_the_defaults() -> None:
    found = solve(runs=(facts("a.sh", seq_len=24),))
    assert found["moving_avg"] == Known(25, "default of the Time-Series-Library")
    assert "moving_avg" not in solve(runs=(facts("a.yaml", seq_len=24),), complete=False)
    assert "moving_avg" not in solve()
    assert solve(defaults=True)["moving_avg"].value == 25


def test_the_run_that_fits_is_taken() -> None:
    runs = tuple(facts("a.sh", pred_len=steps, n_heads=steps // 6) for steps in (6, 12, 24))
    found = solve(runs=runs, setting=facts("setting", pred_len=12))
    assert found["n_heads"] == Known(2, "a.sh")


def test_runs_that_all_fit_leave_open_what_they_differ_in() -> None:
    runs = tuple(facts("a.sh", pred_len=steps, n_heads=4) for steps in (6, 12))
    found = solve(runs=runs)
    assert found["n_heads"].value == 4
    # Not the default either: each run did say.
    assert "pred_len" not in found


def test_no_run_fits() -> None:
    runs = tuple(facts("a.sh", d_model=size) for size in (16, 32))
    with pytest.raises(ImporterError, match="none of the 2 runs of the script fits"):
        solve(runs=runs)


@pytest.mark.parametrize(
    ("data", "split"),
    [
        ("ETTh1", "ett_hour"),
        ("ETTm2", "ett_minute"),
        ("custom", "custom"),
        ("Solar", None),
    ],
)
def test_split_of_the_kind_of_data(data: str, split: str | None) -> None:
    found = solve(setting=facts("setting", data=data))
    assert found.get("split") == (None if split is None else Known(split, "setting"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"task_name": "imputation"}, "imputation by setting: only forecasters"),
        ({"model": "PatchTST"}, "setting is of a PatchTST, --arch is autoformer"),
        ({"features": "MS"}, "forecasts one target from several channels"),
        ({"freq": "t"}, "freq t by setting has 5 calendar features, the file has 4"),
    ],
)
def test_refuses(setting: dict[str, Value], message: str) -> None:
    with pytest.raises(ImporterError, match=message):
        solve(setting=facts("setting", **setting))


def test_a_frequency_of_several_hours_is_no_contradiction() -> None:
    assert solve(setting=facts("setting", freq="15min"))["freq"].value == "15min"


def test_code_without_the_argument_fixes_it() -> None:
    runs = (facts("a.sh", activation="relu", seq_len=24, stride=3),)
    found = solve("official", source="patchtst", runs=runs)
    assert found["activation"] == Known("gelu", "fixed in yuqinie98/PatchTST")


def test_a_model_of_the_target_alone_has_one_channel() -> None:
    setting = facts("setting", features="S", seq_len=24)
    # The weights of a shared head do not tell the number of channels.
    assert solve("patchtst", setting=setting)["enc_in"] == Known(1, "features S of setting")
    with pytest.raises(ImporterError, match="enc_in is 1 by features S of setting, 3 by the file"):
        solve(setting=setting)


@pytest.mark.parametrize(("channels", "label"), [(3, 12), (1, 6)])
def test_tfb_takes_no_label_length(channels: int, label: int) -> None:
    given = facts("a.json", seq_len=24, pred_len=6, label_len=99)
    found = solve(source="tfb", runs=(given,), complete=False, channels=channels)
    assert found["label_len"] == Known(label, "fixed in TFB")


def test_needs_of_each_architecture() -> None:
    assert "moving_avg" in needs("autoformer", told())
    assert "moving_avg" not in needs("transformer", told("transformer"))
    assert "kernel_size" not in needs("patchtst", told("official"))
    layout = published.layout("patchtst", "patchtst", decomposition=1)
    state = published.publish(published.make("official", decomposition=5), layout)
    assert "kernel_size" in needs("patchtst", infer(state, layout))


def test_asks_for_everything_at_once() -> None:
    code = CODE_BASES["tslib"]
    with pytest.raises(ImporterError) as refused:
        ask(["seq_len", "n_heads", "split"], facts("setting", n_heads=2), code)
    lines = str(refused.value).splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["--seq_len", "--split"]
    assert lines[1].endswith("steps of history [96]")
    assert "--source-defaults" in lines[-1]


def test_asks_nothing_when_all_is_known() -> None:
    ask(["n_heads"], facts("setting", n_heads=2), CODE_BASES["tslib"])

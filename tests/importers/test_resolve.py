import pytest

from foretell.importers.arguments import Argument, Arguments, Value
from foretell.importers.errors import ImporterError
from foretell.importers.infer import infer, recognise
from foretell.importers.registry import CODE_BASES
from foretell.importers.resolve import Resolved, require, resolve
from foretell.importers.script import Run
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from tests.importers import published


def given(provenance: str, **values: Value) -> Arguments:
    return {name: Argument(value, provenance) for name, value in values.items()}


def run(
    provenance: str, *, complete: bool = True, unread: tuple[str, ...] = (), **values: Value
) -> Run:
    return Run(given(provenance, **values), dict.fromkeys(unread, f"{provenance} has $x"), complete)


def resolved(
    form: str = "autoformer",
    *,
    source: str = "tslib",
    flags: Arguments | None = None,
    runs: tuple[Run, ...] = (),
    setting: Arguments | None = None,
    defaults: bool = False,
    **changes: object,
) -> Resolved:
    source, architecture = ("patchtst",) * 2 if form == "official" else (source, form)
    state = published.publish(
        published.make(form, **changes), published.layout(source, architecture)
    )
    recognised = recognise(state, source, architecture)
    return resolve(
        recognised,
        infer(state, recognised.architecture, recognised.layout),
        flags=flags or {},
        script=runs,
        setting=setting or {},
        defaults=defaults,
    )


def solve(form: str = "autoformer", **more: object) -> Arguments:
    return resolved(form, **more).arguments  # type: ignore[arg-type]


def test_flags_go_before_setting() -> None:
    found = solve(flags=given("--n_heads", n_heads=4), setting=given("setting", n_heads=2))
    assert found["n_heads"] == Argument(4, "--n_heads")


def test_setting_agrees_with_the_file() -> None:
    found = solve(setting=given("setting", d_model=8, seq_len=24))
    assert found["d_model"] == Argument(8, "the file")
    assert found["seq_len"] == Argument(24, "setting")


@pytest.mark.parametrize("place", ["flags", "setting"])
def test_who_contradicts_the_file_is_wrong(place: str) -> None:
    with pytest.raises(
        ImporterError, match="contradictions: d_model is 16 by them, 8 by the file; e_layers is 5"
    ):
        solve(**{place: given("them", d_model=16, e_layers=5)})  # type: ignore[arg-type]


def test_setting_contradicts_script() -> None:
    runs = (run("a.sh", seq_len=48),)
    with pytest.raises(ImporterError, match=r"seq_len is 24 by setting, 48 by a\.sh"):
        solve(setting=given("setting", seq_len=24), runs=runs)
    found = solve(
        setting=given("setting", seq_len=24), runs=runs, flags=given("--seq_len", seq_len=24)
    )
    assert found["seq_len"].provenance == "--seq_len"


def test_a_script_leaves_the_rest_to_the_defaults() -> None:
    found = solve(runs=(run("a.sh", seq_len=24),))
    assert found["moving_avg"] == Argument(25, "default of the Time-Series-Library")
    assert "moving_avg" not in solve(runs=(run("a.yaml", seq_len=24, complete=False),))
    assert "moving_avg" not in solve()
    assert solve(defaults=True)["moving_avg"].value == 25


def test_the_run_that_fits_is_taken() -> None:
    runs = tuple(run("a.sh", pred_len=steps, n_heads=steps // 6) for steps in (6, 12, 24))
    found = solve(runs=runs, setting=given("setting", pred_len=12))
    assert found["n_heads"] == Argument(2, "a.sh")


def test_runs_that_all_fit_leave_open_what_they_differ_in() -> None:
    runs = tuple(run("a.sh", pred_len=steps, n_heads=4) for steps in (6, 12))
    found = solve(runs=runs)
    assert found["n_heads"].value == 4
    # Not the default either: each run did say.
    assert "pred_len" not in found
    assert resolved(runs=runs).unread == {"pred_len": "the runs of a.sh differ in it"}


def test_no_run_fits() -> None:
    runs = tuple(run("a.sh", d_model=size) for size in (16, 32))
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
    found = solve(setting=given("setting", data=data))
    assert found.get("split") == (None if split is None else Argument(split, "setting"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"model": "PatchTST"}, "setting is of a PatchTST, --arch is autoformer"),
        ({"c_out": 2}, "c_out is 2 by setting, 3 by the file"),
        ({"freq": "t"}, "freq t by setting has 5 calendar features, the file has 4"),
    ],
)
def test_refuses(setting: dict[str, Value], message: str) -> None:
    with pytest.raises(ImporterError, match=message):
        solve(setting=given("setting", **setting))


def test_a_model_of_the_target_of_several_channels() -> None:
    """The published scripts have as many outputs as channels, or one."""
    found = solve(setting=given("setting", features="MS"))
    assert found["features"] == Argument("MS", "setting")
    runs = (run("a.sh", enc_in=3, c_out=1, complete=False),)
    assert solve("patchtst", runs=runs)["features"] == Argument("MS", "a.sh")
    # M is the default of the code, of a script that is known whole.
    for wrong in (run("a.sh", enc_in=3, c_out=2), run("a.sh", enc_in=3, c_out=1)):
        with pytest.raises(ImporterError, match=r"it has 3 channels and [12] of the forecast"):
            solve("patchtst", runs=(wrong,))
    with pytest.raises(ImporterError, match="features MS: TFB has no models of one target"):
        solve(source="tfb", setting=given("setting", features="MS"))


def test_a_frequency_of_several_hours_is_no_contradiction() -> None:
    assert solve(setting=given("setting", freq="15min"))["freq"].value == "15min"


def test_code_without_the_argument_fixes_it() -> None:
    runs = (run("a.sh", activation="relu", seq_len=24, stride=3),)
    found = solve("official", source="patchtst", runs=runs)
    assert found["activation"] == Argument("gelu", "fixed in yuqinie98/PatchTST")


def test_a_model_of_the_target_alone_has_one_channel() -> None:
    setting = given("setting", features="S", seq_len=24)
    # The weights of a shared head do not tell the number of channels.
    assert solve("patchtst", setting=setting)["enc_in"] == Argument(1, "features S of setting")
    with pytest.raises(ImporterError, match="enc_in is 1 by features S of setting, 3 by the file"):
        solve(setting=setting)


@pytest.mark.parametrize(("channels", "label"), [(3, 12), (1, 6)])
def test_tfb_takes_no_label_length(channels: int, label: int) -> None:
    runs = (run("a.json", complete=False, seq_len=24, pred_len=6, label_len=99),)
    found = solve(source="tfb", runs=runs, channels=channels)
    assert found["label_len"] == Argument(label, "fixed in TFB")


def test_what_a_script_has_but_cannot_be_read_is_left_open() -> None:
    for defaults in (False, True):
        runs = (run("a.sh", seq_len=24, unread=("moving_avg", "d_model")),)
        found = resolved(runs=runs, defaults=defaults)
        assert "moving_avg" not in found.arguments
        assert found.unread == {"moving_avg": "a.sh has $x"}
        # The others were left at their defaults.
        assert found.arguments["factor"].value == 1
    assert solve(runs=runs, flags=given("--x", moving_avg=5))["moving_avg"].value == 5


def test_defaults_are_of_what_the_architecture_reads() -> None:
    # The frequency of a command line is no reason to doubt the calendar features of a file.
    minutes = Calendar.for_frequency(Frequency.parse("min"), "scaled")
    found = solve(defaults=True, calendar=minutes)
    assert "freq" not in found
    assert "marks" not in found


def test_no_defaults_where_options_may_hide_in_a_variable() -> None:
    assert "moving_avg" not in solve(runs=(run("a.sh", seq_len=24, complete=False),))


def test_asks_for_everything_at_once() -> None:
    found = Resolved(given("setting", n_heads=2), {"moving_avg": "a.sh has $window"})
    with pytest.raises(ImporterError) as refused:
        require(["seq_len", "n_heads", "moving_avg", "split"], found, CODE_BASES["tslib"])
    lines = str(refused.value).splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["--seq_len", "--moving_avg", "--split"]
    assert lines[1].endswith("steps of history [96]")
    assert lines[2].endswith("steps of the moving average (a.sh has $window)")
    assert "--source-defaults" in lines[-1]


def test_asks_nothing_when_all_is_known() -> None:
    require(["n_heads"], Resolved(given("setting", n_heads=2), {}), CODE_BASES["tslib"])

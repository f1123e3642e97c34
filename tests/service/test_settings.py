from __future__ import annotations

from pathlib import Path

import pytest

from foretell.service.errors import StartError
from foretell.service.settings import Settings


def test_flags_override_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_MODELS", "somewhere")
    monkeypatch.setenv("FORETELL_PORT", "9000")
    monkeypatch.setenv("FORETELL_MAX_BATCH", "7")
    settings = Settings.read(port=9001)
    assert (settings.models, settings.port, settings.max_batch) == (Path("somewhere"), 9001, 7)


def test_unknown_variables_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"FORETELL_MAXBATCH": "1", "foretell_port": "1", "HOME": "/"})
    assert Settings.unknown() == ["FORETELL_MAXBATCH"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKERS", "100000"),
        ("THREADS", "0"),
        ("OPERATIONS_PORT", "70000"),
        ("MAX_CONNECTIONS", "0"),
        *(("API_KEYS", value) for value in ("", "one,,two")),
        ("ADMIN_KEYS", " "),
        ("TIMEOUT_SECONDS", "0"),
        ("LOG_FORMAT", "xml"),
        ("VERSIONS", "newest"),
        *(("PIN", value) for value in ("one", "one@latest", "@1", "one@1,one@2")),
        ("LOAD", "never"),
        *(("KEEP", value) for value in ("one,", "one@newest")),
        ("MAX_LOADED", "0"),
        ("LOAD_WAIT_SECONDS", "0"),
        ("WATCH_SECONDS", "0"),
        *(
            ("CORS_ORIGINS", value)
            for value in (
                "app.example.com",
                "https://app.example.com/",
                "https://app.example.com,*",
                "https://*.example.com",
            )
        ),
        *(
            ("MCP_HOSTS", value)
            for value in ("https://a.example", "a.example:8000", "a.example/mcp", "a.example,", "*")
        ),
        *(("MAX_MEMORY_BYTES", value) for value in ("0", "0.5")),
        *(
            ("ROOT_PATH", value)
            for value in ("forecasts", "/a b", "/a//b", "/a/../b", "https://example.com/a", "/v2/a")
        ),
    ],
)
def test_error_names_the_wrong_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"FORETELL_{name}", value)
    with pytest.raises(StartError, match=f"^FORETELL_{name}: ") as caught:
        Settings.read(models="m")
    # The message is not pydantic's.
    assert "Input should" not in str(caught.value)
    assert "Value error" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("max_memory_bytes", "1000", 1000),
        ("max_memory_bytes", "1G", 10**9),
        ("max_memory_bytes", "64MB", 64 * 10**6),
        ("max_memory_bytes", "512MiB", 512 * 2**20),
        ("max_memory_bytes", "1.5 gi", 3 * 2**29),
        ("max_memory_bytes", "9k", 9000),
        ("max_memory_bytes", "100B", 100),
        ("timeout_seconds", "30", 30),
        ("timeout_seconds", "2.5", 2.5),
        ("timeout_seconds", "30s", 30),
        ("drain_delay_seconds", "5 m", 300),
        ("drain_delay_seconds", "1h", 3600),
        ("timeout_seconds", "250ms", 0.25),
        ("pin", "one@3, wind-2@17", {"one": "3", "wind-2": "17"}),
        ("keep", "one, wind-2@17", ("one", "wind-2@17")),
        ("cors_origins", "*", ("*",)),
        (
            *("cors_origins", "https://a.example, http://localhost:5173"),
            ("https://a.example", "http://localhost:5173"),
        ),
        ("mcp_hosts", "A.example, [::1]", ("a.example", "[::1]")),
        ("models", "models", Path("models")),
        ("models", "s3://bucket//models", "s3://bucket//models"),
    ],
)
def test_human_readable_values_are_parsed(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object
) -> None:
    monkeypatch.setenv("FORETELL_MODELS", "m")
    monkeypatch.setenv(f"FORETELL_{name.upper()}", text)
    assert getattr(Settings.read(), name) == value


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("MAX_BODY_BYTES", "1X", "bytes, or a size such as 512MiB, 64MB or 1G"),
        ("MAX_BODY_BYTES", "-1", "bytes, or a size such as 512MiB, 64MB or 1G"),
        ("MAX_BODY_BYTES", "G", "bytes, or a size such as 512MiB, 64MB or 1G"),
        ("MAX_BODY_BYTES", "9" * 400, "bytes, or a size such as 512MiB, 64MB or 1G"),
        ("GRACE_SECONDS", "5y", "seconds, or a time such as 500ms, 30s, 5m or 1h"),
        ("GRACE_SECONDS", "inf", "seconds, or a time such as 500ms, 30s, 5m or 1h"),
        ("GRACE_SECONDS", "48h", "at most 86400"),
        ("GRACE_SECONDS", "0s", "more than 0"),
        ("PORT", "http", "a whole number"),
        ("PORT", "70000", "at most 65535"),
        ("WORKERS", "0", "at least 1"),
        ("DEVICE", "tpu", "'auto', 'cpu' or 'cuda'"),
        ("TRACES", "maybe", "true or false"),
    ],
)
def test_error_names_the_expected_value(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(f"FORETELL_{name}", value)
    with pytest.raises(StartError) as caught:
        Settings.read(models="m")
    assert str(caught.value) == f"FORETELL_{name}: expected {expected}, got {value!r}"


def test_error_names_the_wrong_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_OPERATIONS_PORT", "1")
    with pytest.raises(StartError, match=r"^--operations-port: expected at most 65535, got 70000$"):
        Settings.read(models="m", operations_port=70000)


def test_empty_variable_means_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = {"api_keys", "actuals_keys", "ledger_keys"}
    refused = {"signed_by", *lists, *(f"{name}_file" for name in lists)}
    for name in Settings.model_fields.keys() - refused:
        monkeypatch.setenv(f"FORETELL_{name.upper()}", "")
    settings = Settings.read(models="m")
    assert settings.model_dump() == Settings.model_construct(models=Path("m")).model_dump()
    with pytest.raises(StartError, match=r"^FORETELL_MODELS or --models: required, but missing"):
        Settings.read()


@pytest.mark.parametrize("keys", ["api_keys", "actuals_keys", "ledger_keys"])
@pytest.mark.parametrize("name", ["FORETELL_{}", "foretell_{}_file"])
def test_empty_variable_of_keys_is_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, keys: str
) -> None:
    variable = name.format(keys.upper() if name.isupper() else keys)
    monkeypatch.setenv(variable, "")
    with pytest.raises(StartError, match=rf"^{variable.upper()}: is empty; set a key"):
        Settings.read(models="m", admin_keys="boss")
    # Other keys of the list are still required.
    assert getattr(Settings.read(models="m", **{keys: "one"}), keys)
    assert getattr(Settings.read(models="m", **{f"{keys}_file": "keys"}), f"{keys}_file")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"max_body_bytes": 9, "max_buffered_bytes": 8},
            r"max_body_bytes \(9\) is over max_buffered_bytes \(8\)",
        ),
        ({"max_inputs": 9, "max_queue": 8}, r"max_inputs \(9\) is over max_queue \(8\)"),
        ({"port": 9, "operations_port": 9}, r"port and operations_port are the same \(9\)"),
    ],
)
def test_settings_that_do_not_fit_together(given: dict[str, int], message: str) -> None:
    with pytest.raises(StartError, match=message):
        Settings.read(models="m", **given)
    assert Settings.read(models="m", port=0, operations_port=0).operations_port == 0


def test_keys_are_split_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_API_KEYS", "first-secret, second-secret secret-tenant")
    settings = Settings.read(
        models="m", admin_keys="secret-a", actuals_keys="secret-b", ledger_keys="secret-c"
    )
    assert [key.get_secret_value() for key in settings.api_keys] == [
        "first-secret",
        "second-secret secret-tenant",
    ]
    for text in (repr(settings), str(settings), settings.model_dump_json()):
        assert "secret" not in text
    monkeypatch.setenv("FORETELL_API_KEYS", "secret,,")
    with pytest.raises(StartError) as caught:
        Settings.read(models="m")
    assert "secret" not in str(caught.value)

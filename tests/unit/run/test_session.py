"""Where the engine comes from, decided without starting one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tidelock.errors import EngineUnavailable, InvalidOption, JavaMissing
from tidelock.run.engine.jvm import find_java, java_version, local_settings
from tidelock.run.engine.session import Engine, EngineSettings, read_settings


def write_config(folder: Path, text: str) -> Path:
    path = folder / "tidelock.toml"
    path.write_text(text)
    return path


def test_argument_goes_over_environment_over_file(tmp_path: Path) -> None:
    write_config(tmp_path, '[spark]\nmaster = "local[1]"\nmemory = "1g"\nconf = { a = "file" }')
    environ = {"TIDELOCK_SPARK_MASTER": "local[2]"}
    assert read_settings(EngineSettings(), {}, tmp_path).master == "local[1]"
    assert read_settings(EngineSettings(), environ, tmp_path).master == "local[2]"
    given = read_settings(EngineSettings(master="local[3]", conf={"b": "1"}), environ, tmp_path)
    assert (given.master, given.memory) == ("local[3]", "1g")
    assert given.conf == {"a": "file", "b": "1"}


def test_who_says_where_queries_run_says_all_of_it(tmp_path: Path) -> None:
    environ = {"TIDELOCK_SPARK_REMOTE": "sc://elsewhere", "TIDELOCK_SPARK_MEMORY": "3g"}
    local = read_settings(EngineSettings(master="local[2]"), environ, tmp_path)
    assert (local.master, local.remote, local.memory) == ("local[2]", None, "3g")
    sail = read_settings(EngineSettings(engine="sail"), environ, tmp_path)
    assert (sail.engine, sail.remote) == ("sail", None)
    spark = read_settings(EngineSettings(engine="spark"), environ, tmp_path)
    assert (spark.engine, spark.remote) == ("spark", "sc://elsewhere")
    given = read_settings(EngineSettings(master="local"), {"TIDELOCK_ENGINE": "sail"}, tmp_path)
    assert (given.engine, given.master) == ("spark", "local")


def test_sparks_own_variable_is_asked_last(tmp_path: Path) -> None:
    environ = {"SPARK_REMOTE": "sc://a"}
    assert read_settings(EngineSettings(), environ, tmp_path).remote == "sc://a"
    assert read_settings(EngineSettings(master="local"), environ, tmp_path).remote is None


def test_the_default_is_spark(tmp_path: Path) -> None:
    assert read_settings(EngineSettings(), {}, tmp_path) == EngineSettings(engine="spark")


def test_the_file_may_be_named_in_the_environment(tmp_path: Path) -> None:
    path = write_config(tmp_path, '[spark]\nengine = "sail"\n[spark.conf]\nx = true\ny = 3')
    found = read_settings(EngineSettings(), {"TIDELOCK_CONFIG": str(path)}, Path("/"))
    assert found.engine == "sail"
    assert found.conf == {"x": "true", "y": "3"}


@pytest.mark.parametrize(
    "text", ["[spark", "[spark]\nmastre = 'x'", "[spark]\nmaster = 3", "spark = 1"]
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str) -> None:
    write_config(tmp_path, text)
    with pytest.raises(InvalidOption, match=r"tidelock\.toml"):
        read_settings(EngineSettings(), {}, tmp_path)


def test_a_file_that_was_named_and_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"absent\.toml"):
        read_settings(EngineSettings(), {"TIDELOCK_CONFIG": "absent.toml"}, tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        EngineSettings(engine="flink"),
        EngineSettings(engine="sail", remote="sc://x"),
        EngineSettings(engine="sail", master="local"),
        EngineSettings(master="local", remote="sc://x"),
        EngineSettings(remote="http://x"),
    ],
)
def test_settings_that_contradict_are_refused(settings: EngineSettings, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption):
        read_settings(settings, {}, tmp_path)


def test_a_session_is_given_alone() -> None:
    with pytest.raises(InvalidOption):
        Engine(object(), master="local")  # type: ignore[arg-type]


def test_an_engine_starts_nothing_before_it_is_asked() -> None:
    program = (
        "import sys; from tidelock.run.engine.session import Engine; e = Engine();"
        "assert not e.started; assert e.zone == 'UTC'; e.close();"
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_closed_engine_says_so() -> None:
    engine = Engine()
    engine.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        engine.get()


def test_a_server_that_does_not_answer_is_told_at_once() -> None:
    with Engine(remote="sc://127.0.0.1:1") as engine:
        with pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1:1"):
            engine.get()
        assert not engine.started


def test_an_engine_that_is_not_installed_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pysail", None)
    monkeypatch.setitem(sys.modules, "pysail.spark", None)
    with (
        Engine(engine="sail") as engine,
        pytest.raises(EngineUnavailable, match=r"pip install 'tidelock\[sail\]'"),
    ):
        engine.get()


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "24-ea"', 24),
        ("command not found", None),
    ],
)
def test_the_version_of_java_is_read(told: str, version: int | None) -> None:
    assert java_version(told) == version


def fake_java(folder: Path, told: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_java_is_looked_for_in_java_home_first(tmp_path: Path) -> None:
    program = fake_java(tmp_path, 'openjdk version "21.0.1"')
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]}) == str(program)


def test_a_missing_java_is_one_sentence_and_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="apt-get install openjdk-17-jre-headless"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaMissing, match="JAVA_HOME"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})


def test_an_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    fake_java(tmp_path, 'openjdk version "11.0.2"')
    with pytest.raises(JavaMissing, match="is version 11") as caught:
        find_java({"JAVA_HOME": str(tmp_path)})
    assert caught.value.version == 11


def test_memory_is_for_the_driver_where_it_computes_and_for_the_executors_elsewhere(
    tmp_path: Path,
) -> None:
    local = local_settings("local[2]", "3g", tmp_path, {})
    assert local["spark.driver.memory"] == "3g"
    assert local["spark.driver.host"] == "127.0.0.1"
    cluster = local_settings("spark://h:7077", "3g", tmp_path, {})
    assert cluster["spark.executor.memory"] == "3g"
    assert "spark.driver.host" not in cluster


def test_what_the_user_sets_has_the_last_word(tmp_path: Path) -> None:
    settings = local_settings("local", None, tmp_path, {"spark.ui.enabled": "true"})
    assert settings["spark.ui.enabled"] == "true"

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from holdfast.errors import ConfigError
from holdfast.observability import process_redactor
from holdfast.settings import LoadedSettings, list_secret_places, load_settings
from holdfast.settings.environment import process_environment

KEY = "sk-planted-0123456789"


class Desk:
    """A home, a repository and an environment that a test may fill."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.repo = root / "repo"
        self.cwd = self.repo / "deep" / "er"
        self.cwd.mkdir(parents=True)
        (self.repo / ".git").mkdir()
        self.home.mkdir()
        self.environ = {"HOME": str(self.home)}

    def write(self, name: str, text: str, *, mode: int = 0o644) -> Path:
        path = self.repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path

    def load(self, **environ: str) -> LoadedSettings:
        return load_settings(cwd=self.cwd, environ={**self.environ, **environ})

    def mistakes(self, **environ: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            self.load(**environ)
        assert caught.value.code == "config.invalid"
        assert KEY not in str(caught.value) + repr(caught.value.to_dict())
        mistakes = caught.value.context["mistakes"]
        assert isinstance(mistakes, list)
        assert all(line in str(caught.value) for line in mistakes)
        return mistakes


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_defaults_are_the_standard_places(desk: Desk) -> None:
    loaded = desk.load()
    assert loaded.settings.workspace == desk.cwd
    assert loaded.settings.storage_path == desk.home / ".local/state/holdfast"
    assert loaded.settings.tools.dir == desk.home / ".local/state/holdfast/tools"
    assert loaded.settings.network.allow_net is False
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.files == ()


def test_xdg_directories_move_state_and_user_config(desk: Desk, tmp_path: Path) -> None:
    folder = tmp_path / "conf" / "holdfast"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('[model]\nname = "mine"\n', encoding="utf-8")
    loaded = desk.load(XDG_CONFIG_HOME=str(tmp_path / "conf"), XDG_STATE_HOME=str(tmp_path / "st"))
    assert loaded.settings.model.name == "mine"
    assert loaded.find_source("model.name") == f"{folder / 'config.toml'}:2"
    assert loaded.settings.storage.state_dir == tmp_path / "st" / "holdfast"


def test_relative_xdg_directories_are_ignored(desk: Desk) -> None:
    loaded = desk.load(XDG_STATE_HOME="here")
    assert loaded.settings.storage.state_dir == desk.home / ".local/state/holdfast"


def test_each_source_beats_the_weaker_ones(desk: Desk) -> None:
    user = desk.home / ".config/holdfast/config.toml"
    user.parent.mkdir(parents=True)
    user.write_text('[model]\nname = "user"\n', encoding="utf-8")
    assert desk.load().settings.model.name == "user"
    desk.write("holdfast.toml", '[model]\nname = "project"\n')
    assert desk.load().settings.model.name == "project"
    desk.write("holdfast.prod.toml", '[model]\nname = "overlay"\n')
    assert desk.load().settings.model.name == "project"
    assert desk.load(HOLDFAST_ENV="prod").settings.model.name == "overlay"
    desk.write(".env", "AGENT_MODEL=dotenv\n")
    assert desk.load(HOLDFAST_ENV="prod").settings.model.name == "dotenv"
    assert desk.load(AGENT_MODEL="environment").settings.model.name == "environment"
    explicit = load_settings(
        overrides={"model.name": "argument", "model.provider": None},
        cwd=desk.cwd,
        environ={**desk.environ, "AGENT_MODEL": "environment"},
    )
    assert explicit.settings.model.name == "argument"
    assert explicit.find_source("model.name") == "argument"
    assert explicit.find_source("model.provider") == "default"


def test_sources_name_file_line_and_variable(desk: Desk) -> None:
    desk.write("holdfast.toml", '# first\n\n[storage]\ndurability = "power"\n')
    desk.write(".env", "# comment\nexport AGENT_MODEL='x'\n")
    loaded = load_settings(
        cwd=desk.repo, environ={**desk.environ, "HOLDFAST_LOG_LEVEL": "INFO", "FOREIGN": "x"}
    )
    assert loaded.find_source("storage.durability") == "holdfast.toml:4"
    assert loaded.find_source("model.name") == ".env:2"
    assert loaded.find_source("log.level") == "environment HOLDFAST_LOG_LEVEL"
    assert loaded.settings.log.level == "info"
    assert loaded.files == (desk.repo / ".env", desk.repo / "holdfast.toml")


def test_all_variables_of_the_first_users_have_their_meaning(desk: Desk, tmp_path: Path) -> None:
    loaded = desk.load(
        OPENAI_BASE_URL="http://host.docker.internal:1234/v1/",
        OPENAI_API_KEY=KEY,
        ANTHROPIC_API_KEY="other",
        AGENT_MODEL="gpt-4o-mini",
        AGENT_WORKSPACE=str(tmp_path),
        AGENT_STATE_DIR=str(tmp_path / "state"),
        AGENT_TOOLS_DIR="~/tools",
        ALLOW_NET="YES",
        AGENT_FORCE_CHAT_COMPLETIONS="On",
        HOLDFAST_LOG_FORMAT="json",
        HOLDFAST_STORAGE__RETENTION__MESSAGE_TTL_S="30d",
        HOLDFAST_SESSIONS__ON_BUSY="reject",
    )
    settings = loaded.settings
    assert settings.model.openai_base_url == "http://host.docker.internal:1234/v1"
    assert settings.secrets.openai_api_key == SecretStr(KEY)
    assert settings.secrets.anthropic_api_key == SecretStr("other")
    assert settings.model.name == "gpt-4o-mini"
    assert settings.workspace == tmp_path
    assert settings.storage.state_dir == tmp_path / "state"
    assert settings.tools.dir == desk.home / "tools"
    assert settings.network.allow_net
    assert settings.model.force_chat_completions
    assert settings.log.format == "json"
    assert settings.storage.retention.message_ttl_s == 30 * 86400
    assert settings.sessions.on_busy == "reject"


@pytest.mark.parametrize("word", ["true", "1", "yes", "on", "TRUE", " On "])
def test_switches_are_on(desk: Desk, word: str) -> None:
    assert desk.load(ALLOW_NET=word).settings.network.allow_net is True


@pytest.mark.parametrize("word", ["false", "0", "no", "off", "FALSE", ""])
def test_switches_are_off(desk: Desk, word: str) -> None:
    assert desk.load(ALLOW_NET=word).settings.network.allow_net is False


@pytest.mark.parametrize("word", ["maybe", "2", "t", "-"])
def test_other_words_for_a_switch_are_refused(desk: Desk, word: str) -> None:
    [line] = desk.mistakes(ALLOW_NET=word)
    assert line.startswith("environment ALLOW_NET: network.allow_net:")


def test_dollars_are_a_number_or_none(desk: Desk) -> None:
    assert desk.load(HOLDFAST_BUDGET__MAX_COST_USD="0.5").settings.budget.max_cost_usd == 0.5
    assert desk.load(HOLDFAST_BUDGET__MAX_COST_USD="none").settings.budget.max_cost_usd is None
    for wrong in ("inf", "nan", "-1", "5m"):
        assert len(desk.mistakes(HOLDFAST_BUDGET__MAX_COST_USD=wrong)) == 1


def test_all_mistakes_of_all_sources_are_reported_at_once(desk: Desk) -> None:
    desk.write("holdfast.toml", '[sessions]\nlease_ttl_s = -1\n\n[modle]\nname = "x"\n')
    desk.write("holdfast.dev.toml", '[log]\nlevel = "loud"\n')
    desk.write(".env", "HOLDFAST_LOG_LEVL=info\nnot a line\n")
    lines = desk.mistakes(
        HOLDFAST_ENV="dev", OPENAI_BASE_URL="ftp://x", ALLOW_NET="perhaps", HOLDFAST_X="1"
    )
    text = "\n".join(lines)
    toml = desk.repo / "holdfast.toml"
    assert len(lines) == 8
    assert f"{toml}:2: sessions.lease_ttl_s" in text
    assert f"{toml}:4: unknown key 'modle'; did you mean 'model'?" in text
    assert f"{desk.repo / 'holdfast.dev.toml'}:2: log.level" in text
    assert "did you mean HOLDFAST_LOG_LEVEL?" in text
    assert f"{desk.repo / '.env'}:2: is not a NAME=value line" in text
    assert "environment OPENAI_BASE_URL: model.openai_base_url" in text
    assert "environment ALLOW_NET: network.allow_net" in text
    assert "environment HOLDFAST_X: unknown variable" in text


def test_a_wrong_value_is_reported_even_when_a_stronger_source_is_right(desk: Desk) -> None:
    desk.write("holdfast.toml", '[log]\nlevel = "loud"\n')
    assert len(desk.mistakes(HOLDFAST_LOG_LEVEL="info")) == 1


def test_an_unknown_key_names_the_nearest_known_one(desk: Desk) -> None:
    desk.write("holdfast.toml", "[storage.retention]\nmesage_ttl_s = 3\n[storage]\nallow_net=1\n")
    nested, moved = desk.mistakes()
    assert "did you mean 'storage.retention.message_ttl_s'?" in nested
    assert "did you mean 'network.allow_net'?" in moved


def test_a_second_name_for_a_variable_is_refused_with_the_right_one(desk: Desk) -> None:
    [line] = desk.mistakes(HOLDFAST_MODEL__NAME="x")
    assert "model.name is set with AGENT_MODEL" in line


def test_foreign_variables_are_ignored(desk: Desk) -> None:
    desk.write(".env", 'POSTGRES_PASSWORD=x\nPEM="-----BEGIN\nabc\n-----END"\nAGENT_MODEL=m\n')
    assert desk.load(AGENT_SMITH="1", HOLD="2").settings.model.name == "m"


def test_a_value_in_place_of_a_section_is_refused(desk: Desk) -> None:
    desk.write("holdfast.toml", 'storage = "here"\n')
    assert "is a section" in desk.mistakes()[0]


def test_the_environment_name_cannot_come_from_a_file(desk: Desk) -> None:
    desk.write("holdfast.toml", 'env = "prod"\n')
    assert "HOLDFAST_ENV only" in desk.mistakes()[0]


def test_the_overlay_may_be_chosen_in_dotenv(desk: Desk) -> None:
    desk.write(".env", "HOLDFAST_ENV=staging\n")
    desk.write("holdfast.staging.toml", '[log]\nformat = "json"\n')
    assert desk.load().settings.log.format == "json"


def test_an_unknown_environment_is_refused(desk: Desk) -> None:
    assert "env: should be 'dev', 'staging' or 'prod'" in desk.mistakes(HOLDFAST_ENV="qa")[0]


def test_the_named_config_file_replaces_the_project_file(desk: Desk) -> None:
    desk.write("holdfast.toml", '[model]\nname = "project"\n')
    other = desk.write("conf/other.toml", '[model]\nname = "other"\n')
    desk.write("conf/other.prod.toml", '[model]\nprovider = "p"\n')
    loaded = desk.load(HOLDFAST_CONFIG=str(other), HOLDFAST_ENV="prod")
    assert loaded.settings.model.name == "other"
    assert loaded.settings.model.provider == "p"


@pytest.mark.parametrize("value", ["/nowhere/x.toml", "~other/x.toml", "a\0b"])
def test_a_named_config_file_that_cannot_be_read_is_refused(desk: Desk, value: str) -> None:
    assert len(desk.mistakes(HOLDFAST_CONFIG=value)) == 1


def test_the_config_file_cannot_be_named_in_dotenv(desk: Desk) -> None:
    desk.write(".env", "HOLDFAST_CONFIG=/x.toml\n")
    assert "environment only" in desk.mistakes()[0]


def test_files_above_the_repository_are_not_read(desk: Desk) -> None:
    (desk.repo.parent / "holdfast.toml").write_text("nonsense", encoding="utf-8")
    assert desk.load().files == ()


def test_outside_a_repository_only_the_working_directory_counts(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "holdfast.toml").write_text("nonsense", encoding="utf-8")
    assert load_settings(cwd=below, environ={"HOME": str(tmp_path)}).files == ()


def test_a_directory_called_dotenv_is_no_file(desk: Desk) -> None:
    (desk.repo / ".env").mkdir()
    assert desk.load().files == ()


def test_relative_paths_start_at_the_file_that_names_them(desk: Desk) -> None:
    desk.write("holdfast.toml", '[storage]\nstate_dir = "state"\n')
    assert desk.load().settings.storage.state_dir == desk.repo / "state"
    assert desk.load(AGENT_STATE_DIR="s").settings.storage.state_dir == desk.cwd / "s"
    assert desk.load(AGENT_STATE_DIR="~").settings.storage.state_dir == desk.home


@pytest.mark.parametrize("value", ["~root/x", "a\0b", "a\nb"])
def test_paths_that_cannot_be_meant_are_refused(desk: Desk, value: str) -> None:
    assert len(desk.mistakes(AGENT_STATE_DIR=value)) == 1


def test_the_workspace_must_exist_and_the_state_dir_must_not_be_a_file(desk: Desk) -> None:
    file = desk.write("file", "x")
    lines = desk.mistakes(AGENT_WORKSPACE="missing", AGENT_STATE_DIR=str(file))
    assert [line.split(":")[0] for line in lines] == [
        "environment AGENT_WORKSPACE",
        "environment AGENT_STATE_DIR",
    ]


# --- secrets ---------------------------------------------------------------------------


def test_secrets_are_never_printed(desk: Desk) -> None:
    loaded = desk.load(OPENAI_API_KEY=KEY, ANTHROPIC_API_KEY=KEY)
    printed = f"{loaded!r} {loaded} {loaded.settings!r} {loaded.rows()}"
    assert KEY not in printed
    assert KEY not in loaded.settings.model_dump_json()


def test_a_bad_secret_is_not_repeated_in_the_error(desk: Desk) -> None:
    [line] = desk.mistakes(OPENAI_API_KEY=f"{KEY}\n{KEY}")
    assert line.startswith("environment OPENAI_API_KEY: secrets.openai_api_key")


def test_a_password_in_an_address_is_refused_and_not_repeated(desk: Desk) -> None:
    [line] = desk.mistakes(OPENAI_BASE_URL=f"http://me:{KEY}@127.0.0.1/")
    assert "must not contain" in line


def test_a_key_in_a_config_file_is_refused(desk: Desk) -> None:
    desk.write("holdfast.toml", f'[secrets]\nopenai_api_key = "{KEY}"\n')
    [line] = desk.mistakes()
    assert "set OPENAI_API_KEY" in line


def test_the_secrets_file_gives_keys(desk: Desk) -> None:
    path = desk.write(".holdfast/secrets.env", f"OPENAI_API_KEY={KEY}\nGROQ=g\n", mode=0o600)
    loaded = desk.load()
    assert loaded.settings.secrets.openai_api_key == SecretStr(KEY)
    assert loaded.settings.secrets.file == path
    assert loaded.find_source("secrets.file") == "found"
    assert loaded.secret("GROQ") == SecretStr("g")
    assert loaded.secret("NONE") is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_secrets_file_that_others_can_read_is_refused(desk: Desk, mode: int) -> None:
    desk.write(".holdfast/secrets.env", f"OPENAI_API_KEY={KEY}\n", mode=mode)
    [line] = desk.mistakes()
    assert "chmod 0600" in line


def test_a_named_secrets_file_must_exist(desk: Desk) -> None:
    assert "does not exist" in desk.mistakes(HOLDFAST_SECRETS_FILE="nowhere")[0]


def test_a_secrets_file_holds_only_secrets(desk: Desk) -> None:
    desk.write("s.env", "AGENT_MODEL=x\nHOLDFAST_NONE=1\n", mode=0o600)
    lines = desk.mistakes(HOLDFAST_SECRETS_FILE=str(desk.repo / "s.env"))
    assert "is no secret" in lines[0]
    assert "unknown variable" in lines[1]


def test_a_secret_is_looked_up_in_environment_then_secrets_file_then_dotenv(desk: Desk) -> None:
    desk.write(".env", "A=dotenv\nB=dotenv\nC=dotenv\n")
    desk.write(".holdfast/secrets.env", "A=file\nB=file\n", mode=0o600)
    loaded = desk.load(A="environment")
    found = [loaded.secret(name) for name in "ABC"]
    assert found == [SecretStr("environment"), SecretStr("file"), SecretStr("dotenv")]


def test_a_secrets_file_that_was_opened_to_others_later_is_refused(desk: Desk) -> None:
    path = desk.write(".holdfast/secrets.env", "A=file\n", mode=0o600)
    loaded = desk.load()
    path.chmod(0o644)
    with pytest.raises(ConfigError) as caught:
        loaded.secret("A")
    assert caught.value.code == "config.invalid"


@pytest.mark.parametrize("name", ["holdfast.toml", ".env"])
def test_a_project_cannot_send_my_key_to_a_foreign_address(desk: Desk, name: str) -> None:
    url = "https://evil.example/v1"
    text = f'[model]\nopenai_base_url = "{url}"\n' if "toml" in name else f"OPENAI_BASE_URL={url}"
    desk.write(name, text)
    desk.load()
    [line] = desk.mistakes(OPENAI_API_KEY=KEY)
    assert "would receive the key" in line
    confirmed = desk.load(OPENAI_API_KEY=KEY, OPENAI_BASE_URL=url)
    assert confirmed.settings.model.openai_base_url == url


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:1234/v1",
        "http://127.0.0.1:8080",
        "http://[::1]:1",
        "http://192.168.1.5:1234/v1",
        "http://host.docker.internal:1234/v1",
        "https://api.openai.com/v1",
    ],
)
def test_a_project_may_name_a_local_server_or_the_vendor(desk: Desk, url: str) -> None:
    desk.write("holdfast.toml", f'[model]\nopenai_base_url = "{url}"\n')
    assert desk.load(OPENAI_API_KEY=KEY).settings.model.openai_base_url == url


def test_a_project_may_bring_its_own_key_for_its_own_address(desk: Desk) -> None:
    desk.write("holdfast.toml", '[model]\nopenai_base_url = "https://models.example/v1"\n')
    desk.write(".holdfast/secrets.env", f"OPENAI_API_KEY={KEY}\n", mode=0o600)
    assert desk.load().settings.secrets.openai_api_key == SecretStr(KEY)


# --- the rest --------------------------------------------------------------------------


def test_settings_are_frozen(desk: Desk) -> None:
    with pytest.raises(ValidationError):
        desk.load().settings.model.name = "other"  # type: ignore[misc]


def test_unknown_arguments_are_refused(desk: Desk) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(overrides={"storage.statedir": "x"}, cwd=desk.cwd, environ=desk.environ)
    assert "did you mean 'storage.state_dir'?" in str(caught.value)


def test_a_deleted_working_directory_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={"HOME": str(tmp_path)})
    assert caught.value.code == "config.invalid"


def test_process_environment_and_directory_are_the_defaults(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in process_environment() if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(desk.home))
    monkeypatch.setenv("AGENT_MODEL", "from-process")
    monkeypatch.chdir(desk.cwd)
    loaded = load_settings()
    assert loaded.settings.model.name == "from-process"
    assert loaded.settings.workspace == desk.cwd


EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "config"


@pytest.mark.parametrize("env", ["dev", "staging", "prod"])
def test_the_example_files_are_valid(desk: Desk, env: str) -> None:
    for path in EXAMPLES.iterdir():
        name = ".env" if path.name == "env.example" else path.name
        desk.write(name, path.read_text(encoding="utf-8"))
    loaded = desk.load(HOLDFAST_ENV=env)
    assert len(loaded.files) == 3
    assert loaded.settings.env == env


def test_the_store_of_the_records_has_an_address(desk: Desk) -> None:
    assert desk.load().settings.storage.url == ""
    for url in ("memory://", "sqlite:///var/lib/holdfast", "postgresql://me@db.example/holdfast"):
        assert desk.load(HOLDFAST_STORAGE__URL=url).settings.storage.url == url


@pytest.mark.parametrize(
    "url", [f"postgresql://me:{KEY}@db/x", "/var/lib", "sqlite:x", "a://b c", "a://[b", "a://b:x"]
)
def test_an_address_of_a_store_that_cannot_be_meant_is_refused(desk: Desk, url: str) -> None:
    [mistake] = desk.mistakes(HOLDFAST_STORAGE__URL=url)
    assert mistake.startswith("environment HOLDFAST_STORAGE__URL: storage.url: must")


@pytest.mark.parametrize("name", ["holdfast.toml", ".env"])
def test_a_project_cannot_say_where_records_are_kept(desk: Desk, name: str) -> None:
    in_toml = name.endswith("toml")
    text = '[storage]\nurl = "memory://"' if in_toml else "HOLDFAST_STORAGE__URL=memory://"
    desk.write(name, f"{text}\n")
    [mistake] = desk.mistakes()
    assert "storage.url: a project cannot say where records are kept" in mistake


# --- secrets in files of their own -----------------------------------------------------


def test_key_comes_from_the_file_that_its_variable_names(desk: Desk) -> None:
    path = desk.write("mounted", f"{KEY}\n", mode=0o444)
    loaded = desk.load(OPENAI_API_KEY_FILE=str(path), MY_VENDOR_KEY_FILE=str(path))
    key = loaded.settings.secrets.openai_api_key
    assert key is not None
    assert key.get_secret_value() == KEY
    assert loaded.find_source("secrets.openai_api_key") == "environment OPENAI_API_KEY_FILE"
    other = loaded.secret("MY_VENDOR_KEY")
    assert other is not None
    assert other.get_secret_value() == KEY


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "is empty"), ("\n \n", "is empty"), (f"{KEY}\nmore", "must hold one line")],
)
def test_file_that_holds_no_secret_is_refused(desk: Desk, text: str, said: str) -> None:
    path = desk.write("mounted", text)
    [mistake] = desk.mistakes(OPENAI_API_KEY_FILE=str(path))
    assert mistake.startswith("environment OPENAI_API_KEY_FILE: ")
    assert said in mistake


def test_file_that_is_missing_relative_or_a_pipe_is_refused(desk: Desk) -> None:
    os.mkfifo(desk.repo / "pipe")
    for path in (str(desk.repo / "nowhere"), "mounted", str(desk.repo / "pipe"), "/"):
        assert len(desk.mistakes(OPENAI_API_KEY_FILE=path)) == 1
    assert desk.load(OPENAI_API_KEY_FILE=" ").settings.secrets.openai_api_key is None


def test_key_and_file_at_once_are_refused(desk: Desk) -> None:
    path = desk.write("mounted", KEY)
    [mistake] = desk.mistakes(OPENAI_API_KEY_FILE=str(path), OPENAI_API_KEY=KEY)
    assert "OPENAI_API_KEY is set too" in mistake


def test_project_cannot_have_files_read(desk: Desk) -> None:
    path = desk.write("id_rsa", KEY)
    desk.write(".env", f"OPENAI_API_KEY_FILE={path}\nOPENAI_BASE_URL=http://evil.example/v1\n")
    [mistake] = desk.mistakes()
    assert mistake.endswith(".env:1: OPENAI_API_KEY_FILE can be set in the environment only")


def test_other_settings_have_no_files(desk: Desk) -> None:
    path = desk.write("mounted", "debug")
    [mistake] = desk.mistakes(HOLDFAST_LOG_LEVEL_FILE=str(path))
    assert "unknown variable HOLDFAST_LOG_LEVEL_FILE" in mistake


def test_mounted_secrets_are_hidden_from_tools_and_from_every_text(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = desk.write("mounted", f"{KEY}-of-a-vendor\n")
    monkeypatch.setenv("MY_VENDOR_TOKEN_FILE", str(path))
    settings = desk.load().settings
    assert path in list_secret_places(settings)
    assert KEY not in process_redactor(settings).text(f"with {KEY}-of-a-vendor")

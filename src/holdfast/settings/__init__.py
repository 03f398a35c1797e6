"""Settings: the only reader of the environment and of configuration files.

`load_settings` reads all sources, checks everything at once and returns frozen
`Settings` together with where each value came from. Names are loaded when they are
first used, so that importing this room costs nothing.
"""

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.settings.definition import Settings as Settings
    from holdfast.settings.environment import is_color_unwanted as is_color_unwanted
    from holdfast.settings.environment import process_environment as process_environment
    from holdfast.settings.files import MAX_BYTES as MAX_BYTES
    from holdfast.settings.files import UnreadableFile as UnreadableFile
    from holdfast.settings.files import parse_toml as parse_toml
    from holdfast.settings.files import parse_variables as parse_variables
    from holdfast.settings.files import read_text as read_text
    from holdfast.settings.guarded import list_governing_places as list_governing_places
    from holdfast.settings.guarded import list_secret_places as list_secret_places
    from holdfast.settings.guarded import make_unvouched_settings as make_unvouched_settings
    from holdfast.settings.keys import CONFIG_VARIABLE as CONFIG_VARIABLE
    from holdfast.settings.keys import Key as Key
    from holdfast.settings.keys import list_keys as list_keys
    from holdfast.settings.keys import list_sections as list_sections
    from holdfast.settings.load import HOOKS_FOLDER as HOOKS_FOLDER
    from holdfast.settings.load import LoadedSettings as LoadedSettings
    from holdfast.settings.load import list_rows as list_rows
    from holdfast.settings.load import load_settings as load_settings
    from holdfast.settings.load import make_config_error as make_config_error
    from holdfast.settings.load import vouch_for as vouch_for
    from holdfast.settings.mcp import McpEndpoint as McpEndpoint
    from holdfast.settings.mcp import McpOAuth as McpOAuth
    from holdfast.settings.mcp import McpSandbox as McpSandbox
    from holdfast.settings.mcp import check_names as check_names
    from holdfast.settings.mcp import is_loopback as is_loopback
    from holdfast.settings.mcp import references as references
    from holdfast.settings.mcp_file import Place as Place
    from holdfast.settings.mcp_file import add_endpoint as add_endpoint
    from holdfast.settings.mcp_file import check_endpoint as check_endpoint
    from holdfast.settings.mcp_file import find_endpoint_file as find_endpoint_file
    from holdfast.settings.mcp_file import remove_endpoint as remove_endpoint
    from holdfast.settings.run_writes import RunWrites as RunWrites
    from holdfast.settings.run_writes import WriteWindow as WriteWindow
    from holdfast.settings.secrets import find_variables_around as find_variables_around
    from holdfast.settings.secrets import list_secret_values as list_secret_values
    from holdfast.settings.unvouched import Gap as Gap
    from holdfast.settings.unvouched import UnvouchedSettings as UnvouchedSettings
    from holdfast.settings.work import PromotionSettings as PromotionSettings
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "definition": "Settings",
            "environment": "is_color_unwanted process_environment",
            "files": "MAX_BYTES UnreadableFile parse_toml parse_variables read_text",
            "guarded": "list_governing_places list_secret_places make_unvouched_settings",
            "keys": "CONFIG_VARIABLE Key list_keys list_sections",
            "load": "HOOKS_FOLDER LoadedSettings list_rows load_settings make_config_error vouch_for",
            "mcp": "McpEndpoint McpOAuth McpSandbox check_names is_loopback references",
            "mcp_file": "Place add_endpoint check_endpoint find_endpoint_file remove_endpoint",
            "secrets": "list_secret_values find_variables_around",
            "run_writes": "RunWrites WriteWindow",
            "unvouched": "Gap UnvouchedSettings",
            "work": "PromotionSettings",
        },
    )

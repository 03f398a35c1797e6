"""How common keys look, and how personal data looks, as patterns with a name each.

Every pattern begins with a text that is rare elsewhere (its clues), so that a search in
ordinary text ends before any pattern is tried. Patterns never cross a quote, so that what
they cover lies inside one string.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

LONG = 16
"""How many letters, digits, `_` and `-` in a row make a text worth a closer look."""


class KeyFormat(NamedTuple):
    """One format. The pattern's group `keep`, if any, stands before the secret and stays.

    Without any of the clues in a text the pattern is not tried; without clues, always.
    `is_long` promises that a row of at least `LONG` letters, digits, `_` and `-` begins with the
    clue in whatever the pattern finds, so that only such rows need a look;
    `is_before_long`, that such a row follows right behind the clue. Else clues are in lower case
    and found in any case. Where `needs` is not in the text as well, nothing is tried; for clues
    in any case it is a character without one. `is_real` judges what was found.
    """

    name: str
    pattern: str
    clues: tuple[str, ...] = ()
    is_long: bool = False
    is_before_long: bool = False
    needs: str = ""
    is_real: Callable[[str], bool] | None = None

    def mark(self, found: re.Match[str]) -> str:
        """What stands in the place of what was found."""
        kept = found.groupdict().get("keep") or ""
        secret = found[0][len(kept) :]
        if self.is_real is not None and not self.is_real(secret):
            return found[0]
        return f"{kept}[redacted:{self.name}]"


def _is_mixed(text: str) -> bool:
    """Keys are random: letters and digits both. Words with hyphens are not."""
    body = text[3:]
    return any(map(str.isdigit, body)) and any(map(str.isalpha, body))


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _is_password(text: str) -> bool:
    """Not a place for one, such as `${PASSWORD}`, `<password>`, `***` or an earlier marker."""
    return not re.fullmatch(
        r"\$.*|<.*|\{.*|\[redacted.*|[*x.]+|%s|password|passwd|pass|secret", text, re.IGNORECASE
    )


# What people and tests write where a secret would stand.
_PLACEHOLDER = (
    r"(?i)\$.*|<.*|\{.*|%.*|\[redacted.*|.*(?:example|placeholder|changeme|change[-_]me|your[-_]|"
    r"dummy|sample|xxxx|\*\*\*|\.\.\.|12345|abcdef|qwerty|password|passwd|secret|token|"
    r"hunter2).*|.{0,10}(?:test|foo|bar).{0,10}"
)
_LEAST_PASSWORD, _LEAST_KEY = 8, 16


def _compute_entropy(text: str) -> float:
    """Bits per character, as the characters of the text itself are spread."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)


def is_assigned_password(text: str) -> bool:
    """Say whether a text that something called password is set to is one, and not a word.

    It has letters, and digits or signs among them; identifiers, paths, sentences and names of
    placeholders have not, or are known.
    """
    if len(text) < _LEAST_PASSWORD or re.fullmatch(_PLACEHOLDER, text) or " " in text:
        return False
    has_letters = any(map(str.isalpha, text))
    has_digits = any(map(str.isdigit, text))
    has_signs = any(not char.isalnum() and char not in "_-./:" for char in text)
    is_plain = re.fullmatch(
        r"(?:[a-z_./:-]+|[A-Z_./:-]+|[A-Z][a-z]+|[a-z]+[A-Z][a-z]+)[0-9]{0,2}", text
    )
    return has_letters and (has_digits or has_signs) and is_plain is None and _is_spread(text, 2.6)


def is_assigned_key(text: str) -> bool:
    """Say whether a text that something called key, token or secret is set to looks random."""
    if len(text) < _LEAST_KEY or re.fullmatch(_PLACEHOLDER, text) or " " in text:
        return False
    # A path, a dotted name or a version is no key, and neither are words with hyphens.
    if re.fullmatch(r"[a-z]+(?:[-_.:/][a-z0-9]+)*|/.*|https?:.*", text):
        return False
    digits, letters = sum(map(str.isdigit, text)), sum(map(str.isalpha, text))
    return digits >= 1 and letters >= 3 and _is_spread(text, 3.2 if letters > digits else 2.8)


def _is_spread(text: str, bits: float) -> bool:
    return _compute_entropy(text) >= bits


PASSWORD_NAMES = ("password", "passwd", "passphrase", "pwd")
KEY_NAMES = (
    "secret", "token", "api_key", "apikey", "api-key", "access_key", "accesskey", "access-key",
    "auth_key", "authkey", "private_key", "privatekey", "client_key", "credential", "credentials",
)  # fmt: skip


def _list_assignment_clues(names: tuple[str, ...]) -> tuple[str, ...]:
    """What stands right behind a name that something is assigned to."""
    return tuple(
        f"{name}{sign}" for name in names for sign in ("=", " =", ":", " :", '"', "'", "\\")
    )


def _make_assignment(
    name: str, names: tuple[str, ...], is_real: Callable[[str], bool], clues: tuple[str, ...]
) -> tuple[KeyFormat, KeyFormat]:
    """A value that a telling name is set to: quoted anywhere, or bare as in files of variables."""
    words = "|".join(map(re.escape, names))
    quote = r"\\{0,9}[\"'`]"
    quoted = (
        rf"(?P<keep>(?i:{words})(?:{quote})?\]?[ \t]{{0,8}}(?::=|=>|[:=])[ \t]{{0,8}}"
        rf"[bBrRuUfF]{{0,2}}{quote})[^\s\"'`\\]{{6,200}}(?={quote})"
    )
    bare = (
        rf"(?P<keep>(?:(?<![A-Za-z0-9_])[A-Z0-9_]{{0,40}}(?:{words.upper().replace('-', '_')})="
        rf"|(?<![\w.-])[\w.-]{{0,40}}(?i:{words}):[ \t]{{1,4}}))"
        r"[^\s\"'`\\,;(){}\[\]<>]{6,200}(?=[\s\"'`\\,;]|$)"
    )
    return (
        KeyFormat(name=name, clues=clues, pattern=quoted, is_real=is_real),
        KeyFormat(name=name, clues=clues, pattern=bare, is_real=is_real),
    )


def _passes_luhn(text: str) -> bool:
    digits = [int(char) for char in text if char.isdigit()]
    if len(set(digits)) < 2:
        return False
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _passes_iban(text: str) -> bool:
    plain = text.replace(" ", "")
    if not 15 <= len(plain) <= 34:
        return False
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


# At the beginning of a word, or right behind an escape of JSON or a colour of a terminal.
_BEHIND_ESCAPE = r"(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4})|(?<=[\[;][0-9]m)|(?<=[\[;][0-9]{2}m)"
_START = rf"(?:(?<![A-Za-z0-9_-])|{_BEHIND_ESCAPE})"
_END = r"(?![A-Za-z0-9_-])"


def _make_key(name: str, clue: str, rest: str, *, more: tuple[str, ...] = ()) -> KeyFormat:
    """A key that begins with a fixed text."""
    clues = (clue, *more)
    starts = "|".join(map(re.escape, clues))
    has_dot = any("." in one for one in clues)
    return KeyFormat(
        name=name,
        clues=clues,
        pattern=f"{_START}(?:{starts}){rest}{_END}",
        is_long=not has_dot,
        is_before_long=has_dot,
    )


FORMATS: tuple[KeyFormat, ...] = (
    _make_key("anthropic-key", "sk-ant-", r"[A-Za-z0-9_-]{20,}"),
    _make_key("openrouter-key", "sk-or-", r"[A-Za-z0-9_-]{20,}"),
    KeyFormat(
        name="openai-key",
        clues=("sk-",),
        is_long=True,
        pattern=rf"{_START}sk-(?:proj-|svcacct-|admin-|None-)?[A-Za-z0-9_-]{{20,}}",
        is_real=_is_mixed,
    ),
    KeyFormat(
        name="aws-access-key",
        clues=("AKIA", "ASIA", "ABIA", "ACCA"),
        is_long=True,
        pattern=rf"(?:(?<![A-Za-z0-9_+/-])|{_BEHIND_ESCAPE})(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{{16}}"
        r"(?![A-Za-z0-9+/])",
    ),
    KeyFormat(
        name="aws-secret-key",
        clues=("secret",),
        pattern=r"(?P<keep>[sS](?i:ecret_?(?:access_?)?key)[\\\"']{0,4}\s{0,3}[:=]"
        r"\s{0,3}[\\\"']{0,4})[A-Za-z0-9/+=]{40}(?![A-Za-z0-9/+=])",
    ),
    _make_key(
        "github-token", "ghp_", r"[A-Za-z0-9]{36,255}", more=("gho_", "ghu_", "ghs_", "ghr_")
    ),
    _make_key("github-token", "github_pat_", r"[A-Za-z0-9_]{50,255}"),
    _make_key(
        "gitlab-token",
        "glpat-",
        r"[A-Za-z0-9_-]{16,}(?:\.[A-Za-z0-9_-]+)*",
        more=("gldt-", "glrt-", "glptt-"),
    ),
    _make_key(
        "slack-token", "xoxb-", r"[A-Za-z0-9-]{20,}", more=("xoxp-", "xoxa-", "xoxr-", "xoxs-")
    ),
    _make_key("slack-token", "xapp-", r"[0-9]-[A-Za-z0-9-]{20,}"),
    KeyFormat(
        name="slack-webhook",
        clues=("hooks.slack.com",),
        pattern=r"(?P<keep>hooks\.slack\.com/(?:services|workflows)/)[A-Za-z0-9/_+-]{20,}",
    ),
    _make_key("google-key", "AIza", r"[A-Za-z0-9_-]{35}"),
    _make_key("google-oauth-token", "ya29.", r"[A-Za-z0-9_-]{20,}"),
    _make_key("google-oauth-secret", "GOCSPX-", r"[A-Za-z0-9_-]{20,}"),
    _make_key(
        "stripe-key",
        "sk_live_",
        r"[A-Za-z0-9]{16,}",
        more=("sk_test_", "rk_live_", "rk_test_", "whsec_"),
    ),
    _make_key("huggingface-token", "hf_", r"[A-Za-z0-9]{30,}"),
    _make_key("npm-token", "npm_", r"[A-Za-z0-9]{36}"),
    _make_key("pypi-token", "pypi-", r"AgE[A-Za-z0-9_-]{50,}"),
    _make_key("docker-token", "dckr_pat_", r"[A-Za-z0-9_-]{20,}"),
    _make_key("digitalocean-token", "dop_v1_", r"[a-f0-9]{64}", more=("doo_v1_", "dor_v1_")),
    _make_key("sendgrid-key", "SG.", r"[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}"),
    _make_key("groq-key", "gsk_", r"[A-Za-z0-9]{40,}"),
    _make_key("xai-key", "xai-", r"[A-Za-z0-9]{40,}"),
    _make_key("replicate-token", "r8_", r"[A-Za-z0-9]{37}"),
    _make_key("perplexity-key", "pplx-", r"[A-Za-z0-9]{40,}"),
    _make_key("tavily-key", "tvly-", r"[A-Za-z0-9-]{20,}"),
    _make_key("shopify-token", "shpat_", r"[a-fA-F0-9]{32}", more=("shpca_", "shppa_", "shpss_")),
    _make_key("vault-token", "hvs.", r"[A-Za-z0-9_-]{20,}", more=("hvb.",)),
    _make_key("linear-key", "lin_api_", r"[A-Za-z0-9]{32,}"),
    _make_key("notion-token", "ntn_", r"[A-Za-z0-9]{40,}"),
    _make_key("age-key", "AGE-SECRET-KEY-1", r"[A-Z0-9]{58}"),
    KeyFormat(
        name="azure-key",
        clues=("accountkey=", "sharedaccesskey=", "accesskey="),
        pattern=r"(?P<keep>(?i:AccountKey|SharedAccessKey|AccessKey)=)[A-Za-z0-9+/]{32,100}={0,2}",
        is_real=_has_digit,
    ),
    KeyFormat(
        name="azure-sas",
        clues=("sig=",),
        pattern=r"(?P<keep>[?&;]sig=)[A-Za-z0-9%+/_-]{30,120}={0,2}",
        is_real=_has_digit,
    ),
    KeyFormat(
        name="azure-client-secret",
        clues=("8q~", "7q~"),
        pattern=r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}[78][qQ]~[A-Za-z0-9_~.-]{31,34}"
        r"(?![A-Za-z0-9_~.-])",
    ),
    KeyFormat(
        name="twilio-key",
        clues=("SK",),
        is_long=True,
        pattern=rf"{_START}SK[0-9a-f]{{32}}{_END}",
    ),
    _make_key("cloudflare-key", "v1.0-", r"[a-f0-9]{24}-[a-f0-9]{146}"),
    _make_key("databricks-token", "dapi", r"[a-f0-9]{32}(?:-[0-9])?"),
    _make_key("doppler-token", "dp.pt.", r"[A-Za-z0-9]{43}"),
    _make_key("mailgun-key", "key-", r"[a-f0-9]{32}"),
    _make_key("mailchimp-key", "xkeysib-", r"[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    _make_key("newrelic-key", "NRAK-", r"[A-Z0-9]{27}"),
    _make_key("planetscale-token", "pscale_tkn_", r"[A-Za-z0-9=_.-]{32,64}", more=("pscale_pw_",)),
    _make_key("postman-key", "PMAK-", r"[a-f0-9]{24}-[a-f0-9]{34}"),
    _make_key("pulumi-token", "pul-", r"[a-f0-9]{40}"),
    _make_key("rubygems-key", "rubygems_", r"[a-f0-9]{48}"),
    _make_key("sentry-token", "sntrys_", r"[A-Za-z0-9+/=_]{40,}", more=("sntryu_",)),
    _make_key("square-token", "sq0atp-", r"[A-Za-z0-9_-]{22,}", more=("sq0csp-",)),
    _make_key("supabase-key", "sbp_", r"[a-f0-9]{40}", more=("sb_secret_",)),
    _make_key("terraform-token", "ATLASv1.", r"[A-Za-z0-9_=-]{60,70}"),
    _make_key("atlassian-token", "ATATT3", r"[A-Za-z0-9_=-]{180,220}"),
    _make_key("dynatrace-token", "dt0c01.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    _make_key("easypost-key", "EZAK", r"[A-Za-z0-9]{54}", more=("EZTK",)),
    _make_key("flyio-token", "fo1_", r"[A-Za-z0-9_-]{43}", more=("fm2_",)),
    _make_key("grafana-token", "glsa_", r"[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}", more=("glc_",)),
    _make_key("heroku-key", "HRKU-", r"[A-Za-z0-9_-]{36,64}"),
    _make_key("gcp-oauth-refresh", "1//0", r"[A-Za-z0-9_-]{35,100}"),
    KeyFormat(
        name="discord-webhook",
        clues=("/api/webhooks/",),
        pattern=r"(?P<keep>/api/webhooks/[0-9]{17,20}/)[A-Za-z0-9_-]{60,80}",
    ),
    *_make_assignment("password", PASSWORD_NAMES, is_assigned_password, PASSWORD_NAMES),
    *_make_assignment("secret", KEY_NAMES, is_assigned_key, _list_assignment_clues(KEY_NAMES)),
    KeyFormat(
        name="telegram-token",
        clues=("AA",),
        needs=":AA",
        is_long=True,
        pattern=r"(?<![0-9:])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])",
    ),
    KeyFormat(
        name="jwt",
        clues=("eyJ",),
        is_long=True,
        pattern=rf"{_START}eyJ[A-Za-z0-9_-]{{13,}}\.eyJ"
        r"[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    ),
    KeyFormat(
        name="private-key",
        clues=("private key",),
        needs="-",
        # To its end, or as far as it goes if it was cut.
        pattern=r"-----BEGIN (?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[A-Za-z0-9+/=\s:,.-]|\\+[nrt])*?"
        r"(?:-----END (?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"|(?=[^A-Za-z0-9+/=\s:,.\\-]|\\+[^nrt\\])|$)",
    ),
    KeyFormat(
        name="authorization",
        clues=("authorization",),
        pattern=r"(?P<keep>[aA](?i:uthorization)[\\\"']{0,4}\s{0,3}[:=]\s{0,3}[\\\"']{0,4}"
        r"(?i:bearer|basic|token)\s{1,3})[A-Za-z0-9_.~+/=-]{16,}",
        is_real=_has_digit,
    ),
    KeyFormat(
        name="authorization",
        clues=("bearer ",),
        pattern=r"(?P<keep>[bB](?i:earer)\s{1,3})[A-Za-z0-9_.~+/=-]{16,}",
        is_real=_has_digit,
    ),
    KeyFormat(
        name="password",
        clues=("://",),
        needs="@",
        pattern=r"(?P<keep>://[^/\s:@\"'\\\[]{0,100}:)"
        r"[^/\s@\"'\\]{3,200}(?=@)",
        is_real=_is_password,
    ),
)
"""Formats of keys."""


PERSONAL: tuple[KeyFormat, ...] = (
    KeyFormat(
        name="email",
        clues=("@",),
        pattern=r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@"
        r"(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9-])",
    ),
    KeyFormat(
        name="iban",
        pattern=r"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?"
        r"(?![A-Za-z0-9])",
        is_real=_passes_iban,
    ),
    KeyFormat(
        name="card",
        pattern=r"(?<![0-9A-Za-z.-])[3-6][0-9]{3}(?:[ -]?[0-9]{4}){2}[ -]?[0-9]{1,7}"
        r"(?![0-9A-Za-z-])",
        is_real=_passes_luhn,
    ),
    KeyFormat(
        name="phone",
        clues=("+",),
        pattern=r"(?<![0-9A-Za-z+.-])\+[1-9][0-9]{0,2}[ ./-]?"
        r"(?:\(?[0-9]{1,4}\)?[ ./-]?){2,5}[0-9]{2,4}(?![0-9A-Za-z])",
        is_real=lambda text: 8 <= sum(map(str.isdigit, text)) <= 15,
    ),
)
"""Formats of personal data; used only where a caller asked for it."""

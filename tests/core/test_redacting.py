"""What looks like a password or token goes, wherever it stands; what does not stays readable."""

import base64
import json
import shlex
from urllib.parse import quote, quote_plus

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from flock.core.redacting import HIDDEN, Redactor
from thoroughness import examples

S = "hunter2-Zq9x"


@pytest.mark.parametrize(
    "line",
    [
        f'  password "{S}";',
        f"password={S}",
        f"password: {S} peer=r1",
        f'{{"password":"{S}"}}',
        f'said="{{\\"token\\": \\"{S}\\"}}"',
        f"Authorization: Bearer {S}",
        f"GET / Authorization: Basic {S}",
        f"BGP_PASSWORD={S}",
        f"my-api-key = '{S} and more {S}'",
        f"https://admin:{S}@registry.example/v2",
        f"-----BEGIN RSA PRIVATE KEY-----\nabc{S}\nxyz\n-----END RSA PRIVATE KEY-----",
        f"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.{S}",
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\nabc{S}",
        f"{S}\n{S}\n-----END RSA PRIVATE KEY-----",
        f'  password "abc\\";\n  password "{S}";',
        f'  password "abc\\" {{ id 1; }}\n  password "{S}" {{ id 2; }}',
        f'  secret "{S}";',
        f'password="abc\\" token="{S}" peer="r1"',
        f'{{"password":"a\\"b{S}","x":"y"}}',
        f'said="{{\\"token\\": \\"a\\\\\\"b{S}\\"}}"',
        f"password='a\\'b{S}'",
        f"password='a'\\''b{S}'",
        f"password: 'a''b{S}'",
        f'password="cut off {S}',
        f'password "cut off {S}',
        f'password="first line\n{S}" x="y"',
        f'password=a"b,c;d}}{S}',
        f"  password: some words, {S}",
        f'{{"passwords":["a]b","{S}"]}}',
        f'{{"password":{{"value":"{S}"}}}}',
        f"passwords: [a, {S}]",
        f"  passwords:\n  - a\n  - {S}\nnext: x",
        f"  password: |\n    some\n    {S}\n  next: x",
        f"--token {S} --x",
        f" neighbor 192.0.2.1 password {S}",
        f" ip ospf message-digest-key 1 md5 {S}",
        f'Authorization: Digest username="x", response="{S}"',
        f"Cookie: a=b; session={S}",
        f"redis://:{S}@cache",
        f"https://admin:a/b@c{S}@registry.example/v2",
        f"client-key-data: {S}",
    ],
)
def test_what_a_word_or_a_form_betrays_goes(line: str) -> None:
    cleaned = Redactor().text(line)
    assert S not in cleaned and HIDDEN in cleaned


@pytest.mark.parametrize("line", [f"x {S} y", f"{base64.b64encode(S.encode()).decode()}", f"({S})"])
def test_a_known_secret_goes_wherever_it_stands(line: str) -> None:
    assert Redactor().text(line) == line
    assert S not in Redactor([f"{S}\n"]).text(line)
    assert base64.b64encode(S.encode()).decode() not in Redactor([S]).text(line)


@pytest.mark.parametrize(
    "line",
    [
        "spec.bgp.peers[0].passwordFile: /etc/flock/secrets/tor1",
        '{"passwordSecretRef":{"name":"bgp","key":"tor1"}}',
        "session down peer=r1 error=Hold timer expired",
        "route 2001:db8::/64 via fe80::1 dev eth0",
    ],
)
def test_where_a_password_is_and_everything_else_stays(line: str) -> None:
    assert Redactor().text(line) == line


def test_a_short_secret_does_not_eat_the_text() -> None:
    assert Redactor(["an", ""]).text("anycast") == "anycast"


def test_in_json_a_key_hides_what_it_has_and_the_rest_keeps_its_shape() -> None:
    given = {
        "token": S,
        "n": 1,
        "rows": [{"bgpPassword": S, "said": f"password={S}"}],
        "passwordFile": "/a/b",
        "x": None,
    }
    assert Redactor().value(given) == {
        "token": HIDDEN,
        "n": 1,
        "rows": [{"bgpPassword": HIDDEN, "said": f"password={HIDDEN}"}],
        "passwordFile": "/a/b",
        "x": None,
    }


@pytest.mark.parametrize("value", [12345678, 1.5, [S, 7], [[S]], {"value": S}, {"name": "x", "value": S}])
@pytest.mark.parametrize("key", ["password", "bgpPassword", "passwords", "client-key-data", "apiToken"])
def test_whatever_a_key_that_names_a_secret_has_is_hidden(key: str, value: object) -> None:
    told = str(Redactor().value({key: value})[key])
    assert HIDDEN in told and not any(part in told for part in (S, "12345678", "1.5", "7"))


@pytest.mark.parametrize("value", [True, None, "", [], {"name": "bgp", "key": "tor1"}])
def test_whether_there_is_a_secret_and_where_may_be_said(value: object) -> None:
    assert Redactor().value({"secret": value}) == {"secret": value}


def test_a_known_secret_goes_from_keys_and_from_numbers() -> None:
    assert Redactor(["20261118", S]).value({"x": 20261118, f"a{S}": 5}) == {"x": HIDDEN, f"a{HIDDEN}": 5}


@pytest.mark.parametrize("known", ["password", "ass", "token=", "word", "ord="])
def test_a_known_secret_that_is_part_of_a_word_does_not_hide_another_one_behind_it(known: str) -> None:
    assert S not in Redactor([known]).text(f"x password={S} token={S}")


def test_known_secrets_that_overlap_go_whole() -> None:
    assert Redactor(["abcdef", "efghij"]).text("x abcdefghij y") == f"x {HIDDEN} y"
    assert Redactor(["abab"]).text("ababab.") == f"{HIDDEN}."


def spelled(secret: str) -> list[str]:
    """As programs write it."""
    data = secret.encode()
    return [
        secret,
        json.dumps(secret),
        json.dumps(json.dumps({"x": secret})),
        repr(secret),
        shlex.quote(secret),
        yaml.safe_dump(secret, width=9999),
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        *(base64.b64encode(before + data + b"\n").decode() for before in (b"", b"u", b"u:", b"u: ")),
        base64.urlsafe_b64encode(b"user:" + data).decode(),
        data.hex(),
    ]


secrets = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=10, max_size=80)


def leaks(secret: str, told: str, *, anyway: str) -> list[str]:
    """What of it is there, eight characters at a time, that is not there anyway."""
    parts = (secret[at : at + 8] for at in range(len(secret) - 7))
    return [part for part in parts if part in told and part not in anyway]


@settings(max_examples=examples(1000))
@given(secrets)
def test_whatever_is_known_goes_as_a_whole_however_it_is_spelled(secret: str) -> None:
    secret = f"Q{secret}Z"
    redactor = Redactor([secret, "another one"])
    for spelling in spelled(secret):
        told = redactor.text(f"before {spelling} after\n")
        assert HIDDEN in told, spelling
        forms = (secret, base64.b64encode(secret.encode()).decode()[2:-6], secret.encode().hex(), quote(secret))
        assert not any(leaks(form, told, anyway=f"before {HIDDEN} after") for form in forms), told
        assert told.startswith("before ") and told.rstrip().endswith("after")


def introducing(word: str, secret: str) -> list[str]:
    return [
        json.dumps({word: secret, "x": "y"}),
        json.dumps({word: [1, secret], "x": "y"}),
        json.dumps(json.dumps({word: secret, "x": "y"})),
        json.dumps(json.dumps(json.dumps({word: secret}))),
        yaml.safe_dump({"x": {word: secret}}),
        yaml.safe_dump({"x": {word: [secret, secret]}}),
        f"{word}={shlex.quote(secret)} x=y",
        repr({word: secret}),
        f"x {word}={secret.replace(' ', '_')} y",
        *([f'  {word} "{secret}";\n  bfd on;', f'{word} "{secret}" {{\n'] if '"' not in secret else ()),
    ]


@settings(max_examples=examples(1000))
@given(secrets, st.sampled_from(["password", "token", "BGP_PASSWORD", "api-key", "client_secret"]))
def test_whatever_a_word_introduces_goes_as_a_whole_however_it_is_quoted(secret: str, word: str) -> None:
    secret = f"Q{secret}Z"
    for line, other in zip(introducing(word, secret), introducing(word, "7"), strict=False):
        told = Redactor().text(line)
        assert not leaks(secret, told, anyway=Redactor().text(other)), (line, told)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "word",
    [
        "a",
        "-",
        "token",
        "-eyJ",
        "token ",
        'token="',
        "://a:",
        "-----BEGIN ",
        " ",
        'token="\\"',
        'token=\\"\\\\\\"',
        "token='",
        "token: ",
        "password:\n",
        "password: |\n ",
        "@",
        "-----END PRIVATE KEY-----\n",
        "token=[",
        "--token ",
        "neighbor ",
        "password aa:",
        'token "\\";',
        "token='\\''",
        "\n - password:\n",
    ],
)
def test_whatever_somebody_wrote_into_an_annotation_is_looked_through_in_no_time(word: str) -> None:
    text = (word * 250_000)[:250_000]
    told = Redactor([S]).text(f"{text}\npassword={S}")
    assert told.endswith(HIDDEN) and S not in told
    assert Redactor([S]).value({text: "x"})[text] in ("x", HIDDEN)

"""What looks like a password or token goes, wherever it stands; what does not stays readable."""

import base64

import pytest

from flock.core.redacting import HIDDEN, Redactor

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


@pytest.mark.timeout(20)
@pytest.mark.parametrize("word", ["a", "-", "token", "-eyJ", "token ", 'token="', "://a:", "-----BEGIN ", " "])
def test_whatever_somebody_wrote_into_an_annotation_is_looked_through_in_no_time(word: str) -> None:
    text = (word * 250_000)[:250_000]
    assert Redactor([S]).text(f"{text} password={S}").endswith(f"password={HIDDEN}")
    assert Redactor([S]).value({text: "x"})[text] in ("x", HIDDEN)

"""CNI_ARGS as runtimes send it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.core.cni import KEYS, CniArgs, parse_cni_args
from flock.core.errors import Code, FieldError


def test_what_containerd_sends_is_read() -> None:
    text = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c0ffee;K8S_POD_UID=1-2"
    assert parse_cni_args(text) == CniArgs(namespace="shop", name="web-0", uid="1-2", infra_container_id="c0ffee")


@pytest.mark.parametrize("text", ["", ";", " ; ", "IgnoreUnknown=true", "K8S_POD_NAME=", "X=a=b;"])
def test_nothing_about_the_pod_is_not_an_error(text: str) -> None:
    assert parse_cni_args(text) == CniArgs()


def test_of_a_repeated_key_the_last_counts() -> None:
    assert parse_cni_args("K8S_POD_NAME=a; K8S_POD_NAME = b") == CniArgs(name="b")


@pytest.mark.parametrize(
    "text", ["K8S_POD_NAME", "=x", "a=b;c", 'K8S_POD_NAME=a"b', "K8S_POD_NAME=../x", "K8S_POD_UID=a\nb"]
)
def test_a_malformed_pair_is_refused_with_the_code_for_the_environment(text: str) -> None:
    with pytest.raises(FieldError) as error:
        parse_cni_args(text)
    assert error.value.field == "CNI_ARGS"
    assert error.value.code == Code.INVALID_ENVIRONMENT


def test_a_name_longer_than_kubernetes_has_is_refused() -> None:
    assert parse_cni_args(f"K8S_POD_NAME={'a' * 253}").name == "a" * 253
    with pytest.raises(FieldError):
        parse_cni_args(f"K8S_POD_NAME={'a' * 254}")


TEXT = st.text(max_size=20)


@given(st.lists(st.one_of(TEXT, st.builds("{}={}".format, st.sampled_from(list(KEYS)), TEXT))))
def test_any_text_is_read_or_refused(pairs: list[str]) -> None:
    try:
        args = parse_cni_args(";".join(pairs))
    except FieldError as error:
        assert error.field == "CNI_ARGS"
        assert "\n" not in error.msg
    else:
        assert all(value.isascii() for value in (args.namespace, args.name, args.uid, args.infra_container_id))

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.advantage import AdvantageError, build
from core.config import parse_run
from core.counterfactual import Spec
from core.counterfactual.spec import LONGEST

FULL = "a3po;base=dapo;also=adora_amplify,psr;rho_positive=3;a3po.ratio=0.1;decay_fraction=none;mass_matched=1"
FULL += ";dynamic_sampling=0;loss.clip_high=0.3;loss.aggregation=sequence_mean"


def test_a_line_says_what_build_takes():
    spec = Spec.parse(FULL)
    assert spec == Spec(
        name="a3po",
        base="dapo",
        also=("adora_amplify", "psr"),
        params={"rho_positive": 3, "a3po.ratio": 0.1, "decay_fraction": None},
        loss={"clip_high": 0.3, "aggregation": "sequence_mean"},
        mass_matched=True,
        dynamic_sampling=False,
    )
    assert spec.text == FULL
    method = spec.build()
    assert method == build(
        "a3po",
        base="dapo",
        also=("adora_amplify", "psr"),
        params={"rho_positive": 3, "ratio": 0.1},
        loss={"clip_high": 0.3, "aggregation": "sequence_mean"},
        dynamic_sampling=False,
        mass_matched=True,
    )
    assert method.mass_matched and not method.dynamic_sampling and method.loss.clip_high == 0.3


def test_a_bare_name_leaves_everything_to_the_recipe():
    assert Spec.parse("grpo") == Spec("grpo")
    assert Spec.parse("dapo").build().dynamic_sampling
    assert not Spec.parse("dapo;dynamic_sampling=false").build().dynamic_sampling


def test_spaces_and_a_last_semicolon_are_forgiven():
    assert Spec.parse(" a3po ; also = adora_amplify , psr ;; rho_positive = 3 ; ") == Spec.parse(
        "a3po;also=adora_amplify,psr;rho_positive=3"
    )


@pytest.mark.parametrize(
    ("value", "read"), [("3", 3), ("-2", -2), ("0.5", 0.5), (".5", 0.5), ("2.", 2.0), ("1e-3", 1e-3), ("none", None),
                        ("linear", "linear"), ("1e999", float("inf"))],
)  # fmt: skip
def test_values(value, read):
    found = Spec.parse(f"a3po;alpha={value}").params["alpha"]
    assert found == read and type(found) is type(read)


names = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True).filter(
    lambda name: name not in ("base", "also", "mass_matched", "dynamic_sampling", "none")
)
values = st.one_of(st.integers(-9999, 9999), st.floats(allow_nan=False, allow_infinity=False), st.none(), names)


@given(
    st.builds(
        Spec,
        name=names,
        base=st.none() | names,
        also=st.lists(names, max_size=3).map(tuple),
        params=st.dictionaries(names | st.tuples(names, names).map(".".join), values, max_size=4).filter(
            lambda params: not any(key.startswith("loss.") for key in params)
        ),
        loss=st.dictionaries(names, values, max_size=2),
        mass_matched=st.booleans(),
        dynamic_sampling=st.none() | st.booleans(),
    )
)
def test_every_spec_comes_back_from_its_line(spec):
    assert Spec.parse(spec.text) == spec


@given(st.text(max_size=60))
def test_any_text_is_a_spec_or_a_sentence(text):
    try:
        assert Spec.parse(Spec.parse(text).text) == Spec.parse(text)
    except AdvantageError as error:
        assert "\n" not in str(error) and len(str(error)) < 250


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "begins with its name"),
        ("base=dapo", "begins with its name"),
        ("a3po;rho", "'rho' is no setting: write key=value"),
        ("a3po;=3", "'=3' is no setting"),
        ("a3po;rho positive=3", "is no setting"),
        ("a3po;ratio=0.1;ratio=0.2", "ratio stands twice"),
        ("a3po;ratio=", "ratio must be a number or a word, but is ''"),
        ("a3po;ratio=1_000.5", "ratio must be a number or a word"),
        ("a3po;also=psr,", "also must be a number or a word"),
        ("a3po;base=<b>", "base must be a number or a word, but is '<b>'"),
        ("a3po;mass_matched=yes", "mass_matched must be 1 or 0, but is 'yes'"),
        ("a3po;ratio=" + "1" * LONGEST, f"may have {LONGEST} characters"),
    ],
)
def test_lines_that_cannot_be_read(line, words):
    with pytest.raises(AdvantageError) as caught:
        Spec.parse(line)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a3pp", "there is no method 'a3pp'; did you mean a3po?"),
        ("a3po;base=psr", "psr is no base rule"),
        ("a3po;rho=3", "there is no parameter 'rho'"),
        ("a3po;ratio=2", "ratio must be between 0 and 1, but is 2"),
        ("a3po;ratio=1e999", "ratio must be a finite number"),
        ("grpo;loss.clip=3", "the loss has no field 'clip'"),
        ("grpo;loss.objective=none", "loss.objective must be"),
    ],
)
def test_methods_that_do_not_exist_are_refused_by_build(line, words):
    with pytest.raises(AdvantageError) as caught:
        Spec.parse(line).build()
    assert words in str(caught.value)


def test_a_runs_own_method():
    config = parse_run(
        {
            "method": {"name": "a3po", "also": ["adora_amplify"], "set": {"rho_positive": 3}, "mass_matched": True},
            "loss": {"clip_high": 0.3},
            "dynamic_sampling": {"enabled": False},
        }
    )
    spec = Spec.of_run(config)
    assert spec.text == (
        "a3po;also=adora_amplify;rho_positive=3.0;mass_matched=1;dynamic_sampling=0;loss.clip_high=0.3"
    ).replace("3.0", str(config.method.set["rho_positive"]))
    assert Spec.parse(spec.text).build() == config.build_method()
    assert Spec.of_run(parse_run({"method": "grpo"})) == Spec("grpo", dynamic_sampling=None)

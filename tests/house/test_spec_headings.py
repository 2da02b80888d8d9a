"""Each public function and class of `tidegate_delta`, or its module, names its heading in
PROTOCOL.md.
"""

from tests.house import spec, tree

KNOWN = spec.headings(tree.text(spec.HEADINGS_FILE))


def test_every_public_thing_names_a_heading_that_exists() -> None:
    assert spec.sources()
    result = [b for name in spec.sources() for b in spec.breaches(name, tree.text(name), KNOWN)]
    assert not result, "\n".join(result)


def test_the_first_line_names_the_specification() -> None:
    assert tree.text(spec.HEADINGS_FILE).startswith("PROTOCOL.md of delta-io/delta at ")


def test_a_missing_line_is_found() -> None:
    assert list(spec.breaches("a.py", 'def f():\n    """Return x."""\n', KNOWN))


def test_a_module_names_its_heading_once_and_no_function_repeats_it() -> None:
    module = '"""A.\n\nSpec: "Add File and Remove File"\n"""\n'
    assert not list(spec.breaches("a.py", f'{module}def f():\n    """F."""\n', KNOWN))
    repeated = 'def f():\n    """F.\n\n    Spec: "Add File and Remove File"\n    """\n'
    assert [b for b in spec.breaches("a.py", module + repeated, KNOWN) if "repeats" in b]


def test_an_unknown_heading_is_found() -> None:
    text = 'class A:\n    """A.\n\n    Spec: "Snapshots", "No Such Heading"\n    """\n'
    assert [b for b in spec.breaches("a.py", text, KNOWN) if "No Such Heading" in b]


def test_a_heading_over_two_lines_is_one_heading() -> None:
    text = 'def f():\n    """F.\n\n    Spec: "Add File and\n    Remove File"\n    """\n'
    assert not list(spec.breaches("a.py", text, KNOWN))


def test_a_private_function_needs_none() -> None:
    assert not list(spec.breaches("a.py", "def _f():\n    return 1\n", KNOWN))

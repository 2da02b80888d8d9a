import ast
import re

from tests.features_page import OWN_PROPERTIES, PAGE, PEERS, VERSIONS, OtherClients, features_page
from tests.house import tree
from tidegate_delta.features.supported_features import FEATURES
from tidegate_delta.properties.table_properties import ALL


def test_the_page_in_the_repository_is_what_the_tables_in_code_give() -> None:
    assert tree.text(PAGE) == features_page(), "run `make docs`"


def test_every_feature_described_for_clients_exists() -> None:
    assert PEERS.keys() <= FEATURES.keys(), "a feature without an entry was not examined"
    assert len(VERSIONS) == len(OtherClients._fields)


def test_every_feature_and_property_has_its_rows() -> None:
    page = features_page()
    assert [name for name in FEATURES if page.count(f"\n| `{name}` |") != 2] == []
    assert [record.key for record in ALL if page.count(f"\n| `{record.key}` |") != 1] == []


def test_no_row_has_a_cell_more_than_its_head() -> None:
    cells = 0
    for line in features_page().splitlines():
        if line.startswith("| ---"):
            cells = line.count("|")
        elif line.startswith("| `"):
            assert line.count("|") == cells, line


OWN_KEY = re.compile(r"tidegate\.(\w+\.)?[a-z]+[A-Z]\w*")


def test_every_property_of_our_own_in_code_has_its_row() -> None:
    keys = {
        node.value
        for name in tree.python_files(tests=False)
        for node in tree.nodes(tree.text(name))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and OWN_KEY.fullmatch(node.value)
    }
    assert keys == OWN_PROPERTIES.keys()

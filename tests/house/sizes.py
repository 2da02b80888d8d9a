"""Report long files to a reader; length alone is no reason to split one."""

import sys

from tests.house import rules, tree


def main() -> None:
    """Print each file that may hold more than one thing."""
    for name in tree.python_files():
        for remark in rules.too_long(name, tree.text(name)):
            sys.stdout.write(f"{remark}\n")


if __name__ == "__main__":
    main()

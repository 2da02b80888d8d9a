"""Prints what is in an image, as CycloneDX 1.6: the Python packages around it, and Debian's.

Run by the image's own interpreter; it needs nothing but the standard library.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any
from urllib.parse import quote

DPKG_FORMAT = "${binary:Package}\t${Version}\t${Architecture}\t${db:Status-Status}\n"


def python_packages() -> Iterator[dict[str, Any]]:
    """Yield a component for each distribution of this environment."""
    for distribution in sorted(
        metadata.distributions(), key=lambda distribution: distribution.name.lower()
    ):
        name = distribution.name.lower().replace("_", "-").replace(".", "-")
        component: dict[str, Any] = {
            "type": "library",
            "name": distribution.name,
            "version": distribution.version,
            "purl": f"pkg:pypi/{name}@{quote(distribution.version)}",
            "bom-ref": f"pypi:{name}",
        }
        # Old packages have a whole licence in the field `License`.
        fields = distribution.metadata.json
        licence = str(fields.get("license_expression") or fields.get("license") or "")
        if licence and "\n" not in licence:
            component["licenses"] = [{"license": {"name": licence}}]
        yield component


def debian_packages() -> Iterator[dict[str, Any]]:
    """Yield a component for each Debian package that is installed."""
    listed = subprocess.run(
        ["dpkg-query", "--show", f"--showformat={DPKG_FORMAT}"],
        capture_output=True,
        text=True,
        check=True,
    )
    for line in sorted(listed.stdout.splitlines()):
        name, version, architecture, status = line.split("\t")
        name = name.partition(":")[0]
        if status == "installed":
            yield {
                "type": "library",
                "name": name,
                "version": version,
                "purl": f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={architecture}",
                "bom-ref": f"deb:{name}:{architecture}",
            }


def bill() -> dict[str, Any]:
    """Return the whole bill of materials."""
    tidegate_version = metadata.version("tidegate")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "container", "name": "tidegate", "version": tidegate_version}
        },
        "components": [*python_packages(), *debian_packages()],
    }


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1)
    sys.stdout.write("\n")

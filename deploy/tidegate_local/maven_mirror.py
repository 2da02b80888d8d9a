"""Converts the Maven mirror in a user's `settings.xml`, with its account, to settings for Ivy."""

import os
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr


@dataclass(frozen=True)
class Mirror:
    """A mirror of the central repository, with an account if it needs one."""

    url: str
    username: str = ""
    password: str = ""


def maven_mirror(settings: Path) -> Mirror | None:
    """Return the first mirror of the central repository, or None if there is none."""
    if not settings.is_file():
        return None
    try:
        root = ET.parse(settings).getroot()
    except ET.ParseError:
        return None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    for found in root.findall("mirrors/mirror"):
        of = {part.strip() for part in _text(found, "mirrorOf").split(",")}
        if of & {"*", "central", "external:*"} and "!central" not in of and _text(found, "url"):
            username, password = _account(root, _text(found, "id"))
            return Mirror(_text(found, "url"), username, password)
    return None


def as_ivy_settings(mirror: Mirror) -> str:
    """Return an ivysettings.xml whose only resolver is the mirror."""
    host = urlsplit(mirror.url).hostname or ""
    # Ivy needs the realm that the server names; an empty realm matches any.
    account = (
        f"<credentials host={quoteattr(host)} realm='' username={quoteattr(mirror.username)} "
        f"passwd={quoteattr(mirror.password)}/>"
        if mirror.username
        else ""
    )
    return (
        "<ivysettings><settings defaultResolver='mirror'/>"
        f"{account}<resolvers><ibiblio name='mirror' m2compatible='true' "
        f"root={quoteattr(mirror.url)}/></resolvers></ivysettings>"
    )


def _account(root: ET.Element, server_id: str) -> tuple[str, str]:
    for server in root.findall("servers/server"):
        if _text(server, "id") == server_id:
            return _text(server, "username"), _text(server, "password")
    return "", ""


def _text(element: ET.Element, name: str) -> str:
    """Return the text of a child element, with `${env.NAME}` replaced as in Maven."""
    text = (element.findtext(name) or "").strip()
    return re.sub(r"\$\{env\.(\w+)\}", lambda found: os.environ.get(found[1], ""), text)

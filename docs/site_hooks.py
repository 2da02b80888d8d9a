"""Hooks of mkdocs: documents outside `docs/` are pages, too; links to code are plain text."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
OUTSIDE = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
LINK = re.compile(r"\[([^\]]*)\]\((?!https?://|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the documents of the repository's root."""
    for name in OUTSIDE:
        content = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, f"project/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return a page whose links lead to pages of the site; others are left as their text."""
    source = page.file.src_uri
    outside = source.startswith("project/")
    here = ROOT if outside else (ROOT / "docs" / source).parent

    def led(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        found = (here / target).resolve()
        name = str(found.relative_to(ROOT)) if found.is_relative_to(ROOT) else ""
        place = f"project/{name}" if name in OUTSIDE else name.removeprefix("docs/")
        if files.get_file_from_path(place) is None:
            return text
        up = "../" * source.count("/")
        return f"[{text}]({up}{place}{anchor})"

    return LINK.sub(led, markdown)

"""Follow every link of the built site from disk: `python docs/links.py build/site`."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links of a page, and the places in it that a link can lead to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.places = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.places |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        self.links += [attrs[name] for name in ("href", "src") if attrs.get(name)]


def broken(site):
    """(page, link) of every link that leads nowhere; links to other hosts are not followed."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        if path.name == "404.html":  # served from anywhere
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = target.is_file() and (
                not parts.fragment or target not in pages or parts.fragment in pages[target].places
            )
            if not there:
                yield path.relative_to(site), link


if __name__ == "__main__":
    found = sorted(set(broken(Path(sys.argv[1]).resolve())), key=str)
    sys.exit("\n".join(f"{page}: {link} leads nowhere" for page, link in found) or 0)

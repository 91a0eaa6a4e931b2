"""What mkdocs does for `make site` besides: the pages that are not in docs/, and links to names."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from docs.site import public
from evalgrad.s_measures.module import SMeasure

ROOT = Path(__file__).parents[2]
# Pages outside of docs/ and their name on the site.
OUTSIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
OUTSIDE |= {"CHANGELOG.md": "changelog.md"}
# Pages with a table that needs the room of the list of contents beside it.
WIDE = {"accelerator.md", "guide.md", "lab.md", "ladder.md"}
# Pages on which `recall_at_precision` is a loss, and `dice` a `--metric`, of the command.
LAB = {"lab.md", "train.md"}
NAMES = list(public.names())
LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]+)(#[^)]*)?\)")
# What is not broken in a cell: a mean with its deviation or its interval.
NUMBERS = re.compile(r"[+-]?[\d.]+ (?:± [\d.]+|\([^()]* to [^()]*\)|\[[^][]*\])(?=</td>)")
OPTION = re.compile(r"(?<=<code>)--[\w-]+(?=</code>)")  # nor is the name of an option
CODE = re.compile(r"<code>(?:eg\.|evalgrad\.)?((?:metrics|decisions|distributed)?\.?\w+)</code>")


def on_config(config: Any) -> Any:
    """Stop at a name without documentation, and list the pages of the reference and of docs/."""
    if missing := [problem for name in NAMES for problem in public.problems(name)]:
        raise PluginError("undocumented:\n" + "\n".join(missing))
    sections = {title: pages for entry in config.nav for title, pages in entry.items()}
    sections["Reference"] += [{title: page_of(p)} for p, (title, _) in public.PAGES.items()]
    listed = set(pages_of(config.nav))
    found = (str(page.relative_to(ROOT / "docs")) for page in sorted(ROOT.glob("docs/**/*.md")))
    sections["Developers"] += [page for page in found if page not in listed]
    return config


def on_files(files: Files, config: Any) -> Files:
    """README as the first page, the reference, and what else is not in docs/."""
    made = {site: outside(ROOT / name) for name, site in OUTSIDE.items()}
    made["CITATION.cff"] = (ROOT / "CITATION.cff").read_text()
    made["reference/index.md"] = overview()
    made |= {page_of(package): reference(package) for package in public.PAGES}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files of the repository that are not on the site: to their page there, or none."""
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def linked(found: re.Match[str]) -> str:
        path = (folder / found[2]).resolve()
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
        if name in OUTSIDE:
            return f"[{found[1]}]({up(page)}{OUTSIDE[name]}{found[3] or ''})"
        return found[1] if name and path.exists() and not name.startswith("docs/") else found[0]

    return LINK.sub(linked, markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Link public names in the text to the reference; keep numbers and options on one line."""
    for unbroken in (NUMBERS, OPTION):
        html = unbroken.sub(r'<span class="unbroken">\g<0></span>', html)
    html = html.replace(f"{ROOT}/src/", "")  # a default of the lab is a file of the package
    links = {
        key: f"{up(page)}{page_of(n.package, 'html')}#{anchor(n)}"
        for n in NAMES
        for key in spellings(n)
        if page.file.src_uri not in LAB or n.package != "evalgrad.metrics" or "." in key
    }

    def linked(found: re.Match[str]) -> str:
        target = links.get(found[1])
        return f'<a href="{target}">{found[0]}</a>' if target else found[0]

    parts = re.split(r"(<a .*?</a>|<pre>.*?</pre>|<h\d.*?</h\d>)", html, flags=re.S)
    return "".join(part if i % 2 else CODE.sub(linked, part) for i, part in enumerate(parts))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Nothing is loaded from elsewhere: the shim that search needs in a folder is our own."""
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{up(page)}assets/worker.js")


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for pages that come from no file, such as 404.html."""
    return output_content.replace("https://unpkg.com/iframe-worker/shim", "assets/worker.js")


def up(page: Any) -> str:
    """The way from a page to the root of the site."""
    return "../" * page.file.src_uri.count("/")


def spellings(name: public.Public) -> list[str]:
    """How a text may name it: as a user spells it, without `evalgrad`."""
    spelled = name.spelled.partition(".")[2]
    short = name.package in ("evalgrad.metrics", "evalgrad.decisions")
    return [spelled, name.name] if short else [spelled]


def anchor(name: public.Public) -> str:
    """Where mkdocstrings finds it; the lab imports its commands only when they are asked for."""
    package = name.value.__module__ if name.package == "evalgrad_lab" else name.package
    return f"{package}.{name.name}"


def page_of(package: str, kind: str = "md") -> str:
    return f"reference/{package.rpartition('.')[2]}.{kind}"


def pages_of(nav: Any) -> Iterator[str]:
    for entry in nav if isinstance(nav, list) else nav.values():
        if isinstance(entry, str):
            yield entry
        else:
            yield from pages_of(entry)


def outside(path: Path) -> str:
    """A page of the root, with the links that it has on the site."""
    text = re.sub(r"\]\(docs/", "](", path.read_text())
    for name, site in OUTSIDE.items():
        text = text.replace(f"]({name}", f"]({site}")
    return text


def overview() -> str:
    """Every public name with the first sentence of its docstring."""
    lines = ["# Reference", "", "Every public name. `import evalgrad as eg`.", ""]
    for package, (title, _) in public.PAGES.items():
        page = page_of(package).removeprefix("reference/")
        lines += [f"## [{title}]({page})", "", "| name | what it is |", "|---|---|"]
        for name in (n for n in NAMES if n.package == package):
            said = " ".join(name.docstring.partition("\n\n")[0].split()).replace("|", "\\|")
            lines.append(f"| [`{name.name}`]({page}#{anchor(name)}) | {said} |")
        lines.append("")
    return "\n".join(lines)


def reference(package: str) -> str:
    """A page of the reference: mkdocstrings shows the names."""
    title, guide = public.PAGES[package]
    # who searches for a name wants its own entry first, not a table that names it often
    lines = ["---", "search:", "  boost: 4", "---", ""]
    lines += [f"# {title}", "", f"How to use them: [{title}](../{guide}).", ""]
    for name in (n for n in NAMES if n.package == package):
        lines += [f"::: {anchor(name)}", "    options:", f"      heading: {name.spelled}"]
        lines += [f"      toc_label: {name.name}"]
        # a signature of forty options in one line
        lines += ["      show_signature: false"] * name.name.endswith("Options")
        # the docstrings of the lab's options are made of the help of each, when they are imported
        lines += ["      force_inspection: true"] * (package == "evalgrad_lab") + [""]
        if isinstance(name.value, type) and package != "evalgrad_lab":
            lines += methods(name.value, anchor(name), name.name)
    if package == SMeasure.__module__.rpartition(".")[0]:
        lines += ["## Methods of every measure", ""]
        lines += methods(SMeasure, f"{SMeasure.__module__}.SMeasure", "measure")
    return "\n".join(lines)


def methods(value: type, place: str, spelled: str) -> list[str]:
    """The entries of the methods that a class has a docstring for."""
    lines = []
    for method, function in vars(value).items():
        if inspect.isfunction(function) and function.__doc__ and not method.startswith("_"):
            lines += [f"::: {place}.{method}", "    options:", "      heading_level: 3"]
            lines += [f"      heading: {spelled}.{method}", f"      toc_label: {method}", ""]
    return lines

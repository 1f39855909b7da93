"""Render what a judge may see into a prompt; the view decides everything, nothing else gets in."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib import resources
from typing import Any, Final

from workbench.errors import SetupError
from workbench.judges.base import Prompt
from workbench.schema import Tier, View
from workbench.text import sha256

ANCHOR_KINDS: Final = (
    "neutral",
    "told_low",
    "told_critical",
    "told_l1",
    "label_confidence",
    "label_rationale",
    "irrelevant_number",
)


@cache
def _resource(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("workbench.resources.prompts").joinpath(f"{name}.toml").read_text("utf-8"))


def prompt_language(view: View) -> str:
    """The language of the instructions: Chinese for Chinese and mixed dialogues, English otherwise."""
    return "en" if view.lang == "en" else "zh"


def render(view: View, tier: Tier, *, version: str = "v1") -> Prompt:
    """Render *view* for *tier* (an arbiter sees what L2 sees). Deterministic: equal views give equal bytes.

    Every piece of foreign text stands between markers that carry a hash of all such text in this prompt, so no
    text can contain the marker that would close it. Raises SetupError for an unknown version.
    """
    lang, role = prompt_language(view), "L1" if tier == "L1" else "L2"
    book = _resource(lang)
    if version not in book["versions"]:
        raise SetupError(f"prompt version '{version}' does not exist: choose one of {', '.join(book['versions'])}")
    words = book["versions"][version]
    parts = _foreign(view, book)
    nonce = sha256(json.dumps(parts, ensure_ascii=True))[:16]
    blocks = [book["block"].format(name=name, nonce=nonce, body=body) for name, body in parts]
    system = "\n\n".join(
        [words[f"role_{role.lower()}"].strip(), words["contract"].strip(), book["data_rule"].format(nonce=nonce).strip()]
    )
    messages = ({"role": "system", "content": system}, {"role": "user", "content": "\n\n".join([*blocks, words["ask"].strip()])})
    prompt_id = f"{role.lower()}.{lang}"
    return Prompt(messages, prompt_id, version, sha256(json.dumps(messages, ensure_ascii=True, sort_keys=True)), view)


def _foreign(view: View, book: dict[str, Any]) -> list[tuple[str, str]]:
    """The (block name, body) pairs that go between markers, in reading order."""
    parts: list[tuple[str, str]] = []
    if view.context:
        names = book["roles"]
        parts.append(
            (
                book["names"]["context"],
                "\n".join(f"{names[role]}: " + content.replace("\n", "\n    ") for role, content in view.context),
            )
        )
    if view.trend is not None:
        t = view.trend
        parts.append((book["names"]["trend"], book["trend"].format(days=t.negative_days_7d, run=t.consecutive_negative_days)))
    if view.anchor is not None:
        parts.append((book["names"]["anchor"], view.anchor))
    parts.append((book["names"]["text"], view.text))
    return parts


def anchor_text(
    kind: str, lang: str, *, paraphrase: int = 0, level: str = "", confidence: float | None = None, evidence: str = ""
) -> str:
    """One wording of an anchor. *level*, *confidence* and *evidence* fill the kinds that quote a verdict.

    Raises SetupError for an unknown kind or paraphrase.
    """
    table = _resource("anchors").get(kind, {})
    wordings = table.get("en" if lang == "en" else "zh", [])
    if not 0 <= paraphrase < len(wordings):
        raise SetupError(f"anchor '{kind}' has no paraphrase {paraphrase}: kinds are {', '.join(ANCHOR_KINDS)}, paraphrases 0..2")
    shown = "" if confidence is None else f"{confidence:.2f}"
    return str(wordings[paraphrase]).format(level=level, confidence=shown, evidence=evidence.replace("\n", " "))


def resources_hash() -> str:
    """SHA-256 over all prompt resources, for the manifest."""
    return sha256(json.dumps({name: _resource(name) for name in ("en", "zh", "anchors")}, sort_keys=True))

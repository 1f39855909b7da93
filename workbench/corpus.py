"""Load dialogues from JSONL, refuse what is not synthetic, and split them by family."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

from pydantic import ValidationError

from workbench.errors import DataError
from workbench.schema import FLAGS, Dialogue

if TYPE_CHECKING:
    import pandas as pd

SPLITS: Final = ("train", "dev", "test")
DEFAULT: Final = "data/dialogues"


def split_of(family: str) -> str:
    """train (60 %), dev (20 %) or test (20 %), decided by the family's hash: members of a family never part."""
    share = _unit("split", family)
    return "train" if share < 0.6 else "dev" if share < 0.8 else "test"


def fold_of(family: str, k: int = 5) -> int:
    """Cross-fitting fold 0..k-1 of a family, by its hash."""
    return int(_unit("fold", family) * k)


def _unit(purpose: str, family: str) -> float:
    return int.from_bytes(hashlib.sha256(f"{purpose}:{family}".encode()).digest()[:8], "big") / 2**64


class Corpus(Sequence[Dialogue]):
    """Dialogues in file order. Slicing and filtering give a Corpus again."""

    def __init__(self, dialogues: Iterable[Dialogue]) -> None:
        self._items = tuple(dialogues)

    @overload
    def __getitem__(self, index: int) -> Dialogue: ...
    @overload
    def __getitem__(self, index: slice) -> Corpus: ...
    def __getitem__(self, index: int | slice) -> Dialogue | Corpus:
        return Corpus(self._items[index]) if isinstance(index, slice) else self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Dialogue]:
        return iter(self._items)

    def __repr__(self) -> str:
        return f"Corpus(dialogues={len(self)}, families={len(self.families)})"

    def by_id(self, dialogue_id: str) -> Dialogue:
        """The dialogue with this id; raises DataError when there is none."""
        for d in self._items:
            if d.id == dialogue_id:
                return d
        raise DataError(
            f"no dialogue has the id '{dialogue_id[:80]}': ids are listed by `workbench corpus stats`, or in `.frame.dialogue_id`"
        )

    def filter(self, keep: Callable[[Dialogue], bool]) -> Corpus:
        return Corpus(d for d in self._items if keep(d))

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(family_of(d) for d in self._items))

    @property
    def sha256(self) -> str:
        """Hash over the dialogues as data, independent of file layout and key order."""
        digest = hashlib.sha256()
        for n, d in enumerate(self._items):
            digest.update(
                f"{chr(10) * (n > 0)}{json.dumps(d.model_dump(mode='json'), sort_keys=True, ensure_ascii=True)}".encode()
            )
        return digest.hexdigest()

    @property
    def frame(self) -> pd.DataFrame:
        """One row per dialogue: identity, counts and gold, no text."""
        import pandas as pd

        return pd.DataFrame([facts(d) for d in self._items])


def family_of(dialogue: Dialogue) -> str:
    """The dialogue's family; a dialogue without one is its own."""
    return dialogue.family or dialogue.id


def facts(dialogue: Dialogue) -> dict[str, Any]:
    """What every table says of a dialogue (docs/architecture.md, Frames)."""
    g = dialogue.gold
    return {
        "dialogue_id": dialogue.id, "family": family_of(dialogue), "lang": dialogue.lang, "phenomenon": dialogue.phenomenon,
        "n_user_turns": dialogue.n_user_turns, "needs_context": g.needs_context if g else None, "disputed": dialogue.disputed,
        "split": split_of(family_of(dialogue)), "gold_level": g.risk_level.value if g else None,
        "gold_rank": g.risk_level.rank if g else None,
        "gold_acceptable": ";".join(level.value for level in g.acceptable_levels) if g else None,
        "gold_flags": ";".join(f for f in FLAGS if f in g.flags) if g else None, "gold_confirm": g.confirm if g else None,
    }  # fmt: skip


def resolve(path: str | Path) -> Path:
    """The path as given, or below the nearest parent folder that has it, or in the repository: its paths work from anywhere."""
    given = Path(path).expanduser()
    if given.exists() or given.is_absolute():
        return given
    for parent in (*Path.cwd().resolve().parents, Path(__file__).resolve().parent.parent):
        if (parent / given).exists():
            return parent / given
    return given


def load_corpus(
    path: str | Path = DEFAULT,
    *,
    lang: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    allow_real: bool = False,
) -> Corpus:
    """Load a JSONL file, or every ``*.jsonl`` of a folder in name order.

    ``lang`` keeps zh, en or mixed; ``split`` keeps train, dev or test; ``limit`` keeps the first N, spread evenly over the
    file order. Rows that do not say ``provenance.synthetic = true`` are refused unless ``allow_real``.
    Raises DataError with file and line, never with the text.
    """
    root = resolve(path)
    files = sorted(root.glob("*.jsonl")) if root.is_dir() else [root]
    if not root.exists() or not files:
        raise DataError(f"no dialogues at '{path}': give a JSONL file or a folder of them (the shipped corpus is {DEFAULT})")
    if lang is not None and lang not in ("zh", "en", "mixed"):
        raise DataError(f"unknown language '{lang}': choose zh, en or mixed")
    if split is not None and split not in SPLITS:
        raise DataError(f"unknown split '{split}': choose one of {', '.join(SPLITS)}")
    dialogues = list(_unique(row for file in files for row in read_rows(file)))
    if not allow_real:
        _refuse_real(dialogues)
    kept = [d for _, d in dialogues if (lang is None or d.lang == lang) and (split is None or split_of(family_of(d)) == split)]
    return Corpus(_spread(kept, limit))


def _spread(items: list[Dialogue], limit: int | None) -> list[Dialogue]:
    if limit is None or limit >= len(items):
        return items
    if limit < 1:
        raise DataError("limit must be at least 1")
    return [items[i * len(items) // limit] for i in range(limit)]


def read_rows(file: Path) -> Iterator[tuple[str, Dialogue]]:
    """(place, dialogue) for each line; raises DataError with the line that is wrong and the field, not its content."""
    try:
        lines = file.read_bytes().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        at = file.read_bytes()[: error.start].count(b"\n") + 1
        raise DataError(f"{file} line {at}: not UTF-8; save the file as UTF-8 and try again") from None
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{file} line {number}"
        try:
            yield place, Dialogue.model_validate(json.loads(line))
        except json.JSONDecodeError as error:
            raise DataError(f"{place}: not valid JSON ({error.msg} at column {error.colno})") from None
        except RecursionError:
            raise DataError(f"{place}: nested too deeply") from None
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "row"
            raise DataError(f"{place}: {where}: {first['msg']}") from None


def _unique(rows: Iterable[tuple[str, Dialogue]]) -> Iterator[tuple[str, Dialogue]]:
    seen: dict[str, str] = {}
    for place, d in rows:
        if d.id in seen:
            raise DataError(f"{place}: the id '{d.id[:80]}' was already used at {seen[d.id]}; ids must be unique")
        seen[d.id] = place
        yield place, d


def _refuse_real(rows: list[tuple[str, Dialogue]]) -> None:
    for place, d in rows:
        if not d.synthetic:
            raise DataError(
                f"{place}: not marked synthetic (provenance.synthetic = true); real conversations are refused. "
                "If you may lawfully and ethically process them, pass allow_real=True (--allow-real); the run will say so"
            )

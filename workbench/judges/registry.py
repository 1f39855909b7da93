"""Find a judge by name: built in, or a table of judges.toml."""

from __future__ import annotations

import importlib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import JudgeSetupError

if TYPE_CHECKING:
    import pandas as pd

    from workbench.judges.base import Judge
    from workbench.judges.remote import RemoteJudge

BUILT_IN: Final = {"cue": "CueJudge", "ngram": "NgramJudge", "simulated": "SimulatedJudge", "local": "LocalJudge"}
_ABOUT: Final = {
    "cue": "transparent rules over the lexicon, zh and en; nothing leaves this machine",
    "ngram": "character and word n-grams, cross-fitted by family; nothing leaves this machine",
    "simulated": "planted noise, bias and anchoring, for checking the statistics; not a judgement",
    "local": "a small language model on this machine (extra 'local'); a weak judge on purpose",
}
_FIELDS: Final = {
    "base_url": str, "model": str, "key_env": str, "max_tokens": int, "timeout_s": float, "temperature": float, "seed": int, "json_mode": bool,
    "extra": dict, "price": dict,
}  # fmt: skip
FILE: Final = "judges.toml"


def judges_file() -> Path | None:
    """The file that names remote judges: WORKBENCH_JUDGES, else judges.toml in the working directory, else None."""
    given = os.environ.get("WORKBENCH_JUDGES")
    path = Path(given).expanduser() if given else Path(FILE)
    if given and not path.is_file():
        raise JudgeSetupError(f"WORKBENCH_JUDGES names '{given}', which is not a file: correct it, or unset it")
    return path if path.is_file() else None


def tables() -> dict[str, dict[str, Any]]:
    """The judges of judges.toml by name, unchecked; {} without a file."""
    path = judges_file()
    if path is None:
        return {}
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise JudgeSetupError(f"'{path}' cannot be read as TOML ({str(error).splitlines()[0]}): mend it") from None
    return {name: table for name, table in found.items() if isinstance(table, dict)}


def judge(name: str, /, **options: Any) -> Judge:
    """The judge called *name*; *options* go to the constructor of a built-in one.

    Raises JudgeSetupError when there is none, when its table is wrong, or when its key variable is not set.
    """
    if name in BUILT_IN:
        return _built_in(name)(**options)  # type: ignore[no-any-return]
    known = tables()
    if name not in known:
        where = judges_file() or f"no {FILE} here"
        raise JudgeSetupError(
            f"there is no judge '{name}': built in are {', '.join(BUILT_IN)}; in {where}: {', '.join(known) or 'none'}"
        )
    if known[name].get("kind") == "local":
        return judge_from({"name": name, **known[name]})
    made = remote(name, known[name])
    made.key()
    return made


def remote(name: str, table: Mapping[str, Any]) -> RemoteJudge:
    """A remote judge from one table; JudgeSetupError says which setting is wrong."""
    from workbench.budget import Price, known_price
    from workbench.judges.check import refusals
    from workbench.judges.remote import RemoteJudge

    for key, value in table.items():
        if key not in _FIELDS:
            raise JudgeSetupError(f"judge '{name}': unknown setting '{key}': there are {', '.join(_FIELDS)} (a key goes into the environment, its variable's name into key_env)")  # fmt: skip
        if not isinstance(value, _FIELDS[key]) and not (_FIELDS[key] is float and type(value) is int):
            raise JudgeSetupError(f"judge '{name}': {key} must be {_FIELDS[key].__name__}")
    if missing := [k for k in ("base_url", "model") if k not in table]:
        raise JudgeSetupError(f"judge '{name}': {' and '.join(missing)} missing")
    settings = dict(table)
    try:
        settings["price"] = Price(**settings["price"]) if "price" in settings else known_price(settings["model"])
    except TypeError:
        raise JudgeSetupError(f"judge '{name}': price needs input and output, in US dollars per million tokens") from None
    return RemoteJudge(name, **settings, refused=refusals(settings["base_url"], settings["model"]))


def judge_from(described: Mapping[str, Any]) -> Judge:
    """Rebuild a judge from its ``describe()`` in a manifest. A remote one needs its key only when it is asked."""
    if described["kind"] == "remote":
        return remote(described["name"], {k: v for k, v in described.items() if k in _FIELDS and v is not None})
    cls = _built_in(described["kind"] if described["kind"] in ("local", "simulated") else described["name"])
    return cls.from_description(described) if hasattr(cls, "from_description") else cls()  # type: ignore[no-any-return]


def _built_in(name: str) -> Any:
    if name not in BUILT_IN:
        raise JudgeSetupError(f"judge '{name}' is not built in and the manifest does not say how to make it")
    return getattr(importlib.import_module(f"workbench.judges.{name}"), BUILT_IN[name])


def listing() -> pd.DataFrame:
    """All judges that can be named: judge, source (built in | judges.toml), model, where, key_variable, key (set | missing | none), about."""
    import pandas as pd

    columns = ["judge", "source", "model", "where", "key_variable", "key", "about"]
    rows = [(n, "built in", "", "this machine", "", "none", _ABOUT[n]) for n in BUILT_IN]
    for name, table in tables().items():
        variable = str(table.get("key_env", ""))
        key = "none" if not variable else "set" if os.environ.get(variable) else "missing"
        rows.append(
            (
                name,
                FILE,
                str(table.get("model", "")),
                str(table.get("base_url", "this machine" if table.get("kind") == "local" else "")),
                variable,
                key,
                "",
            )
        )
    return pd.DataFrame(rows, columns=columns)

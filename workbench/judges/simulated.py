"""Judge with planted noise, bias and anchoring: it exists to check the statistics, and is labelled as simulated everywhere."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from workbench import prompts
from workbench.errors import JudgeError, JudgeSetupError
from workbench.judges.base import Prompt, Reply, Request, Usage
from workbench.schema import DIMENSIONS, FLAGS, Dialogue, Gold, RiskLevel, Turn, TurnGold
from workbench.text import sha256

if TYPE_CHECKING:
    import pandas as pd

CUTS: Final = (-0.25, 0.67, 1.50)  # severity ~ N(0, 1): 40 / 35 / 18 / 7 % low..critical
ANCHOR_AT: Final = {"low": -1.0, "medium": 0.2, "high": 1.1, "critical": 2.0}
LOADINGS: Final = (1.0, 0.6, 0.7, 0.9, 0.8, 0.5, 0.4, 0.6)  # of severity on the eight dimensions, in schema order
MALFORMED: Final = "I would rather talk about how you are feeling than give a rating."
_INVERSE: Final = NormalDist().inv_cdf
_WORDS: Final = "|".join(ANCHOR_AT)


@dataclass(frozen=True, slots=True)
class Planted:
    """What is planted, on the latent scale where severity has SD 1.

    ``persistent`` is the SD of the error that stays over repeats; the share ``rho`` of its variance is common to all judges
    of one ``shared_seed``. ``noise`` is the SD between repeats; without it (and without ``order``) nothing varies over repeats or prompts but the anchor. ``anchoring`` in [0, 1] is the weight of a verdict read in
    the prompt. ``drift`` is added per user turn, ``order`` separates the first answer (+1/2) from repeats (-1/2).
    ``cut_shift`` moves all level boundaries (a liberal judge has a negative one). ``malformed`` (+ ``malformed_critical``
    on critical severity) and ``flag`` (+ ``flag_below`` under critical) are probabilities. ``confidence`` holds k0, k1, k2
    of expit(k0 + k1 * distance to the nearest boundary + k2 * noise).
    """

    persistent: float = 0.5
    rho: float = 0.0
    noise: float = 0.3
    bias: float = 0.0
    anchoring: float = 0.0
    drift: float = 0.0
    order: float = 0.0
    cut_shift: float = 0.0
    malformed: float = 0.0
    malformed_critical: float = 0.0
    flag: float = 0.0
    flag_below: float = 0.0
    confidence: tuple[float, float, float] = (0.3, 3.0, 0.5)

    def __post_init__(self) -> None:
        for key in ("rho", "anchoring", "malformed", "malformed_critical", "flag", "flag_below"):
            if not 0 <= getattr(self, key) <= 1:
                raise JudgeSetupError(f"simulated judge: {key}={getattr(self, key)} must lie in [0, 1]")


def _uniforms(count: int, *key: object) -> list[float]:
    """*count* uniforms in (0, 1) that depend on *key* only."""
    raw = hashlib.shake_128("\x1f".join(map(str, key)).encode("utf-8", "surrogatepass")).digest(7 * count)
    return [(int.from_bytes(raw[i : i + 7], "big") + 0.5) / 2**56 for i in range(0, 7 * count, 7)]


def _level(x: float) -> RiskLevel:
    return list(RiskLevel)[sum(x > c for c in CUTS)]


@cache
def _verdict() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A whole anchor block with a level word in it, and the opening words of every anchor wording followed by a level."""
    kinds = [
        (kind, lang, p) for kind in ("told_l1", "label_confidence", "label_rationale") for lang in ("en", "zh") for p in range(3)
    ]
    openings = {prompts.anchor_text(kind, lang, paraphrase=p, level="\0").split("\0")[0] for kind, lang, p in kinds}
    names = "|".join(re.escape(prompts._resource(lang)["names"]["anchor"]) for lang in ("en", "zh"))
    block = rf"<<<BEGIN (?:{names}) (\w+)>>>\n(?:(?!<<<END).)*?\b(?P<level>{_WORDS})\b(?:.*?)<<<END (?:{names}) \1>>>"
    return re.compile(block, re.S | re.A), re.compile(
        rf"(?:{'|'.join(map(re.escape, sorted(openings)))})(?P<level>{_WORDS})(?![A-Za-z])"
    )


def read_anchor(prompt: Prompt) -> str | None:
    """The level of an earlier verdict anywhere in the rendered prompt but the text under analysis, or None."""
    said = "\n".join(m["content"] for m in prompt.messages).replace(f">>>\n{prompt.view.text}\n<<<", ">>>\n<<<")
    found = next(filter(None, (pattern.search(said) for pattern in _verdict())), None)
    return found["level"] if found else None


class SimulatedJudge:
    """Answers from planted severity; the same seed, prompt, tier and repeat always give the same text.

    severity: SHA-256 of a text -> its severity, or (severity, user turn less the middle turn), see ``planted_corpus`` and
    ``severities``. Without a table each text gets the N(0, 1) severity of its own hash, so that any corpus can be run.
    """

    kind = "simulated"
    reads_anchor = True

    def __init__(self, severity: Mapping[str, float | tuple[float, float]] | None = None, *, name: str = "simulated", seed: int = 0,
                 shared_seed: int = 0, **planted: Any) -> None:  # fmt: skip
        try:
            self.planted = Planted(**planted)
        except TypeError as error:
            raise JudgeSetupError(f"simulated judge: {error}: settings are {', '.join(Planted.__dataclass_fields__)}") from None
        self.name, self.seed, self.shared_seed, self.severity = name, seed, shared_seed, severity
        self.deterministic = self.planted.noise == 0 and self.planted.order == 0
        rows = "none" if severity is None else json.dumps(sorted((k, v) for k, v in severity.items()))
        seeds = {"seed": seed, "shared_seed": shared_seed, "table": sha256(rows)}
        self._settings = {"name": name, "kind": self.kind} | seeds | asdict(self.planted)

    @classmethod
    def from_description(cls, described: Mapping[str, Any]) -> SimulatedJudge:
        """The judge of a manifest, without its table: enough to replay, not to answer a new question about a planted text."""
        kept = {k: v for k, v in described.items() if k not in ("kind", "table")}
        options: dict[str, Any] = kept | {"confidence": tuple(described["confidence"])}
        made = cls(None if described["table"] == sha256("none") else {}, **options)
        made._settings["table"] = described["table"]
        return made

    def _place(self, key: str) -> tuple[float, float]:
        if self.severity is None:
            return _INVERSE(_uniforms(1, "severity", key)[0]), 0.0
        if key not in self.severity:
            raise JudgeError("api_error", "the text is not in this simulated judge's table: build it from the corpus that is run")
        at = self.severity[key]
        return at if isinstance(at, tuple) else (float(at), 0.0)

    async def answer(self, request: Request) -> Reply:
        """Draw one answer; JudgeError for a text that is not in the table."""
        p, key = self.planted, sha256(request.prompt.view.text)
        severity, turn = self._place(key)
        own, common = _INVERSE(_uniforms(1, "own", self.seed, key)[0]), _INVERSE(_uniforms(1, "common", self.shared_seed, key)[0])
        asked = () if self.deterministic else (request.prompt.sha256, request.tier, request.repeat)
        u = _uniforms(5 + len(DIMENSIONS), "answer", self.seed, key, *asked)
        x = severity + p.bias + p.drift * turn + p.order * (0.5 if request.repeat == 0 else -0.5)
        x += p.persistent * (math.sqrt(p.rho) * common + math.sqrt(1 - p.rho) * own) + p.noise * _INVERSE(u[0])
        anchor = read_anchor(request.prompt) if p.anchoring else None
        if anchor is not None:
            x = (1 - p.anchoring) * x + p.anchoring * ANCHOR_AT[anchor]
        critical = severity > CUTS[-1]
        said = MALFORMED if u[1] < p.malformed + p.malformed_critical * critical else self._json(x, u, critical)
        usage = Usage(sum(len(m["content"]) for m in request.prompt.messages) // 4, len(said) // 4, estimated=True)
        return Reply(said, usage=usage, model=self.name, fingerprint=f"simulated-{self.seed}")

    def _json(self, x: float, u: list[float], critical: bool) -> str:
        p = self.planted
        k0, k1, k2 = p.confidence
        level = _level(x - p.cut_shift)
        sure = 1 / (1 + math.exp(-(k0 + k1 * min(abs(x - c) for c in CUTS) + k2 * _INVERSE(u[2]))))
        flagged = FLAGS[int(u[4] * len(FLAGS))] if u[3] < p.flag + p.flag_below * (not critical) else ""
        scores = [min(max(w * (x + 3) / 6 + 0.05 * _INVERSE(v), 0.0), 1.0) for w, v in zip(LOADINGS, u[5:], strict=True)]
        return json.dumps({
            "evidence": "", "context_flags": {f: f == flagged for f in FLAGS},
            "dimensions": {d: round(s, 3) for d, s in zip(DIMENSIONS, scores, strict=True)}, "risk_level": level.value, "confidence": round(sure, 2),
        })  # fmt: skip

    def identity(self, request: Request) -> dict[str, Any]:
        return self._settings

    def describe(self) -> dict[str, Any]:
        return dict(self._settings)

    async def aclose(self) -> None:
        return None


def planted_corpus(n: int, seed: int, *, families: int | None = None, turns: int = 1, shift: float = 0.0, family_share: float = 0.6,
                   lang: str = "en") -> tuple[list[Dialogue], pd.DataFrame]:  # fmt: skip
    """*n* dialogues of known, over turns constant, severity ~ N(*shift*, 1), and the truth.

    families: number of families (None: one each); *family_share* of the variance is common to a family. The frame has a
    row per user turn: dialogue_id, family, turn, text_hash, severity, gold_level.
    """
    import pandas as pd

    rng, count = random.Random(seed), families or n
    common = [rng.gauss(0, 1) for _ in range(count)]
    made, rows = [], []
    for i in range(n):
        share = family_share if families else 0.0
        severity = shift + math.sqrt(share) * common[i % count] + math.sqrt(1 - share) * rng.gauss(0, 1)
        level = _level(severity)
        spoken: list[Turn] = []
        for t in range(turns):
            text = f"模拟消息 {seed}-{i}，第 {t + 1} 轮。" if lang == "zh" else f"Simulated message {seed}-{i}, turn {t + 1}."
            spoken += [Turn(role="assistant", content="…")] * (t > 0)
            spoken.append(Turn(role="user", content=text, gold=TurnGold(risk_level=level)))
            rows.append((f"sim-{seed}-{i:05d}", f"sim-{seed}-f{i % count:04d}", t, sha256(text), severity, level.value))
        gold = Gold(risk_level=level, confirm=level is RiskLevel.CRITICAL, acceptable_levels=(level,))
        made.append(Dialogue(id=rows[-1][0], family=rows[-1][1], turns=tuple(spoken), gold=gold, lang="zh" if lang == "zh" else "en",
                             phenomenon="planted", provenance={"synthetic": True, "simulated": True}))  # fmt: skip
    return made, pd.DataFrame(rows, columns=["dialogue_id", "family", "turn", "text_hash", "severity", "gold_level"])


def severities(truth: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """The table a SimulatedJudge needs, from the truth frame of ``planted_corpus``."""
    middle = truth["turn"].max() / 2
    rows = zip(truth["text_hash"], truth["severity"], truth["turn"], strict=True)
    return {key: (float(severity), float(turn - middle)) for key, severity, turn in rows}

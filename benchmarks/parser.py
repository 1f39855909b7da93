"""Time the parser: median on clean and mixed answers beside json.loads + pydantic, and growth on hostile input."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from workbench.parsing import parse_assessment
from workbench.schema import DIMENSIONS, FLAGS

CASES = Path(__file__).parents[1] / "tests" / "data" / "judge_output.jsonl"
CLEAN = json.dumps({
    "risk_level": "high", "confidence": 0.9, "dimensions": dict.fromkeys(DIMENSIONS, 0.4), "evidence": "多次提到撑不下去",
    "context_flags": dict.fromkeys(FLAGS, False),
}, ensure_ascii=False)  # fmt: skip
HOSTILE = ("{", "{x}", '{"a":', '{"\\"', "\\", "<think>", '{"a" /*', '"risk_level"', ':-{ "')


class Plain(BaseModel):
    """What a short script would do: the level as text, numbers in range, booleans."""

    risk_level: str
    confidence: float = Field(ge=0, le=1)
    dimensions: dict[str, float]
    evidence: str
    context_flags: dict[str, bool]


def median_us(call: Callable[[], Any], *, times: int = 3000) -> float:
    took = []
    for _ in range(times):
        start = time.perf_counter_ns()
        call()
        took.append(time.perf_counter_ns() - start)
    return statistics.median(took) / 1000


def main() -> None:
    rows = [json.loads(line) for line in CASES.read_text("utf-8").splitlines()]
    raws = [row["raw"] for row in rows if isinstance(row.get("raw"), str)]
    clean = median_us(lambda: parse_assessment(CLEAN))
    plain = median_us(lambda: Plain.model_validate(json.loads(CLEAN)))
    mixed = median_us(lambda: [parse_assessment(raw) for raw in raws], times=30) / len(raws)
    print(f"clean answer         {clean:7.1f} us (budget 40)")
    print(f"json.loads+pydantic  {plain:7.1f} us, ratio {clean / plain:.1f}")
    print(f"case file, mean      {mixed:7.1f} us over {len(raws)} answers, most of them broken")
    for piece in HOSTILE:
        small, large = (median_us(lambda raw=(piece * n)[:n]: parse_assessment(raw), times=3) for n in (30_000, 120_000))
        print(
            f"hostile {piece!r:14} {small / 1000:7.2f} ms at 30k, {large / 1000:7.2f} ms at 120k: x{large / max(small, 1):.1f} for 4x the text"
        )


if __name__ == "__main__":
    main()

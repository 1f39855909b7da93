"""Check one statistical reference entry: recompute it from ``inputs`` and compare the keys in ``expected``.

The entry's name (or the longest known beginning of it) says what to compute; the numbers come from the entry. What no
study uses is taken from scipy, statsmodels or scikit-learn, or written out here.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats as sps

from workbench.stats import agreement, calibration, dependence, drift, paired, prevalence, proportions, resample
from workbench.stats.estimate import Estimate

Inputs = dict[str, Any]
RECIPES: dict[str, Callable[[Inputs], Any]] = {}


def recipe(function: Callable[[Inputs], Any]) -> Callable[[Inputs], Any]:
    RECIPES[function.__name__] = function
    return function


def compare(expected: Any, got: Any, tolerance: float, where: str = "") -> str | None:
    """The first place where *got* lacks what *expected* holds, or differs by more than *tolerance* (absolute or relative).

    NaN in *got* is a missing number, as None is.
    """
    got = None if isinstance(got, float) and math.isnan(got) else got
    if isinstance(expected, dict):
        if not isinstance(got, dict):
            return f"{where} expected a table got {got!r}"
        missing = [key for key in expected if key not in got]
        if missing:
            return f"{where}{missing[0]}: nothing computes it"
        return next(filter(None, (compare(v, got[k], tolerance, f"{where}{k}.") for k, v in expected.items())), None)
    if isinstance(expected, list):
        got = list(got) if not np.isscalar(got) and got is not None else got
        if not isinstance(got, list) or len(got) != len(expected):
            return f"{where} expected {len(expected)} values got {got!r}"
        return next(
            filter(None, (compare(e, g, tolerance, f"{where}{i}.") for i, (e, g) in enumerate(zip(expected, got, strict=True)))),
            None,
        )
    if isinstance(expected, bool) or expected is None or isinstance(expected, str):
        same = got == expected if got is not None and expected is not None else got is expected
        return None if same else f"{where.rstrip('.')} expected {expected!r} got {got!r}"
    if got is None or not math.isclose(float(got), expected, rel_tol=tolerance, abs_tol=tolerance):
        return f"{where.rstrip('.')} expected {expected!r} got {got!r}"
    return None


def check(row: dict[str, Any]) -> str | None:
    """None when every expected number is reproduced, else the first that is not."""
    known = [name for name in RECIPES if row["name"].startswith(name)]
    if not known:
        return f"no recipe for {row['name']!r}: known are {', '.join(RECIPES)}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries beside ours; our own functions are tested to be silent
        got = RECIPES[max(known, key=len)](row["inputs"])
    return compare(row["expected"], got, float(row.get("tolerance", 1e-9)))


def half(e: Estimate) -> float | None:
    """The upper half of an interval, None without one."""
    return None if e.high is None or e.value is None else e.high - e.value


def over(a: float | None, b: float) -> float | None:
    return None if a is None else a / b


def ends(e: Estimate) -> list[float | None]:
    return [e.low, e.high]


@recipe
def cohen_kappa(i: Inputs) -> Any:
    levels = tuple(i["levels"])
    a, b = (agreement.ranks(i[r], levels=levels) for r in ("rater1", "rater2"))
    table = agreement.pair_table(a, b, len(levels))
    quadratic = float(agreement.kappa(table, "quadratic"))
    return {
        "quadratic": quadratic, "linear": float(agreement.kappa(table, "linear")), "unweighted": float(agreement.kappa(table, "unweighted")),
        "correct_with_full_scale": quadratic, "kappa_on_complete_pairs": quadratic, "n_pairs": len(a),
        "n_complete": int(table.sum()), "n_unknown": len(a) - int(table.sum()),
    }  # fmt: skip


@recipe
def krippendorff(i: Inputs) -> Any:
    domain = i.get("values") or list(range(len(i["levels"])))
    units = np.array(i["raters_by_units"], float).T
    places = np.where(np.isnan(units), np.nan, np.searchsorted(domain, np.nan_to_num(units, nan=domain[0])))
    total = agreement.coincidences(agreement.rating_counts(places, len(domain))).sum(0)
    return {kind: float(agreement.alpha(total, kind)) for kind in ("nominal", "ordinal", "interval")}


@recipe
def fleiss_kappa(i: Inputs) -> Any:
    from statsmodels.stats.inter_rater import fleiss_kappa as library

    return {"kappa": library(np.array(i["counts_items_by_categories"]))}


@recipe
def gwet_ac1_ac2(i: Inputs) -> Any:
    counts = agreement.rating_counts(np.array(i["items_by_raters"], float), len(i["levels"]))
    value = {
        kind: float(agreement.gwet(agreement.gwet_sums(counts, kind).sum(0), kind))
        for kind in ("unweighted", "linear", "quadratic", "ordinal")
    }
    return {"AC1": value["unweighted"], **{f"AC2_{kind}": v for kind, v in value.items()}}


@recipe
def kappa_paradox(i: Inputs) -> Any:
    t = np.array(i["table"], float)
    pairs = [(r, c) for r in range(2) for c in range(2) for _ in range(int(t[r, c]))]
    counts, p = agreement.rating_counts(np.array(pairs, float), 2), t / t.sum()
    return {
        "percent_agreement": np.trace(p), "cohen_kappa": float(agreement.kappa(t, "unweighted")),
        "gwet_ac1": float(agreement.gwet(agreement.gwet_sums(counts, "unweighted").sum(0), "unweighted")),
        "pabak": float(agreement.PAIR_METRICS["critical PABAK"](t)), "prevalence_index": abs(p[0, 0] - p[1, 1]),
        "bias_index": abs(p[0, 1] - p[1, 0]),
    }  # fmt: skip


@recipe
def icc_shrout_fleiss(i: Inputs) -> Any:
    x = np.array(i["items_by_raters"], float)
    rows, columns, error = agreement._mean_squares(x)
    found = agreement.icc(x)
    return {name: e.value for name, e in found.items()} | {
        "icc2_1_ci95": ends(found["icc2_1"]), "ms_rows": rows, "ms_cols": columns, "ms_error": error,
    }  # fmt: skip


@recipe
def binomial_intervals(i: Inputs) -> Any:
    c = i.get("confidence", 0.95)
    return [
        {"k": k, "n": n, "wilson": proportions.wilson(k, n, confidence=c), "clopper_pearson": proportions.clopper_pearson(k, n, confidence=c),
         "upper_95_one_sided": proportions.upper_bound(k, n, confidence=0.95)}
        for k, n in i["cases"]
    ]  # fmt: skip


@recipe
def mcnemar_exact(i: Inputs) -> Any:
    return [
        {"table": t, "b": t[0][1], "c": t[1][0], "exact_p": paired.mcnemar(t[0][1], t[1][0]).p,
         "mid_p": paired.mcnemar(t[0][1], t[1][0], mid_p=True).p}
        for t in i["tables"]
    ]  # fmt: skip


@recipe
def bowker_stuart_maxwell(i: Inputs) -> Any:
    b, s = paired.bowker(i["table"]), paired.stuart_maxwell(i["table"])
    return {"bowker_chi2": b.statistic, "bowker_df": b.df, "bowker_p": b.p, "stuart_maxwell_chi2": s.statistic,
            "stuart_maxwell_df": s.df, "stuart_maxwell_p": s.p}  # fmt: skip


@recipe
def cochran_q(i: Inputs) -> Any:
    t = paired.cochran_q(i["items_by_judges_correct"])
    return {"q": t.statistic, "df": t.df, "p": t.p}


@recipe
def paired_bootstrap_ci(i: Inputs) -> Any:
    d = np.array(i["a"], float) - np.array(i["b"], float)
    options: dict[str, Any] = {
        "name": "d",
        "seed": i["seed"],
        "n_resamples": i["n_resamples"],
        "confidence": i.get("confidence", 0.95),
    }
    totals, ratio = np.column_stack([d, np.ones(len(d))]), lambda s: s[..., 0] / s[..., 1]
    draws = ratio(resample.weights(len(d), i["n_resamples"], seed=i["seed"]) @ totals)
    u = (d.sum() - d) / (len(d) - 1)
    u = u.mean() - u
    t = resample.mean(d, name="d", confidence=options["confidence"])
    return {
        "mean_diff": t.value, "percentile": ends(resample.bootstrap(totals, ratio, **options)),
        "bca": ends(resample.bootstrap(totals, ratio, bca=True, **options)),
        "z0": sps.norm.ppf(((draws < d.mean() - 1e-15).mean() + (draws <= d.mean() + 1e-15).mean()) / 2),
        "accel": (u**3).sum() / (6 * (u**2).sum() ** 1.5), "t_interval": ends(t), "sign_flip_exact_p": paired.sign_flip(d).p,
    }  # fmt: skip


@recipe
def cluster_bootstrap_ci(i: Inputs) -> Any:
    cluster, y = [r[0] for r in i["rows"]], np.array([r[1] for r in i["rows"]], float)
    totals = resample.family_sums(np.column_stack([y, np.ones(len(y))]), cluster)
    e = resample.bootstrap(
        totals,
        lambda s: s[..., 0] / s[..., 1],
        name="mean",
        seed=i["seed"],
        n_resamples=i["n_resamples"],
        confidence=i.get("confidence", 0.95),
    )
    g, n, sizes = len(totals), len(y), totals[:, 1]
    c = proportions.codes(cluster, n)
    means = totals[:, 0] / sizes
    between, within = (sizes * (means - y.mean()) ** 2).sum() / (g - 1), ((y - means[c]) ** 2).sum() / (n - g)
    m0 = (n - (sizes**2).sum() / n) / (g - 1)
    icc = (between - within) / (between + (m0 - 1) * within)
    deff = 1 + (n / g - 1) * icc
    return {"mean": e.value, "cluster_percentile": ends(e), "cluster_robust_se": resample.standard_error(y, cluster), "icc_oneway": icc,
            "design_effect": deff, "n_effective": n / deff}  # fmt: skip


@recipe
def brier_ece(i: Inputs) -> Any:
    y, p = np.array(i["y"], float), np.array(i["p"], float)
    table, base = calibration.reliability(y, p, bins=10, mass=False), y.mean()
    exact = [(y[p == v].mean(), v, (p == v).mean()) for v in np.unique(p)]
    reliability, resolution = sum(w * (v - r) ** 2 for r, v, w in exact), sum(w * (r - base) ** 2 for r, _, w in exact)
    brier, uncertainty = calibration.brier(y, p).value, base * (1 - base)
    return {
        "brier": brier, "murphy_reliability": reliability, "murphy_resolution": resolution, "murphy_uncertainty": uncertainty,
        "brier_skill": 1 - brier / uncertainty if brier is not None else None, "ece_equal_width_10": calibration.ece(y, p, bins=10, mass=False),
        "mce_equal_width_10": (table["rate"] - table["p_mean"]).abs().max(), "ece_equal_mass_5": calibration.ece(y, p, bins=5, mass=True),
        "bins_width": table[["bin", "n", "p_mean", "rate"]].to_numpy().tolist(),
    }  # fmt: skip


@recipe
def roc_auc(i: Inputs) -> Any:
    plain, logit = (calibration.auc(i["y"], i["score"], logit=flag) for flag in (False, True))
    se = None
    if logit.low is not None and logit.high is not None and logit.value is not None:
        width = math.log(logit.high / (1 - logit.high)) - math.log(logit.low / (1 - logit.low))
        se = width / 2 / sps.norm.ppf(0.975) * logit.value * (1 - logit.value)
    return {"auc": plain.value, "delong_se": se, "delong_ci95_clipped": ends(plain), "delong_ci95_logit": ends(logit)}


@recipe
def pr_auc(i: Inputs) -> Any:
    return {"average_precision": calibration.average_precision(i["y"], i["score"]).value, "baseline": float(np.mean(i["y"]))}


@recipe
def cost_and_net_benefit(i: Inputs) -> Any:
    y, p = i["y"], i["p"]
    best = calibration.best_threshold(y, p, cost_fn=i["cost_fn"], cost_fp=i["cost_fp"])
    return {
        "cost_at_0_85": calibration.cost(y, p, 0.85, cost_fn=i["cost_fn"], cost_fp=i["cost_fp"])[0], "best_threshold": best[0],
        "best_cost": best[1], "net_benefit_at_pt": calibration.net_benefit(y, p, i["pt"]),
        "treat_all_net_benefit": calibration.net_benefit(y, np.ones(len(y)), i["pt"]),
    }  # fmt: skip


@recipe
def anchoring_index(i: Inputs) -> Any:
    blind, low, high = (np.array(i[k], float) for k in ("blind", "low_anchor", "critical_anchor"))
    a, b, middle = i["low_anchor_value"], i["high_anchor_value"], float(np.median(blind))
    index, jk = paired.anchoring_index(low, high, low_value=a, high_value=b, n_resamples=50)
    up = paired.anchoring_index(blind, high, low_value=middle, high_value=b, n_resamples=50)[1]
    down = paired.anchoring_index(low, blind, low_value=a, high_value=middle, n_resamples=50)[1]
    effect = resample.mean(high - low, name="effect")
    return {
        "jk_index_median": jk.value, "ai_high": up.value, "ai_low": down.value, "paired_mean_effect": effect.value,
        "paired_mean_effect_ci95": ends(effect), "index_mean_based": index.value, "index_mean_ci95": ends(index),
    }  # fmt: skip


@recipe
def flip_rate(i: Inputs) -> Any:
    levels = i["repeats_by_item"]
    per_item = drift.flips_by_dialogue(levels)
    critical = [[3 if level == "critical" else 0 for level in row] for row in levels]
    return {
        "pairwise_unknown_as_level": drift.flip_rate(levels).value, "pairwise_unknown_dropped": drift.flip_rate(levels, unknown="dropped").value,
        "any_flip_unknown_as_level": float(np.mean(per_item > 0)), "pairwise_critical_vs_not": drift.flip_rate(critical).value,
        "per_item_pairwise": per_item.tolist(),
    }  # fmt: skip


@recipe
def error_dependence_2x2(i: Inputs) -> Any:
    t = i["table_false_critical"]
    counts = [t["both"], t["L1_only"], t["L2_only"], t["neither"]]
    a, b = np.repeat([1, 1, 0, 0], counts), np.repeat([1, 0, 1, 0], counts)
    d = dependence.error_dependence(a, b, add=0.0, n_resamples=50)
    n, both = sum(counts), t["both"]
    return {
        "fpr_L1": d["rate_first"].value, "fpr_L2": d["rate_second"].value, "joint_false_confirm": d["joint"].value,
        "independent_product": d["product"].value, "excess_covariance": d["joint"].value - d["product"].value, "lift": d["lift"].value,
        "lift_ci95_logdelta": ends(d["lift"]), "p_L2_given_L1": d["second_given_first"].value,
        "p_L2_given_L1_wilson": proportions.wilson(both, both + t["L1_only"]), "joint_wilson": proportions.wilson(both, n),
        "phi": d["phi"].value, "phi_max": d["phi_max"].value, "odds_ratio": d["odds_ratio"].value, "yule_q": d["yule_q"].value,
        "tetrachoric": d["tetrachoric"].value, "fisher_p": sps.fisher_exact([counts[:2], counts[2:]]).pvalue,
        "effective_judges": d["effective_judges"].value,
    }  # fmt: skip


@recipe
def gaussian_copula_joint(i: Inputs) -> Any:
    out = []
    for p, rho in i["cases"]:
        joint = float(dependence.copula_joint(p, p, rho))
        out.append(
            {
                "p": p,
                "rho": rho,
                "joint": joint,
                "lift": joint / p**2,
                "p_second_given_first": joint / p,
                "phi": (joint - p * p) / (p - p * p),
            }
        )
    return out


@recipe
def drift_ks_psi(i: Inputs) -> Any:
    ks = sps.ks_2samp(i["reference"], i["current"], method="exact")
    p, q = (np.array(i[k], float) / np.sum(i[k]) for k in ("level_counts_ref", "level_counts_cur"))
    places = np.arange(len(p))
    return {
        "ks_d": ks.statistic, "ks_p_exact": ks.pvalue, "psi": drift.psi(i["level_counts_ref"], i["level_counts_cur"]),
        "psi_zero_cell_add_half": drift.psi(i["level_counts_ref"], i["level_counts_zero_cell"]), "total_variation": np.abs(p - q).sum() / 2,
        "wasserstein_levels": sps.wasserstein_distance(places, places, p, q),
    }  # fmt: skip


@recipe
def cusum_ewma(i: Inputs) -> Any:
    c = drift.charts(i["z"], k=i["cusum_k"], lam=i["ewma_lambda"])
    limits = i["ewma_L"] * c["ewma_sd"]
    over = (c["up"] > i["cusum_h"], np.abs(c["ewma"]) > limits)
    return {
        "cusum_plus": c["up"], "cusum_alarm_index": drift.first_alarm(over[0]), "ewma": c["ewma"], "ewma_limits": limits,
        "ewma_alarm_index": drift.first_alarm(over[1]), "alarms_on_first_8_points": [drift.first_alarm(o[:8]) for o in over],
    }  # fmt: skip


@recipe
def trend_within_dialogue(i: Inputs) -> Any:
    x, one = np.array(i["dialogues_by_turns"], float), i["one_dialogue_levels"]
    law = sps.page_trend_test(x, method="exact")
    tau, page = sps.kendalltau(np.arange(len(one)), one), drift.page(x, method="normal")
    taus = drift.taus(x)
    return {
        "page_L": page.statistic, "page_p_exact": law.pvalue, "page_p_asymptotic": page.p, "kendall_tau_b_one": drift.taus([one])[0],
        "kendall_tau_b_p": tau.pvalue, "theil_sen_one": sps.theilslopes(one, np.arange(len(one))).slope, "tau_per_dialogue": taus,
        "tau_mean": taus.mean(),
    }  # fmt: skip


@recipe
def cusum_arl_one_sided(i: Inputs) -> Any:
    return [{"k": k, "h": h, "shift": s, "arl": drift.cusum_arl(k, h, shift=s)} for k, h, s in i["cases"]]


@recipe
def crossed_rater_item_mean(i: Inputs) -> Any:
    x = np.array(i["effect_by_rater_and_item"], float)
    e, (h, n) = agreement.crossed_mean(x, name="mean"), x.shape
    r, c, error = agreement._mean_squares(x)
    return {
        "mean": e.value, "se": over(half(e), sps.t.ppf(0.975, h - 1)), "ci95_t_raters": ends(e), "var_rater": (r - error) / n,
        "var_item": (c - error) / h, "var_residual": error, "se_items_only": x.mean(0).std(ddof=1) / math.sqrt(n),
        "se_raters_only": x.mean(1).std(ddof=1) / math.sqrt(h),
    }  # fmt: skip


@recipe
def rogan_gladen(i: Inputs) -> Any:
    e = prevalence.rogan_gladen(*(i[k] for k in ("k", "n", "tp", "n_pos", "tn", "n_neg")))
    ap, se, sp = i["k"] / i["n"], i["tp"] / i["n_pos"], i["tn"] / i["n_neg"]
    out = {
        "apparent": ap,
        "se": se,
        "sp": sp,
        "prevalence": e.value,
        "lang_reiczigel_ci95": ends(e),
        "clipped": e.status == "degenerate",
    }
    if se + sp <= 1:
        return out | {"delta_se": None, "delta_ci95": None}
    raw = (ap + sp - 1) / (se + sp - 1)
    variance = ap * (1 - ap) / i["n"] + raw**2 * se * (1 - se) / i["n_pos"] + (1 - raw) ** 2 * sp * (1 - sp) / i["n_neg"]
    delta = math.sqrt(variance) / (se + sp - 1)
    return out | {"delta_se": delta, "delta_ci95": [raw + z * delta for z in sps.norm.ppf([0.025, 0.975])]}


@recipe
def ppi_mean(i: Inputs) -> Any:
    arrays = [np.array(i[k], float) for k in ("y_labeled", "f_labeled", "f_unlabeled")]
    confidence = 1 - i.get("alpha", 0.05)
    plain, tuned = (prevalence.ppi_mean(*arrays, tuned=flag, confidence=confidence) for flag in (False, True))
    z, (y, f, u) = sps.norm.ppf((1 + confidence) / 2), arrays
    lam = np.cov(y, f, ddof=0)[0, 1] / ((1 + len(y) / len(u)) * np.r_[f, u].var(ddof=1))
    classical = resample.mean(y, name="classical", confidence=confidence)
    return {
        "mean_ppi": plain.value, "se_ppi": over(half(plain), z), "ci95_ppi": ends(plain), "lambda_tuned": min(max(lam, 0.0), 1.0),
        "mean_tuned": tuned.value, "se_tuned": over(half(tuned), z), "ci95_tuned": ends(tuned), "classical_mean": y.mean(),
        "classical_ci95": ends(classical), "judge_only_mean": u.mean(),
    }  # fmt: skip


@recipe
def holm_bh(i: Inputs) -> Any:
    tests = [paired.SignificanceTest("t", p=p) for p in i["p"]]
    return {method: [t.p_adjusted for t in paired.adjust(tests, method=method)] for method in ("holm", "bh")}


@recipe
def tost_equivalence(i: Inputs) -> Any:
    test, e = paired.tost(i["paired_diff"], i["low"], i["upp"])
    return {"p": test.p, "mean": e.value, "ci90": ends(e)}


@recipe
def missing_bounds(i: Inputs) -> Any:
    n, k, u = i["n"], i["critical"], i["unknown"]
    e = proportions.bounds([1] * k + [None] * u + [0] * (n - k - u), name="critical")
    return {"dropped": k / (n - u), "worst_low": e.value, "worst_high": e.value + e.n_unknown / e.n, "wilson_low_of_low": e.low,
            "wilson_high_of_high": e.high}  # fmt: skip


@recipe
def signed_rank_pratt_exact(i: Inputs) -> Any:
    t = paired.signed_rank(i["diff"])
    normal = sps.wilcoxon(i["diff"], zero_method="pratt", method="asymptotic") if any(i["diff"]) else None
    return {"w_plus": t.statistic, "exact_p_two_sided": t.p, "normal_approx_p": None if normal is None else normal.pvalue}


@recipe
def confirm_rule(i: Inputs) -> Any:
    from workbench.schema import FLAGS, Assessment

    def half(row: dict[str, Any], side: str) -> Assessment:
        flagged = {name: bool(row[f"flags{side}"]) and j == 0 for j, name in enumerate(FLAGS)}
        return Assessment(level=row[f"l{side}"], raw_level=row[f"l{side}"], confidence=row[f"c{side}"], flags=flagged)

    return {"confirmed": [all(half(r, s).meets_gate(i.get("threshold", 0.85)) for s in "12") for r in i["rows"]]}

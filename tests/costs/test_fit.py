"""Fitting: forms, tables of corrections, what is kept out, and what is said of it."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cost_models import batch_of, measured
from synthetic_calibration import PAGE_FACTOR, write_calibration

from command import SHARED
from sim.costs.fit import command
from sim.costs.fit.build import build_profile
from sim.costs.fit.calibrations import build_calibrated, score_off_grid
from sim.costs.fit.families import FAMILIES, sizes_of
from sim.costs.fit.fitting import fit_variants
from sim.costs.fit.rows import is_below_peak
from sim.costs.fit.score import score
from sim.costs.fit.solve import fit_grid
from sim.costs.fit.tables import FITTED, Table, TableError, kept_out, read_table
from sim.costs.forms import Heads, decode_us, p_norm
from sim.costs.grid import Axis, Grid
from sim.costs.profile import load_profile, write_profile
from sim.costs.variants import Variant

DECODE_FORM = {
    "a_us": 8.0,
    "us_per_wave": 3.0,
    "us_per_mb": 0.25,
    "small_factor": 1.0,
    "small_lo_mb": 40.0,
    "small_hi_mb": 300.0,
    "split_us": 2.0,
    "us_per_mq": 3.0,
    "p": 1.4,
    "tile_rows": 64.0,
    "sms": 132.0,
}

needs_tables = pytest.mark.skipif(
    not (SHARED / "calibration").is_dir(), reason="needs the public kernel tables (KVSIM_SHARED)"
)


def decode_rows(form: dict[str, float], noise: float = 0.0) -> pd.DataFrame:
    """A table like decode_attention, of one kernel that follows the form."""
    rng = np.random.default_rng(0)
    rows = [
        (heads, kv_heads, 2**b, 2**n)
        for heads, kv_heads in (
            (8, 1),
            (16, 2),
            (32, 8),
            (64, 8),
            (32, 32),
            (12, 4),
            (48, 8),
            (24, 8),
            (40, 8),
            (64, 4),
        )
        for b in range(10)
        for n in range(4, 16)
        if b + n < 22
    ]
    table = pd.DataFrame(rows, columns=["heads", "kv_heads", "batch", "kv_len"])
    us = [
        float(decode_us(form, Heads(h, k, 128), np.float64(b), np.float64(n)))
        for h, k, b, n in rows
    ]
    labels = {"gpu": "G", "engine": "vllm", "kernel": "fa3", "version": "1", "kv_dtype": "bf16"}
    us_noisy = np.array(us) * np.exp(noise * rng.standard_normal(len(us)))
    return table.assign(head_dim=128, page_size=64, us=us_noisy, **labels)


def as_table(rows: pd.DataFrame, name: str = "decode_attention") -> Table:
    return Table(name, rows, kept_out(rows, name), "0" * 64)


def test_the_p_norm_lies_between_the_larger_and_the_sum() -> None:
    left, right = np.array([3.0, 0.0, 1.0]), np.array([4.0, 5.0, 1e9])
    assert p_norm(left, right, 1.0) == pytest.approx([7, 5, 1e9 + 1])
    assert p_norm(left, right, 2.0) == pytest.approx([5, 5, 1e9])
    assert p_norm(left, right, 60.0)[0] == pytest.approx(4.0, rel=1e-3)


def test_a_fit_recovers_the_kernel_that_made_the_times() -> None:
    """The errors it states of rows kept out are those of the noise."""
    table = as_table(decode_rows(DECODE_FORM, noise=0.02))
    (variant,) = fit_variants(FAMILIES[0], table, 132).values()
    assert variant.form["us_per_mb"] == pytest.approx(0.25, rel=0.05)
    assert variant.form["us_per_wave"] == pytest.approx(3.0, rel=0.1)
    assert variant.form["sms"] == 132
    assert variant.errors["rows_fitted"] == (table.kept == FITTED).sum()
    for kind in ("random", "unseen heads"):
        assert 1.0 < variant.errors[kind]["mape"] < 3.0
    assert 1.0 < variant.errors["leave_one_out"] < 3.0
    assert variant.valid["batch"] == (1, 512)


def test_a_table_of_corrections_learns_what_the_form_cannot_say() -> None:
    rows = decode_rows(DECODE_FORM)
    rows["us"] *= np.where(rows["kv_len"] > 1024, 1.5, 1.0)
    (variant,) = fit_variants(FAMILIES[0], as_table(rows), 132).values()
    cell = variant.errors["random"]
    assert cell["mape"] < 0.4 * cell["closed_form_mape"]


def test_a_grid_is_exact_on_its_nodes_and_flat_beyond_them() -> None:
    grid = Grid((Axis("batch", 0, 1, 3),), np.log(np.array([1.0, 2.0, 8.0])))
    at = grid.factor([np.array([0.5, 1.0, 2.0, 2.0**1.5, 4.0, 100.0])])
    assert at == pytest.approx([1, 1, 2, 4, 8, 8])
    assert Grid.from_data(grid.to_data()).factor([np.array(2.0)]) == pytest.approx(2, rel=1e-3)


def test_leave_one_out_is_what_a_fit_without_the_row_gives() -> None:
    rng = np.random.default_rng(1)
    axes = [Axis("batch", 0, 1, 5)]
    sizes, logs = 2.0 ** rng.uniform(0, 4, 30), rng.standard_normal(30)
    whole = fit_grid(axes, [sizes], logs)
    without = np.arange(30) != 7
    other = fit_grid(axes, [sizes[without]], logs[without])
    predicted = np.log(other.grid.factor([sizes[7:8]]))[0]
    assert whole.left_out[7] == pytest.approx(logs[7] - predicted, rel=1e-6)


def test_which_rows_are_kept_out_depends_on_sizes_alone() -> None:
    rows = decode_rows(DECODE_FORM)
    kinds = kept_out(rows, "decode_attention")
    slower = rows.assign(us=rows["us"] * 7, engine="other")
    assert kinds.tolist() == kept_out(slower, "decode_attention").tolist()
    assert kinds[::-1].tolist() == kept_out(rows[::-1], "decode_attention").tolist()
    random = (kinds == "random").mean() / (kinds != "unseen heads").mean()
    assert 0.12 < random < 0.21
    unseen = rows[kinds == "unseen heads"].groupby(["heads", "kv_heads"]).size()
    assert len(unseen) >= 1
    assert (unseen == rows.groupby(["heads", "kv_heads"]).size()[unseen.index]).all()


def test_a_column_holdout_says_which_rows_are_kept_out_and_names_them(tmp_path: Path) -> None:
    rows = decode_rows(DECODE_FORM)[:6].assign(holdout=[0, 1, "heads", "train", "", "random"])
    rows.to_csv(tmp_path / "decode_attention.csv.gz", index=False)
    table = read_table(tmp_path, "decode_attention")
    assert table is not None
    assert table.kept.tolist() == ["", "kept out", "heads", "", "", "random"]


def test_linears_faster_than_the_memory_are_dropped() -> None:
    rows = pd.DataFrame(
        {
            "gpu": ["H100", "H100"],
            "dtype": "bf16",
            "m": 1,
            "n": 4096,
            "k": 4096,
            "us": [33.6 / 3.35 * 1.01, 33.5 / 3.35 * 0.9],
        }
    )
    assert is_below_peak(rows).tolist() == [True, False]


def test_another_folders_rows_are_all_scored(tmp_path: Path) -> None:
    rows = decode_rows(dict(load_profile("h100").kernels["decode"]["vllm fa3 bf16 hd128"].form))
    rows.assign(gpu="H100").to_csv(tmp_path / "decode_attention.csv", index=False)
    cells = score(tmp_path)["h100"]["decode_attention"]
    assert cells["rows"] == len(rows)
    assert cells["by_kind"]["not fitted to"] == {"mape": cells["mape"], "rows": len(rows)}
    assert cells["by_kind"]["closed form alone"]["mape"] < cells["mape"]
    assert score(tmp_path).keys() == {"h100"}


@needs_tables
def test_the_shipped_profiles_keep_the_bars_on_rows_kept_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FA3 decode within 6.5 % without and 4.5 % with corrections, its prompts within 8.5 %, 16-bit
    linears within 7 %; A100 and TensorRT-LLM better than the published fits. head_dim is 128, of
    the closed form any.
    """
    monkeypatch.setenv("KVSIM_CALIBRATION_DIR", str(SHARED / "calibration"))
    assert command.main(["--score", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    published = json.loads((SHARED / "calibration" / "fits.json").read_text())
    for name in ("h100", "h200"):
        decode = scores[name]["decode_attention"]["by_kind"]
        for kernel in ("vllm fa3 bf16 hd128", "sglang fa3 bf16 hd128"):
            assert decode[f"closed form alone, decode {kernel}"]["mape"] <= 6.5
            assert decode[f"decode {kernel}"]["mape"] <= 4.5
            prompts = scores[name]["prefill_attention"]["by_kind"][f"prefill {kernel}"]
            assert prompts["mape"] <= 8.5
        for label, cell in decode.items():
            if label.startswith("closed form alone, decode") and "fa3 bf16" in label:
                assert cell["mape"] <= 6.5, label
        assert scores[name]["gemm"]["by_kind"]["linear vllm bf16"]["mape"] <= 7.0
    tables = {"decode": "decode_attention", "prefill": "prefill_attention"}
    compared = 0
    for profile, gpu in (("a100-80", "A100"), ("h100", "H100"), ("h200", "H200")):
        for family, table in tables.items():
            for label, fit in published[table].items():
                own_gpu, engine, dtype, _ = label.split("/")
                if own_gpu != gpu or (gpu != "A100" and engine != "trtllm"):
                    continue
                kernel = {"trtllm": "trtllm_fmha"}.get(engine, "fa2")
                cell = scores[profile][table]["by_kind"][
                    f"{family} {engine} {kernel} {dtype} hd128"
                ]
                assert cell["mape"] < fit["all"]["mape"], (profile, label)
                if engine == "trtllm" and family == "decode":  # also its fits of single shapes
                    best = min(fit["per_config"][how]["mape"] for how in fit["per_config"])
                    assert cell["mape"] < best, (profile, label)
                compared += 1
    assert compared == 10
    linears = scores["a100-80"]["gemm"]["by_kind"]["n, k >= 1024"]
    assert linears["mape"] < published["gemm_n_k_ge_1024"]["A100/vllm/bf16"]["all"]["mape"]


@needs_tables
def test_the_shipped_profiles_were_fitted_to_these_tables() -> None:
    for name in ("h100", "h200", "a100-80"):
        for table, digest in load_profile(name).data.items():
            found = read_table(SHARED / "calibration", table)
            assert found is not None
            assert found.sha256 == digest


def test_a_synthetic_calibration_folder_becomes_a_profile_of_our_own(tmp_path: Path) -> None:
    folder = write_calibration(tmp_path / "synthetic")
    profile = build_calibrated(folder, lambda line: None)
    assert (profile.name, profile.kind, profile.sms) == ("synthetic-kvsim", "measured", 132)
    assert "kernels at commit synthetic" in profile.source
    assert score_off_grid(profile, folder)["mape"] < 3
    for page in (16, 64, 128):
        sizes = [np.array(float(page)), np.array(64.0)]
        assert profile.paging["decode"].factor(sizes) == pytest.approx(PAGE_FACTOR[page], abs=0.01)
    path = tmp_path / "own.yaml"
    write_profile(path, profile)
    again = load_profile(str(path))
    assert again.constant("copy_us_per_mb") == pytest.approx(100 / 2**28 * 1e6, rel=1e-3)
    paged, plain = (
        measured(profile=str(path), block_size=size).iteration_s(batch_of(decodes=64, length=4096))
        for size in (16, None)
    )
    attention_s = 32 * 64 * 4096 * 4096 / 4.2e12
    assert paged - plain == pytest.approx(0.04 * attention_s, rel=0.25)


def test_a_calibration_folder_is_fitted_by_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_calibration(tmp_path / "synthetic")
    assert command.main([str(folder), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.endswith("synthetic-kvsim.yaml\n")
    assert load_profile(str(tmp_path / "out" / "synthetic-kvsim.yaml")).kind == "measured"


def test_what_is_wrong_with_the_input_is_one_sentence_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KVSIM_CALIBRATION_DIR", raising=False)
    monkeypatch.delenv("KVSIM_SHARED", raising=False)
    assert command.main(["--score"]) == 2
    monkeypatch.setenv("KVSIM_CALIBRATION_DIR", str(tmp_path))
    assert command.main(["h10"]) == 2
    assert command.main(["h100", "--out", str(tmp_path)]) == 2
    pd.DataFrame({"gpu": ["H100"], "us": [1]}).to_csv(tmp_path / "gemm.csv", index=False)
    assert command.main(["--score"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "KVSIM_CALIBRATION_DIR is not set, nor is KVSIM_SHARED: no tables to read",
        "unknown profile 'h10', did you mean h100; accepted: h200, h100, a100-80, rtx-4090, "
        "rtx-pro-6000, a100-40-2023, or a calibration folder",
        f"{tmp_path}: has no decode_attention.csv or decode_attention.csv.gz",
        f"{tmp_path / 'gemm.csv'}: has no column m; needed are m, n, k, gpu, engine, dtype, us",
    ]
    (tmp_path / "points.csv").write_text("ok,us\n")
    with pytest.raises(TableError, match="cannot be read"):
        build_calibrated(tmp_path, lambda line: None)


def test_a_variant_survives_being_written_down() -> None:
    variant = Variant("x", {"a_us": 1.23456789}, valid={"m": (1, 8)}, facts={"width": 1})
    again = Variant.from_data("x", json.loads(json.dumps(variant.to_data())))
    assert again.form == {"a_us": 1.23457}
    assert again.valid == {"m": (1, 8)}
    assert again.facts == {"width": 1}


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("us", float("nan"), "us is empty; accepted: microseconds, 0.001 to below 1e9"),
        ("us", -3.0, "us is -3.0; accepted: microseconds, 0.001 to below 1e9"),
        ("us", "fast", "us is 'fast'; accepted: microseconds, 0.001 to below 1e9"),
        ("kv_len", 1.5, "kv_len is 1.5; accepted: a whole number of at least 1, below 1e9"),
        ("batch", 0, "batch is 0; accepted: a whole number of at least 1, below 1e9"),
        ("kv_dtype", "int4", "kv_dtype is 'int4'; accepted: bf16, fp8"),
        ("kernel", None, "kernel is empty; accepted: a name"),
        (
            "heads",
            33,
            "33 heads and 8 kv_heads; accepted: the same number of heads for each KV head",
        ),
    ],
)
def test_a_bad_cell_is_named_by_its_line_and_nothing_is_written(
    column: str, value: object, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = decode_rows(DECODE_FORM).query("heads == 32 and kv_heads == 8").assign(gpu="H100")
    rows[column] = rows[column].astype(object)
    rows.iloc[5, rows.columns.get_loc(column)] = value
    path = tmp_path / "decode_attention.csv"
    rows.to_csv(path, index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVSIM_CALIBRATION_DIR", str(tmp_path))
        assert command.main(["h100", "--out", str(tmp_path / "out")]) == 2
        assert command.main(["--score", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [f"{path}, line 7: {said}"] * 2
    assert not captured.out
    assert not (tmp_path / "out").exists()


def test_a_table_without_rows_to_fit_to_says_so(tmp_path: Path) -> None:
    rows = decode_rows(DECODE_FORM).assign(gpu="RTX 4090", n_decode=1, prefill_chunk=0)
    rows = rows.assign(kv_prefill=0, kv_decode=rows["kv_len"], holdout="later")
    rows.to_csv(tmp_path / "mixed_batch_attention.csv", index=False)
    sizes = {"n_long": 1, "kv_short": 1, "kv_long": 1, "us_skewed": 1.0, "us_uniform_mean": 1.0}
    rows.assign(**sizes).to_csv(tmp_path / "ragged_decode.csv", index=False)
    layers = {"model": "Llama-3.1-8B", "tp": 1, "layer": "qkv_proj", "tokens": rows["batch"]}
    rows.assign(**layers).to_csv(tmp_path / "layer_times.csv", index=False)
    said = "too few rows of RTX 4090 to fit decode of vllm to: at least 20 that are not kept out"
    with pytest.raises(TableError, match=said):
        build_profile("rtx-4090", tmp_path, lambda line: None)


def test_the_order_of_columns_and_rows_does_not_matter(tmp_path: Path) -> None:
    rows = decode_rows(DECODE_FORM, noise=0.02)
    rows.to_csv(tmp_path / "decode_attention.csv", index=False)
    table = read_table(tmp_path, "decode_attention")
    rows[rows.columns[::-1]].to_csv(tmp_path / "decode_attention.csv", index=False)
    turned = read_table(tmp_path, "decode_attention")
    assert table is not None
    assert turned is not None
    assert table.kept.tolist() == turned.kept.tolist()
    assert sizes_of(FAMILIES[0], table.rows).keys() == sizes_of(FAMILIES[0], turned.rows).keys()


def test_a_kernel_that_is_launched_for_other_groups_is_fitted_apart() -> None:
    """TensorRT-LLM from 33 query heads a KV head on: each reads the keys for itself."""
    rows = decode_rows(DECODE_FORM).assign(engine="trtllm", kernel="trtllm_fmha")
    many = rows.query("heads == 32 and kv_heads == 8").assign(heads=64, kv_heads=1)
    form = {**DECODE_FORM, "tile_rows": 1.0}
    sizes = zip(many["batch"], many["kv_len"], strict=True)
    many["us"] = [
        float(decode_us(form, Heads(64, 64, 128), np.float64(b), np.float64(n))) for b, n in sizes
    ]
    table = as_table(pd.concat([rows, many], ignore_index=True))
    found = fit_variants(FAMILIES[0], table, 132)
    apart = found["trtllm trtllm_fmha bf16 hd128 group 33+"]
    assert apart.facts["packs_heads"] is False
    assert apart.errors["random"]["mape"] < 3
    assert {name.partition("group ")[2] for name in found} == {"2-16", "33+"}
    assert [v.misses_group(64) for v in found.values()].count(0.0) == 1


def test_a_model_gets_the_kernel_that_its_groups_launch() -> None:
    for heads, kv_heads, suffix in (
        (32, 32, "1"),
        (32, 8, "2-16"),
        (64, 2, "17-32"),
        (64, 1, "33+"),
    ):
        shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": 128}
        shape["kv_bytes_per_token"] = 4 * 32 * kv_heads * 128
        model = measured(profile="h100", kernel="trtllm", **shape)
        assert model.chosen.decode.name == f"trtllm trtllm_fmha bf16 hd128 group {suffix}"


def test_the_bytes_of_one_tile_and_warm_l2_are_in_the_closed_form() -> None:
    one, many = Heads(4, 1, 128), Heads(128, 32, 128)
    form = {**DECODE_FORM, "us_per_tile_mb": 1.0}
    slow, plain = (decode_us(f, one, np.float64(1), np.float64(2**17)) for f in (form, DECODE_FORM))
    assert slow > 3 * plain
    slow, plain = (
        decode_us(f, many, np.float64(64), np.float64(2**12)) for f in (form, DECODE_FORM)
    )
    assert slow == pytest.approx(plain, rel=0.01)
    warm = {**DECODE_FORM, "l2_saved": 0.5, "l2_lo_mb": 30.0, "l2_hi_mb": 60.0}
    at = (many, np.float64(8), np.float64(128))
    assert decode_us(warm, *at, as_measured=True) < decode_us(DECODE_FORM, *at, as_measured=True)
    assert decode_us(warm, *at) == decode_us(DECODE_FORM, *at)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("us", -1, "us is -1.0; accepted: a number of 0.001 to below 1e+09"),
        ("us", "fast", "us is 'fast'; accepted: a number of 0.001 to below 1e+09"),
        ("kv_heads", 0, "kv_heads is 0; accepted: a whole number of 1 to below 1e+09"),
        ("page", "x", "page is 'x'; accepted: a whole number of 0 to below 1e+09"),
        ("dtype", "int4", "dtype is 'int4'; accepted: bf16, fp8"),
    ],
)
def test_a_bad_cell_of_our_own_points_is_named_by_its_line(
    column: str, value: object, said: str, tmp_path: Path
) -> None:
    folder = write_calibration(tmp_path / "synthetic")
    points = pd.read_csv(folder / "points.csv", keep_default_na=False, dtype=object)
    points.loc[5, column] = value
    points.to_csv(folder / "points.csv", index=False)
    with pytest.raises(TableError) as caught:
        build_calibrated(folder, lambda line: None)
    assert str(caught.value) == f"{folder / 'points.csv'}, line 7: {said}"


def test_a_document_of_points_without_its_gpu_is_refused(tmp_path: Path) -> None:
    folder = write_calibration(tmp_path / "synthetic")
    document = json.loads((folder / "calibration.json").read_text())
    for facts, said in (
        ({"gpu": None}, "gpu is None; accepted: a mapping"),
        ({"gpu": {"name": "x", "sm_count": 0}}, "gpu.sm_count is 0; accepted: a whole number"),
        ({"status": ""}, "status is ''; accepted: a text"),
        ({"ceilings": {"read_tb_s": "x"}}, "ceilings.read_tb_s is 'x'; accepted: a number"),
    ):
        (folder / "calibration.json").write_text(json.dumps({**document, **facts}))
        with pytest.raises(TableError, match=said):
            build_calibrated(folder, lambda line: None)


def test_rows_that_no_profile_knows_are_said_and_nothing_to_score_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSIM_CALIBRATION_DIR", str(tmp_path))
    assert command.main(["--score", "--json"]) == 2
    rows = decode_rows(DECODE_FORM)[:40].assign(gpu=["H100", "B200"] * 20)
    path = tmp_path / "decode_attention.csv"
    rows.to_csv(path, index=False)
    assert command.main(["--score", "--json"]) == 0
    rows.assign(holdout=0).to_csv(path, index=False)
    assert command.main(["--score", "--json"]) == 2
    rows.to_csv(f"{path}.gz", index=False)
    assert command.main(["--score", "--json"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"{tmp_path}: has no .csv or .csv.gz of decode_attention")
    assert lines[1] == f"note: {path}: 20 rows are not scored: no profile is of B200"
    assert lines[3].endswith(
        "no row of decode_attention is kept out, and of a kernel that a profile has"
    )
    assert lines[4] == f"{tmp_path}: has both {path.name}.gz and {path.name}; accepted: one"


def test_sizes_written_as_floats_and_blank_lines_keep_out_the_same_rows(tmp_path: Path) -> None:
    rows = decode_rows(DECODE_FORM)[:60]
    plain, path = tmp_path / "plain", tmp_path / "decode_attention.csv"
    plain.mkdir()
    rows.to_csv(plain / path.name, index=False)
    lines = rows.astype({"batch": float, "kv_len": float}).to_csv(index=False).splitlines()
    path.write_text("\n".join([*lines[:5], "", *lines[5:], "", ""]))
    tables = [read_table(folder, "decode_attention") for folder in (plain, tmp_path)]
    assert tables[0] is not None
    assert tables[1] is not None
    assert tables[0].kept.tolist() == tables[1].kept.tolist()
    path.write_text("\n".join([*lines[:5], "", *lines[5:30], "x"]))
    with pytest.raises(TableError, match="line 32: heads is 'x'"):
        read_table(tmp_path, "decode_attention")

"""What the documentation names exists."""

from __future__ import annotations

import ast
import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LAYER_API = (ROOT / "docs" / "layer-api.md").read_text(encoding="utf-8")
SYMBOLS = sorted(set(re.findall(r"`(thalweg[\w.]*:[\w.]+)`", LAYER_API)))
CASES = (ROOT / "docs" / "cases.md").read_text(encoding="utf-8")
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", LAYER_API + CASES)))

OTHER_ENGINE = """
TransformerLayer LayerCapabilities LayerWeightSetup LayerWriteOnAccept LayerGraphHooks LayerAuxState
LayerSplitPrefill CircuitBindings LayerState
decode alloc_state prefill prefill_phase1 decode_batched decode_multi_seq decode_verify_multi
release_state prefill_phase1_proj_batched prefill_phase1_conv1d_one prefill_phase1_l2_batched
prefill_gdn_full prefill_inner_batched_q12 prefill_gdn_full_batched
prefill_gdn_full_batched_fla_varlen prefill_phase3
AttnLayerState AttnMetadataDev BatchedAttnMetadata EmptyLayerState ForwardContext GdnCarryBinding
GdnPrefillBuffers MidchunkCapture SsmLayerState MoeLoraRoute MTP_CATCHUP_MAX
VERIFY_WY_LAYER_STRIDE_BYTES VERIFY_WY_TABLES_PER_LAYER VERIFY_WY_TABLE_SEQS
VERIFY_WY_TABLE_STRIDE_BYTES DevicePtr PagedKvCache GpuBackend
hidden residual state kv_cache seq_len block_table disk_block_ids disk_last_offloaded_per_layer ctx
stream num_tokens seq_len_start kv_write_start gdn_bufs token_offset num_seqs states seq_lens
block_tables n_seqs ks wy_tables hidden_stacked residual_stacked total_tokens len batched_meta
h_state_ptrs batch_size chunk_len cu_seqlens max_num_chunks total_nt max_seqlen gpu
as_any free_sequence_dispatch default_loops stage_batched_attn_metadata prefill_attn_batched_layer
prefill_ssm_batched_layer stage_h_state_ptrs upload_verify_wy_tables GdnStates moe_route_gate
resolve_moe_lora_route mtp_kv_exact lora
"""
"""Every trait, type, function, constant and parameter of the three API pages."""


@pytest.mark.parametrize("name", OTHER_ENGINE.split())
def test_every_capability_has_a_row(name: str) -> None:
    rows = [line for line in LAYER_API.splitlines() if line.startswith("| ")]
    assert any(f"`{name}`" in row.split(" | ")[0] for row in rows)


def test_every_row_is_proved_or_comes_later() -> None:
    for row in LAYER_API.splitlines():
        if row.startswith("| ") and not row.startswith(("| ---", "| name")):
            _, home, proof = row.removesuffix("|").split(" | ")
            assert "`tests/" in proof or "later: " in home, row


def test_every_case_has_a_test_or_comes_later() -> None:
    rows = [line for line in CASES.splitlines() if re.match(r"\| [ANPSMT]\d+ ", line)]
    assert len(rows) > 30
    for row in rows:
        assert "`tests/" in row or "later: " in row, row


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_symbols_exist(symbol: str) -> None:
    module, _, path = symbol.partition(":")
    first, *rest = path.split(".")
    found = getattr(importlib.import_module(module), first)
    fields = getattr(found, "__dataclass_fields__", {})
    if rest and rest[0] in fields:
        return
    reduce(getattr, rest, found)


@pytest.mark.parametrize("name", TESTS)
def test_tests_exist(name: str) -> None:
    file, _, function = name.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]*)(?:#[^)]*)?\)", document.read_text("utf-8")):
        assert not target or (document.parent / target).exists(), target

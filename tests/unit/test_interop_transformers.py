"""Hugging Face transformers over our blocks: its own generate() gives the same tokens as with its own cache.

Runs on the CPU with small models of random weights; nothing here has run on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="pip install tensormem[transformers]")

from tensormem import errors  # noqa: E402
from tensormem.interop.transformers import PagedKVStore  # noqa: E402
from tensormem.pools import PhysicalLimit  # noqa: E402

PAGE = 64 << 10
torch.set_num_threads(1)  # the models are small, and threads that wait for each other cost more than they help


def make_model(seed: int = 0, layers: int = 3) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=199,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.LlamaForCausalLM(config).eval()


MODEL = make_model()


@pytest.fixture
def store() -> Iterator[PagedKVStore]:
    with PagedKVStore(MODEL.config, "1GiB", block_tokens=4, page_size=PAGE, release_threshold=0) as made:
        yield made
        assert made.stats().sequences == 0
        assert made.tables._is_valid() and made.blocks._is_valid()


def prompt(rows: int, width: int, seed: int = 1) -> Any:
    return torch.randint(3, 199, (rows, width), generator=torch.Generator().manual_seed(seed))


def generate(ids: Any, cache: Any, model: Any = MODEL, **options: Any) -> Any:
    mask = options.pop("attention_mask", torch.ones_like(ids))
    with torch.no_grad():
        return model.generate(
            ids, attention_mask=mask, past_key_values=cache, max_new_tokens=20, do_sample=False, **options
        )


def expected(ids: Any, model: Any = MODEL, **options: Any) -> Any:
    return generate(ids, transformers.DynamicCache(), model, **options)


# --- The same tokens ---


@pytest.mark.parametrize(
    ("rows", "options"),
    [(1, {}), (3, {}), (1, {"num_beams": 4}), (2, {"num_beams": 3, "num_return_sequences": 3})],
    ids=["greedy", "batched", "beams", "batched beams"],
)
def test_generate_gives_the_same_tokens_as_with_its_own_cache(
    store: PagedKVStore, rows: int, options: dict[str, int]
) -> None:
    ids = prompt(rows, 11)
    with store.cache() as cache:
        found = generate(ids, cache, **options)
        assert len(cache.sequences) == rows * options.get("num_beams", 1)
    assert found.tolist() == expected(ids, **options).tolist()


def test_a_batch_with_padding_gives_the_same_tokens(store: PagedKVStore) -> None:
    ids = prompt(3, 9)
    mask = torch.ones_like(ids)
    ids[0, :4], mask[0, :4] = 0, 0
    with store.cache() as cache:
        found = generate(ids, cache, attention_mask=mask)
    assert found.tolist() == expected(ids, attention_mask=mask).tolist()


def test_beams_share_the_blocks_of_their_prompt(store: PagedKVStore) -> None:
    ids = prompt(1, 40)
    with store.cache() as cache:
        generate(ids, cache, num_beams=4)
        assert len(cache.sequences) == 4
        shared = [set(store.tables.blocks(each)) for each in cache.sequences]
        assert len(set.intersection(*shared)) >= 10
        assert store.stats().total_copied > 0


def test_crop_and_reset_forget_tokens(store: PagedKVStore) -> None:
    ids = prompt(1, 11)
    with store.cache() as cache, torch.no_grad():
        whole = MODEL(ids, past_key_values=cache).logits
        cache.crop(-5)
        assert cache.get_seq_length() == 6
        again = MODEL(ids[:, 6:], past_key_values=cache).logits
        torch.testing.assert_close(again, whole[:, 6:])
        cache.reset()
        assert cache.get_seq_length() == 0
        torch.testing.assert_close(MODEL(ids, past_key_values=cache).logits, whole)


# --- Prefixes ---


def test_a_second_request_computes_only_what_the_first_did_not(store: PagedKVStore) -> None:
    ids = prompt(1, 30)
    first = store.cache(ids)
    answer = generate(ids, first)
    first.finish(answer)
    longer = torch.cat([answer, prompt(1, 5, seed=9)], dim=1)
    with store.cache(longer) as second:
        assert second.get_seq_length() == 48  # of 49 computed tokens, in blocks of 4
        seen: list[int] = []
        hook = MODEL.model.layers[0].register_forward_pre_hook(
            lambda module, arguments, options: seen.append(
                (arguments[0] if arguments else options["hidden_states"]).shape[1]
            ),
            with_kwargs=True,
        )
        found = generate(longer, second)
        hook.remove()
        assert seen[0] == longer.shape[1] - 48
    assert found.tolist() == expected(longer).tolist()
    assert store.stats().matched_tokens == 48


def test_rows_of_a_batch_go_on_from_the_same_place(store: PagedKVStore) -> None:
    shared = prompt(1, 24)
    with_both = torch.cat([shared.repeat(3, 1), prompt(3, 7, seed=5)], dim=1)
    first = store.cache(shared)
    first.finish(generate(shared, first))
    with store.cache(with_both) as cache:
        assert cache.get_seq_length() == 24
        assert generate(with_both, cache).tolist() == expected(with_both).tolist()
    with store.cache(with_both, copies=3) as cache:
        assert generate(with_both, cache, num_beams=3).tolist() == expected(with_both, num_beams=3).tolist()
    with store.cache(with_both, salt=1) as cache:
        assert cache.get_seq_length() == 0


# --- Two models, one budget ---


def test_memory_flows_from_the_idle_model_to_the_busy_one() -> None:
    other = make_model(seed=3, layers=5)
    budget = PhysicalLimit(54 * PAGE)
    with (
        PagedKVStore(MODEL.config, "1GiB", block_tokens=4, page_size=PAGE, budget=budget) as first,
        PagedKVStore(other.config, "1GiB", block_tokens=4, page_size=PAGE, budget=budget) as second,
    ):
        morning = prompt(8, 60)
        cache = first.cache(morning)
        cache.finish(generate(morning, cache))
        held = first.blocks.physical_memory_usage
        assert held > 0
        evening = prompt(12, 150, seed=2)
        with second.cache(evening) as cache:
            assert generate(evening, cache, other).tolist() == expected(evening, other).tolist()
            assert budget.used <= budget.limit
            assert second.blocks.physical_memory_usage > budget.limit - held
        assert first.blocks.physical_memory_usage < held
        # And back: what it lost is computed again, and is right.
        with first.cache(morning) as cache:
            assert generate(morning, cache).tolist() == expected(morning).tolist()


def test_a_model_is_suspended_and_resumed_at_the_same_addresses(store: PagedKVStore) -> None:
    ids = prompt(2, 30)
    cache = store.cache(ids)
    answer = generate(ids, cache)
    addresses = [store.keys(layer).data_ptr() for layer in range(store.layer_count)]
    held = store.blocks.physical_memory_usage
    assert store.suspend() == held > 0
    assert store.blocks.physical_memory_usage == 0
    with pytest.raises(errors.InvalidArgument, match="suspended"):
        store.cache(ids)
    assert store.resume() == held
    assert [store.keys(layer).data_ptr() for layer in range(store.layer_count)] == addresses
    more = torch.cat([answer, prompt(2, 3, seed=4)], dim=1)
    found = generate(more, cache)
    cache.close()
    assert found.tolist() == expected(more).tolist()


# --- What is refused ---


def test_a_shortage_is_told_and_the_sequences_before_it_are_whole() -> None:
    with PagedKVStore(MODEL.config, "1GiB", block_tokens=4, page_size=PAGE, physical_limit=12 * PAGE) as store:
        ids = prompt(1, 20)
        with store.cache() as cache:
            answer = generate(ids, cache)
            with pytest.raises(errors.OutOfPhysicalMemory), store.cache() as large:
                generate(prompt(16, 200), large)
            assert store.stats().sequences == 1
            assert answer.tolist() == expected(ids).tolist()


def test_a_closed_cache_and_other_batches_are_refused(store: PagedKVStore) -> None:
    ids = prompt(2, 8)
    with store.cache(ids) as cache, torch.no_grad(), pytest.raises(errors.InvalidArgument, match="2 sequences"):
        MODEL(ids[:1], past_key_values=cache)
    cache.close()
    with pytest.raises(errors.UseAfterRelease), torch.no_grad():
        MODEL(ids, past_key_values=cache)

"""Owns: a KV cache for Hugging Face transformers whose keys and values lie in blocks of ours: `PagedKVStore` has the
memory of one model, and gives a `transformers.Cache` for each call of `generate`.

Keys and values of each layer are a plane of one block cache, so all layers share slots. Attention is transformers' own:
it wants all keys of a sequence side by side, so each step gathers them; an engine with a kernel for paged attention
takes the slots and gathers nothing. It has run on the CPU. Must not know: generation, models.
"""

from __future__ import annotations

from array import array
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from tensormem import errors
from tensormem.pools import BlockCache, BlockTables, BlockTablesStats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem._core import Budget

__all__ = ["PagedKVCache", "PagedKVStore"]


class PagedKVStore:
    """The memory for keys and values of one model: blocks of `block_tokens` tokens, in as many planes as the model has
    layers, twice. `config` is the model's. Several stores may share a `budget`.

    `cache(input_ids)` begins the sequences of one `generate`, and finds what earlier ones computed of the same
    beginning; `cache.finish(output_ids)` keeps what was computed for later ones.

    >>> from transformers import LlamaConfig
    >>> config = LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    >>> with PagedKVStore(config, "1GiB", page_size="64KiB") as store:
    ...     store.blocks.planes, store.blocks.block_size, tuple(store.keys(0).shape[1:])
    (4, 1024, (16, 2, 8))
    """

    def __init__(
        self,
        config: Any,
        capacity: int | str,
        *,
        block_tokens: int = 16,
        dtype: torch.dtype = torch.float32,
        page_size: int | str = "2MiB",
        budget: Budget | None = None,
        physical_limit: int | str | None = None,
        release_threshold: int | str | None = "32MiB",
    ) -> None:
        text = config.get_text_config(decoder=True)
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        shape = (block_tokens, heads, size)
        self.layer_count: int = text.num_hidden_layers
        self.blocks = BlockCache(
            capacity,
            block_tokens * heads * size * dtype.itemsize,
            page_size,
            planes=2 * self.layer_count,
            budget=budget,
            physical_limit=physical_limit,
            release_threshold=release_threshold,
        )
        self.tables = BlockTables(self.blocks, block_tokens)
        name = str(dtype).removeprefix("torch.")
        self._planes = [
            torch.utils.dlpack.from_dlpack(self.blocks.tensor(name, shape, plane=plane))
            for plane in range(self.blocks.planes)
        ]

    def keys(self, layer: int) -> torch.Tensor:
        """The keys of a layer: `(slots, block_tokens, heads, head_dim)`."""
        return self._planes[2 * layer]

    def values(self, layer: int) -> torch.Tensor:
        """The values of a layer, at the same slots."""
        return self._planes[2 * layer + 1]

    def cache(self, input_ids: torch.Tensor | None = None, *, copies: int = 1, salt: int = 0) -> PagedKVCache:
        """A cache for one `generate`. With `input_ids`, what was computed of them before is in it already; then
        `copies` is how many beams or answers each of them gets.
        """
        return PagedKVCache(self, input_ids, copies, salt)

    def stats(self) -> BlockTablesStats:
        """Sequences, blocks, and how many tokens were found."""
        return self.tables.stats()

    def suspend(self, contents: str = "main") -> int:
        """Give up all memory between requests and keep every address; says how many bytes. See `BlockCache.suspend`."""
        return self.blocks.suspend(contents)

    def resume(self) -> int:
        """Put the memory back behind the same addresses, with its contents; says how many bytes."""
        return self.blocks.resume()

    def close(self) -> None:
        """Give everything back. The tensors of `keys` and `values` must be gone."""
        self._planes.clear()
        self.tables.close()
        self.blocks.close()

    def __enter__(self) -> PagedKVStore:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class PagedKVCache(Cache):
    """The sequences of one `generate`, as transformers wants them. Made by `PagedKVStore.cache`; close it, or use
    `with`, when the answer is there.
    """

    def __init__(self, store: PagedKVStore, input_ids: torch.Tensor | None, copies: int, salt: int) -> None:
        self._paged = [_PagedLayer(self, layer) for layer in range(store.layer_count)]
        super().__init__(layers=list(self._paged))
        self.store = store
        self.sequences = array("q")
        self.length = 0
        """The tokens that every layer has, or is getting in the step under way."""
        self._closed = False
        self._kept = 0  # tokens of each that the tables were told of
        self._places: tuple[torch.Tensor, torch.Tensor] | None = None  # of all tokens: slots and places in them
        if input_ids is not None:
            self._admit(input_ids, copies, salt)

    def _admit(self, input_ids: torch.Tensor, copies: int, salt: int) -> None:
        rows, width = input_ids.shape
        tables = self.store.tables
        tokens = input_ids.to("cpu", torch.int64).contiguous().numpy().reshape(-1)
        found, matched = tables.admit(tokens, [width] * rows, salt=salt)
        # All rows of a batch go on from the same place.
        self.length = self._kept = min(matched, default=0)
        tables.truncate(found, self.length)
        self.sequences = found
        for layer in self._paged:
            layer.length = self.length
        if copies > 1:
            self.batch_repeat_interleave(copies)

    # --- Steps ---

    def begin_step(self, rows: int, added: int) -> None:
        """Room for the tokens of a step; the first layer of a step asks for it."""
        tables = self.store.tables
        if self._closed:
            raise errors.UseAfterRelease(0, what="the cache was closed")
        if not self.sequences:
            self.sequences = tables.allocate([0] * rows)
        if len(self.sequences) != rows:
            raise errors.InvalidArgument(f"the cache has {len(self.sequences)} sequences, and the step {rows}")
        tables.extend(self.sequences, added)
        self.length += added
        self._places = None

    def places(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Slot and place in the block of every token, one row for each sequence."""
        if self._places is None:
            found = self.store.tables.token_slots(self.sequences, 0, self.length)
            flat = torch.frombuffer(found, dtype=torch.int64) if found else torch.empty(0, dtype=torch.int64)
            shaped = flat.view(len(self.sequences), self.length)
            tokens = self.store.tables.block_tokens
            self._places = (shaped // tokens, shaped % tokens)
        return self._places

    # --- What transformers asks of a cache ---

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Go on with these rows; those that are there twice share blocks until they differ."""
        self._select(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row so many times."""
        self._select([row for row in range(len(self.sequences)) for _ in range(repeats)])

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep only these rows."""
        self._select(indices.tolist())

    def _select(self, rows: list[int]) -> None:
        before = self.sequences
        self.sequences = self.store.tables.fork([before[row] for row in rows])
        self.store.tables.free(before)
        self._places = None

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last tokens; the number is negative, as transformers says it."""
        if tokens_to_remove > 0:
            raise ValueError(f"a number of tokens to remove is negative, not {tokens_to_remove}")
        self._cut(max(0, self.length + tokens_to_remove))

    def _cut(self, length: int) -> None:
        self.store.tables.truncate(self.sequences, length)
        self.length = length
        self._kept = min(self._kept, length)
        self._places = None
        for layer in self._paged:
            layer.length = length

    def reset(self) -> None:
        """Forget all tokens."""
        self._cut(0)

    # --- The end ---

    def finish(self, output_ids: torch.Tensor) -> None:
        """Say what the tokens of each row are, so that later caches find them, and end the sequences."""
        computed = output_ids[:, self._kept : self.length].to("cpu", torch.int64).contiguous()
        if computed.shape[0] != len(self.sequences):
            raise errors.InvalidArgument(f"{computed.shape[0]} rows of tokens, and {len(self.sequences)} sequences")
        self.store.tables.commit(self.sequences, computed.numpy().reshape(-1), computed.shape[1])
        self.close()

    def close(self) -> None:
        """End the sequences. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self.store.tables.free(self.sequences)
        self.sequences = array("q")
        self._places = None

    def __enter__(self) -> PagedKVCache:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _PagedLayer(CacheLayerMixin):
    """One layer of a `PagedKVCache`."""

    is_sliding = False
    is_croppable = True

    def __init__(self, cache: PagedKVCache, layer: int) -> None:
        super().__init__()
        self._cache = cache
        self._layer = layer
        self.length = 0
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the store has the tensors."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new keys and values, `(rows, heads, tokens, head_dim)`, and give all of them."""
        rows, _, added, _ = key_states.shape
        if self.length + added > self._cache.length:
            self._cache.begin_step(rows, added)
        slots, places = self._cache.places()
        start, self.length = self.length, self.length + added
        new = (slots[:, start : self.length], places[:, start : self.length])
        whole = (slots[:, : self.length], places[:, : self.length])
        both = []
        store = self._cache.store
        for pages, states in ((store.keys(self._layer), key_states), (store.values(self._layer), value_states)):
            pages[new] = states.transpose(1, 2).to(pages.dtype)
            both.append(pages[whole].transpose(1, 2))
        return both[0], both[1]

    def get_seq_length(self) -> int:
        """The tokens it has."""
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The length and offset that a mask covers."""
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        """-1: there is no limit but memory."""
        return -1

    # Done for all layers at once by the cache.
    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """See `PagedKVCache.reorder_cache`."""
        raise errors.NotSupported("a layer alone is not reordered; its cache is")

    def reset(self) -> None:
        """See `PagedKVCache.reset`."""
        raise errors.NotSupported("a layer alone is not reset; its cache is")

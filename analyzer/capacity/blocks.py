"""The paged KV cache: who holds how many blocks, and what the free ones remember.

As in vLLM, a freed block keeps its content until it is needed: free blocks without
content are handed out first, then the least recently freed, a sequence's last block
before its first. Blocks are counted; only those of a shared prefix are told apart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from analyzer.capacity.sequence import Sequence

# Whose content a block has: the prefix, and the place in it.
_Key = tuple[Hashable, int]


class Copy:
    """One block of a shared prefix; two requests at once may have computed it twice."""

    __slots__ = ("key", "users")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.users = 1


class BlockPool:
    """The blocks of one engine, one of which (the null block) is never handed out."""

    def __init__(self, num_blocks: int, block_size: int, *, caching: bool) -> None:
        self.size = num_blocks - 1
        self.block_size = block_size
        self.caching = caching
        self.free = self.size
        self._blank = self.size
        # Free blocks that remember something, least recently freed first, by what:
        # a block of a prefix, the leading blocks of a preempted sequence's own, or
        # the remains of a request that is gone.
        self._remembered: OrderedDict[Copy | Sequence | int, int] = OrderedDict()
        self._copies: dict[_Key, list[Copy]] = {}  # in use or free, oldest first
        self._buried = 0

    @property
    def usage(self) -> float:
        """The share of blocks in use; those free with a memory are free."""
        return 1.0 - self.free / self.size

    def lookup(self, sequence: Sequence) -> tuple[int, int]:
        """Returns how many leading blocks of *sequence* are still there.

        The second number is how many of them are in use by others, so cost nothing.
        The last token is never found: its logits are needed.
        """
        if not self.caching:
            return 0, 0
        limit = (sequence.total - 1) // self.block_size
        prefix = sequence.request.prefix
        found = in_use = 0
        for index in range(min(sequence.prefix_blocks, limit)):
            copies = self._copies.get((prefix, index))
            if copies is None:
                return found, in_use
            found += 1
            in_use += copies[0].users > 0
        return min(found + self._remembered.get(sequence, 0), limit), in_use

    def admit(self, sequence: Sequence, found: int) -> None:
        """Hands *sequence* the blocks that `lookup` has just found."""
        prefix = sequence.request.prefix
        for index in range(min(found, sequence.prefix_blocks)):
            copy = self._copies[prefix, index][0]
            if not copy.users:
                del self._remembered[copy]
                self.free -= 1
            copy.users += 1
            sequence.shared.append(copy)
        own = self._remembered.pop(sequence, 0)
        taken = found - len(sequence.shared)
        self.free -= taken
        self._bury(own - taken)
        sequence.blocks = found
        sequence.slots = found * self.block_size

    def grow(self, sequence: Sequence, tokens: int) -> None:
        """Gives *sequence* room for *tokens* in all; the blocks must be free."""
        wanted = -(-tokens // self.block_size) - sequence.blocks
        self.free -= wanted
        sequence.blocks += wanted
        sequence.slots = sequence.blocks * self.block_size
        self._blank -= wanted
        while self._blank < 0:
            key = next(iter(self._remembered))
            lost = min(self._remembered[key], -self._blank)
            self._blank += lost
            self._remembered[key] -= lost
            if not self._remembered[key]:
                del self._remembered[key]
                if isinstance(key, Copy):
                    self._forget(key)

    def _forget(self, copy: Copy) -> None:
        copies = self._copies[copy.key]
        copies.remove(copy)
        if not copies:
            del self._copies[copy.key]

    def share(self, sequence: Sequence) -> None:
        """Lets others find the blocks of the prefix that are computed by now."""
        if not self.caching:
            return
        full = min(sequence.prefix_blocks, sequence.computed // self.block_size)
        for index in range(len(sequence.shared), full):
            key = (sequence.request.prefix, index)
            copy = Copy(key)
            self._copies.setdefault(key, []).append(copy)
            sequence.shared.append(copy)

    def release(self, sequence: Sequence, *, returns: bool = False) -> None:
        """Takes all blocks of *sequence* back; one that *returns* may find its own.

        That holds for blocks full of tokens that were known when last computed on.
        """
        named = sequence.named
        if not sequence.drafts:
            named = max(named, sequence.computed - sequence.pending)
        full = named // self.block_size if self.caching else 0
        shared = len(sequence.shared)
        private = max(0, full - shared)
        blank = sequence.blocks - shared - private
        self._blank += blank
        self.free += blank + private
        if returns and private:
            self._remembered[sequence] = private
        else:
            self._bury(private)
        for copy in reversed(sequence.shared):
            copy.users -= 1
            if not copy.users:
                self._remembered[copy] = 1
                self.free += 1
        sequence.shared.clear()
        sequence.blocks = sequence.slots = sequence.named = 0

    def _bury(self, blocks: int) -> None:
        """Keeps *blocks* whose content nobody will ask for again."""
        if blocks:
            self._buried += 1
            self._remembered[self._buried] = blocks

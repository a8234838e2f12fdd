"""The paged KV cache: who holds how many blocks, and what the free ones remember.

As in vLLM, a freed block keeps its content until it is needed: free blocks without
content are handed out first, then the least recently freed, a sequence's last block
before its first. Blocks are counted; only those of a shared prefix have a name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from analyzer.capacity.sequence import Sequence


class BlockPool:
    """The blocks of one engine, one of which (the null block) is never handed out."""

    def __init__(self, num_blocks: int, block_size: int, *, caching: bool) -> None:
        self.size = num_blocks - 1
        self.block_size = block_size
        self.caching = caching
        self.free = self.size
        # Free blocks that remember something, least recently freed first, by whose
        # content it is: a block of a prefix, the leading blocks of a preempted
        # sequence, or the remains of a request that is gone.
        self._remembered: OrderedDict[Hashable, int] = OrderedDict()
        self._blank = self.size
        self._references: dict[Hashable, int] = {}
        self._buried = 0

    @property
    def usage(self) -> float:
        """The share of blocks in use; those free with a memory are free."""
        return 1.0 - self.free / self.size

    @property
    def held(self) -> int:
        """The number of blocks in use by shared prefixes, each counted once."""
        return len(self._references)

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
            key = (prefix, index)
            if key in self._references:
                in_use += 1
            elif key not in self._remembered:
                break
            found += 1
        own = self._remembered.get(sequence, 0)
        if own and found >= sequence.own_from:
            found = max(found, min(sequence.own_from + own, limit))
        return found, in_use

    def admit(self, sequence: Sequence, found: int) -> None:
        """Hands *sequence* the blocks that `lookup` has just found."""
        prefix = sequence.request.prefix
        shared = min(found, sequence.prefix_blocks)
        for index in range(shared):
            key = (prefix, index)
            users = self._references.get(key, 0)
            if not users:
                if self._remembered.pop(key, 0) == 0:
                    shared = index  # found among its own blocks instead
                    break
                self.free -= 1
            self._references[key] = users + 1
        own = self._remembered.pop(sequence, 0)
        taken = found - shared
        self.free -= taken
        if own > taken:
            self._bury(own - taken)
        sequence.shared = shared
        sequence.sharing = shared == min(found, sequence.prefix_blocks)
        sequence.blocks = found
        sequence.slots = found * self.block_size

    def grow(self, sequence: Sequence, tokens: int) -> None:
        """Gives *sequence* room for *tokens* in all; they must be free."""
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

    def share(self, sequence: Sequence) -> None:
        """Lets others find the blocks of the prefix that are computed by now.

        A block that somebody else computed meanwhile stays a private copy, and with
        it the rest of the prefix.
        """
        full = min(sequence.prefix_blocks, sequence.computed // self.block_size)
        if not self.caching:
            full = 0
        while sequence.sharing and sequence.shared < full:
            key = (sequence.request.prefix, sequence.shared)
            if key in self._references or key in self._remembered:
                sequence.sharing = False
                return
            self._references[key] = 1
            sequence.shared += 1

    def release(self, sequence: Sequence, *, returns: bool = False) -> None:
        """Takes all blocks of *sequence* back; one that *returns* may find its own."""
        full = min(sequence.computed, sequence.total) // self.block_size
        full = min(full, sequence.blocks) if self.caching else 0
        private = max(0, full - sequence.shared)
        blank = sequence.blocks - sequence.shared - private
        self._blank += blank
        self.free += blank + private
        if private:
            if returns:
                self._remembered[sequence] = private
                sequence.own_from = sequence.shared
            else:
                self._bury(private)
        for index in reversed(range(sequence.shared)):
            key = (sequence.request.prefix, index)
            users = self._references[key] - 1
            if users:
                self._references[key] = users
            else:
                del self._references[key]
                self._remembered[key] = 1
                self.free += 1
        sequence.blocks = sequence.slots = sequence.shared = 0
        sequence.sharing = True

    def _bury(self, blocks: int) -> None:
        """Keeps *blocks* whose content nobody will ask for again."""
        self._buried += 1
        self._remembered[self._buried] = blocks

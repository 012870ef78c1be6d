"""What happens to files: bits flip, ends are lost, bytes are added."""

from collections.abc import Iterator


def flipped(content: bytes, every: int = 1) -> Iterator[bytes]:
    """*content* with one bit changed: each bit in turn, or one of *every* so many."""
    changed = bytearray(content)
    for bit in range(0, 8 * len(content), every):
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)
        changed[bit // 8] ^= 1 << bit % 8


def cut_or_grown(content: bytes, every: int = 1) -> Iterator[bytes]:
    """*content* without some of its bytes at the end, at the beginning or in the middle, and with more of them."""
    for length in range(0, len(content), every):
        yield content[:length]
        yield content[length + 1 :]
        yield content[:length] + content[length + 1 :]
        yield content[:length] + b"\0" + content[length:]
    yield from (content + added for added in (b"\0", b"\n", content[-128:], content))

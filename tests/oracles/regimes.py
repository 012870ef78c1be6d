"""What a point of the (L, G) plane suffers from, by asking the planes of T one by one."""

from collections.abc import Iterable, Mapping

Planes = Iterable[Mapping[str, float]]


def time_ns(planes: Planes, latency: float, gap: float) -> float:
    return max(p["constant_ns"] + p["messages"] * latency + p["bytes"] * gap for p in planes)


def regime(planes: Planes, native: tuple[float, float], latency: float, gap: float, threshold: float) -> str:
    """Near the native time, or what would win more than the threshold if it were native: latency, bandwidth, both."""
    base, here = time_ns(planes, *native), time_ns(planes, latency, gap)
    if here <= (1 + threshold) * base:
        return "near"
    by_latency = here - time_ns(planes, native[0], gap) > threshold * base
    by_bandwidth = here - time_ns(planes, latency, native[1]) > threshold * base
    if by_latency == by_bandwidth:
        return "both"
    return "latency" if by_latency else "bandwidth"

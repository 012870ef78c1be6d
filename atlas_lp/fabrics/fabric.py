"""The parameters theta of the model: the scale-out and scale-up networks and the modelling choices.

A path vector has one integer per entry of :data:`COMPONENTS`; its time at a fabric is the sum of the
entries times the values of :meth:`Fabric.theta` (docs/model.md#equation-4: everything is linear in theta).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import resources
from pathlib import Path

from atlas_lp.errors import FabricError, UnitError
from atlas_lp.goal.event_graph import COMPONENTS, EventGraph, PortMessages, PortRule
from atlas_lp.goal.schedule import Ints, Schedule
from atlas_lp.inputs import MOST_TOML, parse_toml, read_text
from atlas_lp.signatures.costs import CostTable, load_costs
from atlas_lp.units import format_bandwidth, format_time, number, parse_bandwidth, parse_time_ns

PRESETS = ("alps",)
MOST_GPUS_PER_NIC = 1024


@dataclass(frozen=True)
class Fabric:
    """The LogGP parameters of a cluster, in ns and ns per byte, all exact.

    *latency_ns*, *overhead_ns*, *message_gap_ns* and *gap_ns_per_byte* are L, o, g and G of the scale-out
    network; ``latency_ns`` and ``gap_ns_per_byte`` together are the native operating point.
    *up_latency_ns* and *up_gap_ns_per_byte* are the fixed L and G of scale-up hops, which have no o and g.
    *gpus_per_nic* consecutive GPUs of a node share one NIC, and with it the queue of its port; with *ingress* messages
    queue at the NIC that receives them, too.  *reduce_copy* is a table of reduce/copy times, or the name of one.
    *order_point* is the (L, G) at which ports serve first come, first served, where that is not the native point.
    """

    name: str
    latency_ns: Fraction
    overhead_ns: Fraction
    message_gap_ns: Fraction
    gap_ns_per_byte: Fraction
    up_latency_ns: Fraction
    up_gap_ns_per_byte: Fraction
    gpus_per_nic: int = 1
    port_rule: PortRule = PortRule.PORT
    ingress: bool = False
    reduce_copy: str | CostTable = "gh200"
    credits: str = "local"
    order_point: tuple[Fraction, Fraction] | None = None

    @property
    def native(self) -> tuple[Fraction, Fraction]:
        """The native operating point (L, G)."""
        return self.latency_ns, self.gap_ns_per_byte

    def theta(self) -> dict[str, Fraction]:
        """Value of each component of a path vector, with L and G at the native point."""
        values = (
            Fraction(1),
            self.latency_ns,
            self.gap_ns_per_byte,
            self.overhead_ns,
            self.message_gap_ns,
            self.up_latency_ns,
            self.up_gap_ns_per_byte,
        )
        return dict(zip(COMPONENTS, values, strict=True))

    @property
    def order_at(self) -> tuple[Fraction, Fraction]:
        """The point (L, G) that decides in which order a port serves its messages."""
        return self.order_point or self.native

    def in_order_of(self, where: tuple[Fraction, Fraction]) -> Fabric:
        """The same fabric whose ports serve in the order of another point (L, G)."""
        return replace(self, order_point=where)

    def messages(self, schedule: Schedule, node_of_rank: Ints | None = None) -> PortMessages:
        """What the ports of this fabric have to serve in *schedule*; raises what :func:`~.event_graph` raises."""
        return PortMessages(schedule, node_of_rank, self.port_rule, self.ingress)

    def graph(self, schedule: Schedule, node_of_rank: Ints | None = None) -> EventGraph:
        """The LogGP graph of *schedule* by the port rule of this fabric, in the order of :attr:`order_at`."""
        messages = self.messages(schedule, node_of_rank)
        return messages.graph(messages.served(self.theta_at(self.order_at)))

    def theta_at(self, where: tuple[Fraction, Fraction]) -> dict[str, Fraction]:
        """The parameters with (L, G) at *where*."""
        return {**self.theta(), "messages": where[0], "bytes": where[1]}

    def fixed(self) -> dict[str, str]:
        """Everything but the native point, as exact text: what a solved envelope depends on."""
        return {
            "overhead_ns": str(self.overhead_ns),
            "message_gap_ns": str(self.message_gap_ns),
            "up_latency_ns": str(self.up_latency_ns),
            "up_gap_ns_per_byte": str(self.up_gap_ns_per_byte),
            "port_rule": self.port_rule.value,
            "ingress": str(self.ingress).lower(),
            "reduce_copy": load_costs(self.reduce_copy).digest,
            "credits": self.credits,
            "order_at": ", ".join(map(str, self.order_at)),
        }

    def at(
        self,
        *,
        latency_ns: Fraction | None = None,
        gap_ns_per_byte: Fraction | None = None,
        up_latency_ns: Fraction | None = None,
        up_gap_ns_per_byte: Fraction | None = None,
    ) -> Fabric:
        """Return the same fabric with another native point, or with other scale-up hops.

        Ports go on serving in the order of the point where they did: another native point is another question.
        """
        moved = replace(
            self,
            latency_ns=self.latency_ns if latency_ns is None else latency_ns,
            gap_ns_per_byte=self.gap_ns_per_byte if gap_ns_per_byte is None else gap_ns_per_byte,
            up_latency_ns=self.up_latency_ns if up_latency_ns is None else up_latency_ns,
            up_gap_ns_per_byte=self.up_gap_ns_per_byte if up_gap_ns_per_byte is None else up_gap_ns_per_byte,
        )
        return moved if moved.native == self.native else moved.in_order_of(self.order_at)

    def describe(self) -> str:
        """One line with every value, for reports."""
        nic = "one NIC per GPU" if self.gpus_per_nic == 1 else f"one NIC per {self.gpus_per_nic} GPUs"
        return (
            f"fabric {self.name}: scale-out L {format_time(self.latency_ns)}, "
            f"{format_bandwidth(self.gap_ns_per_byte)} "
            f"(G {number(self.gap_ns_per_byte):g} ns/B), o {format_time(self.overhead_ns)}, "
            f"g {format_time(self.message_gap_ns)}, {nic}; scale-up L {format_time(self.up_latency_ns)}, "
            f"{format_bandwidth(self.up_gap_ns_per_byte)}"
        )


_CHOICES = {"reduce_copy": ("gh200", "none"), "credits": ("local", "acknowledged", "none")}


class _Table:
    """One table of a fabric file: takes values out by name and refuses what is left over."""

    def __init__(self, where: str, name: str, values: object) -> None:
        if not isinstance(values, dict):
            raise FabricError(f"{where}: [{name}] must be a table")
        self.where = f"{where}: [{name}]"
        self.values = dict(values)

    def take(self, key: str, default: object = None) -> object:
        value = self.values.pop(key, default)
        if value is None:
            raise FabricError(f"{self.where} needs {key}; see docs/fabrics.md for a complete file")
        return value

    def time(self, key: str) -> Fraction:
        return self._quantity(key, parse_time_ns)

    def gap(self, key: str) -> Fraction:
        return self._quantity(key, parse_bandwidth)

    def _quantity(self, key: str, parse: object) -> Fraction:
        text = self.take(key)
        try:
            return parse(str(text))  # type: ignore[operator, no-any-return]
        except UnitError as error:
            raise FabricError(f"{self.where} {key}: {error}") from None

    def choice(self, key: str, options: tuple[str, ...], default: str) -> str:
        value = str(self.take(key, default))
        if value not in options:
            raise FabricError(f"{self.where} {key} = {value!r} is not one of {', '.join(options)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise FabricError(f"{self.where} {key} must be true or false")
        return value

    def finish(self) -> None:
        if self.values:
            raise FabricError(f"{self.where} has unknown keys: {', '.join(sorted(map(str, self.values)))}")


def parse_fabric(text: str, where: str = "fabric") -> Fabric:
    """Read a fabric from TOML *text*; *where* names the file in errors.

    Raises :class:`~atlas_lp.errors.FabricError` naming the table and key that is missing, unknown or wrong.
    """
    data = parse_toml(text, where, FabricError)
    top = _Table(where, "top level", data)
    out = _Table(where, "scale_out", top.take("scale_out"))
    up = _Table(where, "scale_up", top.take("scale_up"))
    model = _Table(where, "model", top.take("model", {}))
    gpus_per_nic = out.take("gpus_per_nic", 1)
    if type(gpus_per_nic) is not int or not 1 <= gpus_per_nic <= MOST_GPUS_PER_NIC:
        raise FabricError(f"{out.where} gpus_per_nic must be a whole number of 1 to {MOST_GPUS_PER_NIC}")
    fabric = Fabric(
        name=str(top.take("name")),
        latency_ns=out.time("latency"),
        overhead_ns=out.time("overhead"),
        message_gap_ns=out.time("message_gap"),
        gap_ns_per_byte=out.gap("bandwidth"),
        up_latency_ns=up.time("latency"),
        up_gap_ns_per_byte=up.gap("bandwidth"),
        gpus_per_nic=gpus_per_nic,
        port_rule=PortRule(model.choice("port_rule", tuple(rule.value for rule in PortRule), "port")),
        ingress=model.flag("ingress", False),
        reduce_copy=model.choice("reduce_copy", _CHOICES["reduce_copy"], "gh200"),
        credits=model.choice("credits", _CHOICES["credits"], "local"),
    )
    for table in (top, out, up, model):
        table.finish()
    return fabric


def load_fabric(name_or_path: str = "alps") -> Fabric:
    """Return a preset by name, or read a TOML file.

    Raises :class:`~atlas_lp.errors.FabricError` when it is neither, or the file is wrong.
    """
    if name_or_path in PRESETS:
        text = resources.files("atlas_lp.fabrics").joinpath(f"{name_or_path}.toml").read_text("utf-8")
        return parse_fabric(text, name_or_path)
    path = Path(name_or_path)
    try:
        return parse_fabric(read_text(path, FabricError, MOST_TOML), str(path))
    except (OSError, UnicodeDecodeError) as error:
        presets = ", ".join(PRESETS)
        raise FabricError(
            f"{name_or_path}: neither a preset ({presets}) nor a readable file ({error.__class__.__name__})"
        ) from None

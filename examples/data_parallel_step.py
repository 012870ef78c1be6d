"""Write the synthetic demo job: a data-parallel training step, one Nsight Systems export per node.

Run it as ``python examples/data_parallel_step.py -o step``; ``--help`` lists the options.
"""

from pathlib import Path

import click

from atlas_lp.errors import AtlasError
from atlas_lp.traces.synthetic.demo import write_demo


@click.command()
@click.option("--nodes", type=click.IntRange(min=1), default=4, show_default=True, help="Number of nodes.")
@click.option(
    "--gpus-per-node",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="GPUs, and NICs, per node.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of jitter, clocks and ids.")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("step"),
    show_default=True,
    help="Folder to write to.",
)
@click.option("-f", "--force", is_flag=True, help="Overwrite files that exist.")
def main(nodes: int, gpus_per_node: int, seed: int, output: Path, force: bool) -> None:
    """Write SYNTHETIC traces of one training step of a Llama-8B-like model.

    No such job ran: sizes come from the model's layer table, times from a simple formula. The files look
    like what nsys 2026.3 exports for NCCL 2.28, one per node, and each says that it is synthetic.
    """
    try:
        paths = write_demo(output, seed=seed, nodes=nodes, gpus_per_node=gpus_per_node, overwrite=force)
    except AtlasError as error:
        raise click.UsageError(str(error)) from None
    for path in paths:
        click.echo(f"{path}  {path.stat().st_size / 1e6:.1f} MB  (synthetic)")


if __name__ == "__main__":
    main()

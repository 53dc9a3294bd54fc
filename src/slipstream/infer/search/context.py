"""The fixed facts of a search: model, objective, samples, engines and reference."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from slipstream.infer.accuracy.division import Division
from slipstream.infer.accuracy.reference import Reference
from slipstream.infer.engines import ENGINES, Engine, Recipe, engine_of
from slipstream.infer.engines.gpu.cards import parse_device, require_card
from slipstream.infer.engines.modules import NO_GPU
from slipstream.infer.graph.spilled import spilled
from slipstream.infer.machine import give_memory_back
from slipstream.infer.package.report import Candidate, State
from slipstream.infer.rewrites import Applied, optimise
from slipstream.infer.samples import Samples, synthetic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slipstream.infer.graph.graph import Array, Graph
    from slipstream.infer.importers import Imported
    from slipstream.infer.search.objective import Objective
    from slipstream.infer.search.time_limit import TimeLimit

NO_PACKAGE = "a package cannot store what this engine compiles"
# Number of random inputs that replace missing samples. Chosen by hand, not measured.
NUM_SYNTHETIC = 4


@dataclass(frozen=True)
class SearchContext:
    """The facts of one search that do not change.

    Args:
        imported: Imported model.
        objective: Objective and limits of the search.
        limit: Time limit of the search.
        rewritten: Graph of the model after the rewrites.
        applied: Effect of each rewrite on the graph.
        samples: Samples of the search, divided into calibration, judging and held-out samples.
        has_data: True if the user gave the samples; False if they are random inputs.
        engines: Engines to try.
        untried: Entries of the report for the engines that are not tried, with the reasons.
        reference: Imported graph in float32, with whose outputs those of candidates are compared.
    """

    imported: Imported
    objective: Objective
    limit: TimeLimit
    rewritten: Graph
    applied: tuple[Applied, ...]
    samples: Division
    has_data: bool
    engines: tuple[Engine, ...]
    untried: tuple[Candidate, ...]
    reference: Reference

    @staticmethod
    def of(
        imported: Imported, objective: Objective, samples: Samples | None, limit: TimeLimit
    ) -> SearchContext:
        """Return the context of a new search, with the rewritten graph and the loaded reference.

        The caller must close `reference`. Raises UsageError for unknown rewrites, and for a graph
        that the reference cannot run.
        """
        if parse_device(objective.device).kind == "cuda":
            require_card(objective.device)
        rewritten, applied = optimise(imported.graph, without=objective.without)
        if _constant_bytes(imported.graph) >= objective.large_bytes:
            rewritten = spilled(rewritten, imported.graph)
            give_memory_back()
        engines, untried = _engines(imported, objective)
        return SearchContext(
            imported=imported,
            objective=objective,
            limit=limit,
            rewritten=rewritten,
            applied=applied,
            samples=Division.of(
                synthetic(imported.graph, NUM_SYNTHETIC) if samples is None else samples
            ),
            has_data=samples is not None,
            engines=tuple(engines),
            untried=tuple(untried),
            reference=Reference(imported.graph, objective.threads, imported.origin),
        )

    @cached_property
    def constant_bytes(self) -> int:
        """Size of the model's constants in bytes."""
        return _constant_bytes(self.imported.graph)

    @property
    def is_large(self) -> bool:
        """Whether the model is so large that `one_by_one` prepares the candidates."""
        return self.constant_bytes >= self.objective.large_bytes

    @cached_property
    def first_inputs(self) -> Mapping[str, Array]:
        """Inputs of the first judging sample; candidates are timed with these inputs."""
        return self.samples.judged[0].inputs

    @property
    def card(self) -> int | None:
        """Number of the GPU that the user chose; None for the first one."""
        return parse_device(self.objective.device).card

    def graph(self, recipe: Recipe) -> Graph:
        """Return the graph that a recipe runs."""
        return self.rewritten if recipe.rewrites else self.imported.graph


def _constant_bytes(graph: Graph) -> int:
    return sum(array.nbytes for array in graph.constants.values())


def _engines(imported: Imported, objective: Objective) -> tuple[list[Engine], list[Candidate]]:
    """Return the engines to try, and entries of the report that give reasons against the others.

    If there is no GPU, the report has entries for GPU engines only if the user named them, because
    few machines have a GPU.
    """
    choice = parse_device(objective.device)
    engines: list[Engine] = []
    untried: list[Candidate] = []
    for name in objective.engines or ENGINES:
        engine = engine_of(name, objective.large_bytes, choice.card)
        if choice.kind not in ("auto", engine.kind):
            if objective.engines:
                reason = f"it computes on {engine.kind}, and the device is {choice}"
                untried.append(Candidate(engine=name, state=State.UNTRIED, reason=reason))
            continue
        # By default no engine runs the module; True stands for a module that could be run.
        module = imported.module if objective.engines else imported.is_module or None
        engine = engine.with_module(module)
        reason = engine.available()
        if reason is None and not engine.is_packable and not objective.engines:
            reason = f"{NO_PACKAGE}; --engines {name} measures it beside others"
        if reason is None:
            engines.append(engine)
        elif objective.engines or reason != NO_GPU:
            untried.append(Candidate(engine=name, state=State.UNTRIED, reason=reason))
    return engines, untried

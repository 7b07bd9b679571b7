"""Config of mixture-of-experts layers: feed-forward layers with several experts per layer, of which
the router chooses a few for each token."""

from __future__ import annotations

__all__ = ("ExpertsConfig",)

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """The sizes of a mixture of experts, equal in all layers that have one."""

    count: int  #: Experts per layer.
    per_token: int  #: Experts that the router chooses for each token.
    intermediate_size: int  #: Of one expert.
    normalize: bool  #: Whether the weights of a token's experts are scaled to sum to 1.
    shared_size: int = 0  #: Intermediate size of the shared expert; 0 if there is none.
    dense_layers: tuple[int, ...] = ()  #: Layers with an ordinary gated MLP instead.

    def is_sparse(self, layer: int) -> bool:
        """Return whether layer `layer` is a mixture of experts."""
        return layer not in self.dense_layers

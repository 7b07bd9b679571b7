"""The graph of a vision tower that reads images of any size, by two-dimensional RoPE."""

from __future__ import annotations

__all__ = ("GridTower",)

from tvm.relax.frontend import nn

from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.graph.columns import ConcatColumns
from aiomlc.models.graph.packed import PackedTokens, WeighRows
from aiomlc.models.graph.tower import build_projector
from aiomlc.models.graph.vision import VisionTower


class GridTower(VisionTower):
    """A tower with its projector, and those of layers that the decoder's first layers read."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__(config)
        self.window_layers: frozenset[int] = frozenset(config.window_layers)
        self.weigh: WeighRows = WeighRows()
        self.feature_layers: tuple[int, ...] = tuple(part.layer for part in config.features)
        self.features: nn.ModuleList = nn.ModuleList(
            [build_projector(part.projector) for part in config.features]
        )
        self.concat: ConcatColumns = ConcatColumns()

    def encode(  # type: ignore[override]  # noqa: PLR0913 - the inputs of the library.
        self,
        patches: nn.Tensor,
        positions: nn.Tensor,
        lengths: nn.Tensor,
        window_lengths: nn.Tensor,
        order: nn.Tensor,
        table_ids: nn.Tensor,
        table_weights: nn.Tensor,
    ) -> nn.Tensor:
        """Return rows in place of token embeddings, float32 `[m, embedded size]`.

        Args:
            patches: The pixels of each token, float32 `[n, patch inputs]`.
            positions: In time, height and width, int32 `[3, n]`.
            lengths: Tokens of each image, int32 `[b]`.
            window_lengths: Tokens of each window, int32 `[w]`.
            order: The tokens that are joined to each output row, int32 `[m, count]`.
            table_ids: Rows of the table of positions, int32 `[n * taps]`.
            table_weights: Their weights, float32 `[n, taps]`.
        """
        x = self.embed(patches)
        if self.position_embed is not None:
            x = self.sum(x, self.weigh(self.position_embed(table_ids), table_weights))
        if self.pre_norm is not None:
            x = self.pre_norm(x)
        images = PackedTokens(positions, lengths)
        windows = PackedTokens(positions, window_lengths)
        added: list[nn.Tensor] = []
        for index, layer in enumerate(self.layers):
            x = layer(x, windows if index in self.window_layers else images)
            if index in self.feature_layers:
                projector = self.features[self.feature_layers.index(index)]
                added.append(_project(projector, x, order))
        rows = _project(self.projector, x, order)
        for part in added:
            rows = self.concat(rows, part, 0, int(part.shape[1]))
        return rows


def _project(projector: nn.ModuleList, x: nn.Tensor, order: nn.Tensor) -> nn.Tensor:
    for step in projector:
        x = step(x, order)
    return x

"""`ConvTemplateRegistry`, whose templates can be changed."""

from __future__ import annotations

import aiomlc
from mlc_llm.protocol.conversation_protocol import Conversation, thawed


class ConvTemplateRegistry:
    """The conversation templates by name."""

    @staticmethod
    def register_conv_template(conv_template: Conversation, override: bool = False) -> None:
        """Register a template."""
        template = getattr(conv_template, "frozen", lambda: conv_template)()
        aiomlc.ConvTemplateRegistry.register_conv_template(template, override)

    @staticmethod
    def get_conv_template(name: str) -> Conversation | None:
        """Return a copy of the template of that name; None if there is none."""
        template = aiomlc.ConvTemplateRegistry.get_conv_template(name)
        return None if template is None else thawed(template)

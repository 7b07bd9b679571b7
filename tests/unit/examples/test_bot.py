"""The example bot: its conversations, slow channels, failures and its end."""

from __future__ import annotations

import pytest
from anyio import Event, fail_after, sleep_forever, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from aiomlc import AsyncMLCEngine
from aiomlc.testing import FakeCore, fake_loader
from examples.bot import MAX_WAITING, Bot

pytestmark = pytest.mark.timeout(30)


class Network:
    """Keeps what is sent; the channel `#slow` takes nothing until `go`."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.go = Event()
        self._changed = Event()

    async def send(self, channel: str, text: str) -> None:
        if channel == "#broken":
            raise ConnectionError("the network is gone")
        if channel == "#slow":
            await self.go.wait()
        self.sent.append((channel, text))
        self._changed.set()
        await checkpoint()

    async def wait_for(self, number: int) -> None:
        """Wait until this many messages have been sent."""
        with fail_after(20):
            while len(self.sent) < number:
                self._changed = Event()
                await self._changed.wait()


def engine_of(core: FakeCore) -> AsyncMLCEngine:
    return AsyncMLCEngine(loader=fake_loader(core))


async def test_a_slow_channel_delays_no_other() -> None:
    network = Network()
    async with engine_of(FakeCore(["Hi"])) as engine, Bot(engine, network.send) as bot:
        assert bot.receive("#slow", "1")
        assert bot.receive("#slow", "2")
        assert all(bot.receive(f"#{number}", "Hello") for number in range(8))
        await network.wait_for(8)
        assert {channel for channel, _ in network.sent} == {f"#{number}" for number in range(8)}
        network.go.set()

    assert network.sent[8:] == [("#slow", "Hi"), ("#slow", "Hi")]
    assert bot.unanswered == []


async def test_every_channel_has_its_own_conversation() -> None:
    core, network = FakeCore(["Yes."]), Network()
    async with engine_of(core) as engine, Bot(engine, network.send) as bot:
        for number, (channel, text) in enumerate(
            [("#a", "One?"), ("#b", "Two?"), ("#a", "Three?"), ("#a", "!forget"), ("#a", "Four?")]
        ):
            bot.receive(channel, text)
            await network.wait_for(number + 1)

    prompts = [bytes(prompt).decode() for prompt in core.prompts]
    asked = [[q for q in ("One?", "Two?", "Three?", "Four?") if q in prompt] for prompt in prompts]
    assert asked == [["One?"], ["Two?"], ["One?", "Three?"], ["Four?"]]


async def test_a_long_conversation_forgets_its_beginning() -> None:
    core, network = FakeCore(["Yes."]), Network()
    async with engine_of(core) as engine, Bot(engine, network.send) as bot:
        for number in range(4):  # The context has 1,024 tokens, here bytes.
            bot.receive("#a", f"{number}" * 400)
            await network.wait_for(number + 1)
        bot.receive("#a", "x" * 2000)
        await network.wait_for(5)

    assert [text for _, text in network.sent[:4]] == ["Yes."] * 4
    assert network.sent[4][1].startswith("I cannot answer: ")


async def test_a_failure_stays_in_its_channel(caplog: pytest.LogCaptureFixture) -> None:
    core, network = FakeCore(["Hi"], failures={2: "no more"}), Network()
    async with engine_of(core) as engine, Bot(engine, network.send) as bot:
        bot.receive("#broken", "1")
        while not caplog.records:
            await checkpoint()
        bot.receive("#b", "2")
        await network.wait_for(1)
        bot.receive("#b", "3")

    assert "#broken" in caplog.text
    assert "no more" in network.sent[0][1]
    assert network.sent[1] == ("#b", "Hi")


async def test_a_full_channel_and_a_closed_bot_refuse_messages() -> None:
    network = Network()
    async with engine_of(FakeCore(["Hi"])) as engine:
        async with Bot(engine, network.send) as bot:
            taken = [bot.receive("#slow", "?") for _ in range(MAX_WAITING + 1)]
            network.go.set()

        assert taken == [True] * MAX_WAITING + [False]
        assert len(network.sent) == MAX_WAITING
        assert not bot.receive("#slow", "Too late")


async def test_the_end_cancels_what_takes_too_long_and_names_it() -> None:
    core = FakeCore(["Hi"], hand_stepped=True)
    async with engine_of(core) as engine:
        with fail_after(20):
            async with Bot(engine, lambda *_: sleep_forever(), grace_seconds=0) as bot:
                bot.receive("#a", "1")
                bot.receive("#a", "2")
                await wait_all_tasks_blocked()
        core.allow(100)

    assert bot.unanswered == [("#a", "1"), ("#a", "2")]
    assert core.cancelled == [1]
